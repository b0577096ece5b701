"""UM-Bridge 1.0: uncertainty quantification's HTTP and JSON, where every model maps vectors to vectors."""

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.examples import curl
from gateway.core.protocol import HttpForm, Protocol, Rows, Traits
from gateway.protocols.umbridge.decode_request import PATTERNS, decode_request
from gateway.protocols.umbridge.decode_response import decode_response
from gateway.protocols.umbridge.encode_request import encode_request
from gateway.protocols.umbridge.encode_response import encode_response
from gateway.protocols.umbridge.errors import encode_error
from gateway.protocols.umbridge.words import MODEL_INFO, NAME, NAN, PARTS

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
            # integers of 64 bits are written whole; BOOL as 1 and 0
            datatypes=NUMBERS | {Datatype.BOOL},
            untyped=True,
            positional=True,
            selects=False,
            rows=Rows.ONE,
            points=True,
            derivatives=True,
            metadata_parts=PARTS,
            operations_part=MODEL_INFO,
            platform=NAME,
            nan=NAN,
            # Both servers compute one call at a time by default, and go on with one that its client gave up.
            max_in_flight=1,
            # The C++ server has 8 threads, each kept 5 s by an idle connection, and answers on a kept one 40 ms late.
            connection_per_call=True,
            runs_to_the_end=True,
        ),
        example=lambda address, model, version: curl(f"http://{address}/InputSizes", {"name": model}),
    ),
)
