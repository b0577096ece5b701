"""UM-Bridge 1.0: uncertainty quantification's HTTP and JSON, where every model maps vectors to vectors."""

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.examples import curl
from gateway.core.protocol import HttpForm, Models, Protocol, Rows, Servers, Traits, Wire
from gateway.protocols.umbridge.client import decode_response
from gateway.protocols.umbridge.encode_request import encode_request
from gateway.protocols.umbridge.encode_response import encode_response
from gateway.protocols.umbridge.errors import encode_error
from gateway.protocols.umbridge.schema import MODEL_INFO, NAME, NAN, PARTS
from gateway.protocols.umbridge.server import PATTERNS, decode_request

PROTOCOLS = (
    Protocol(
        NAME,
        carrier=HttpForm(),
        patterns=PATTERNS,
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=Traits(
            wire=Wire(
                # integers of 64 bits are written whole; BOOL as 1 and 0
                datatypes=NUMBERS | {Datatype.BOOL},
                untyped=True,
                unnamed=True,
                selects=False,
                rows=Rows.ONE,
                points=True,
                derivatives=True,
                nan=NAN,
            ),
            models=Models(
                metadata_parts=PARTS,
                tells_names=False,
                operations_part=MODEL_INFO,
                platform=NAME,
            ),
            servers=Servers(
                # Both servers compute one call at a time by default, and go on with one that its client gave up.
                max_in_flight=1,
                # An idle connection keeps one of the C++ server's 8 threads for 5 s, and replies on a connection that
                # was kept come 40 ms late.
                connection_per_call=True,
                runs_to_the_end=True,
            ),
        ),
        example=lambda address, model, version: curl(f"http://{address}/InputSizes", {"name": model}),
    ),
)
