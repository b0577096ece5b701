"""UM-Bridge 1.0: models for uncertainty quantification over HTTP and JSON. Every model maps vectors to vectors.

Specification: https://um-bridge-benchmarks.readthedocs.io/en/docs/umbridge/lib.html ("Interface"). If the specification
is silent, the code follows the Python and C++ packages.
"""

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.examples import curl
from gateway.core.protocol import ConcurrencyQuery, HttpBinding, Models, Protocol, Rows, Servers, Traits, Wire
from gateway.protocols.umbridge.client import decode_response, encode_request, info, takes_many
from gateway.protocols.umbridge.errors import encode_error
from gateway.protocols.umbridge.relay import RELAY
from gateway.protocols.umbridge.schema import MODEL_INFO, NAME, NAN, PARTS
from gateway.protocols.umbridge.server import PATTERNS, decode_request, encode_response

PROTOCOLS = (
    Protocol(
        NAME,
        binding=HttpBinding(),
        patterns=PATTERNS,
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=Traits(
            wire=Wire(
                # 64-bit integers are written exactly, and BOOL is written as 1 and 0
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
                operations_part=MODEL_INFO,
                platform=NAME,
            ),
            servers=Servers(
                # By default, the Python and C++ servers run one call at a time, and finish it even if the client
                # disconnects.
                max_in_flight=1,
                takes_many=ConcurrencyQuery(info, takes_many),
                # An idle connection occupies one of the C++ server's 8 threads for 5 s, and responses on a reused
                # connection are 40 ms late.
                connection_per_call=True,
                runs_to_the_end=True,
            ),
        ),
        example=lambda address, model, version: curl(f"http://{address}/InputSizes", {"name": model}),
        relay=RELAY,
    ),
)
