"""GraphPipe, Oracle's protocol for tensors: flatbuffers over HTTP, with one model per URL.

Specification: https://github.com/oracle/graphpipe, docs/guide/user-guide/spec.md.
Schema: protos/graphpipe/graphpipe.fbs in this repository.
"""

from urllib.parse import quote

from gateway.core.examples import curl
from gateway.core.protocol import HttpBinding, Models, Protocol, Servers, Traits, Wire
from gateway.protocols.graphpipe.client import decode_response, encode_request, has_one_model
from gateway.protocols.graphpipe.errors import encode_error, is_reported
from gateway.protocols.graphpipe.schema import NAME, TYPE_NUMBERS
from gateway.protocols.graphpipe.server import decode_request, encode_response
from gateway.protocols.graphpipe.tensors import parsed_size

PROTOCOLS = (
    Protocol(
        NAME,
        binding=HttpBinding(any_path=("POST", "GET")),
        patterns=("POST /graphpipe/{model}", "GET /graphpipe/{model}"),
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=Traits(
            wire=Wire(
                datatypes=frozenset(TYPE_NUMBERS),
                # a request can omit all names, and the tensors of a response have no names
                unnamed=True,
            ),
            models=Models(
                named=False,
                one_at=has_one_model,
                # the Go package's `Serve` always reports wrong types and shapes; the Python package reports the tensors
                # in reverse order
                trusted_metadata=False,
                platform=NAME,
            ),
            servers=Servers(lacks_model=is_reported),
        ),
        parsed_size=parsed_size,
        example=lambda address, model, version: curl(f"http://{address}/graphpipe/{quote(model, safe='')}"),
    ),
)
