"""MIP, KubeMo's Model Invocation Protocol: batches of examples in packets over TCP and Unix sockets.

MIP supports pings and inferences, but no metadata.

Specification: https://github.com/kubemo/kubemo, section "Protocol" of its README. If the specification is silent, the
code follows kubemo's client and server.
"""

from gateway.core.frozen import replace
from gateway.core.protocol import ConcurrencyQuery, Models, Protocol, Rows, Servers, StreamBinding, Traits, Wire
from gateway.protocols.mip.client import decode_response, encode_request
from gateway.protocols.mip.errors import encode_error
from gateway.protocols.mip.packets import FRAMING, parsed_size, question_of_calls, takes_many
from gateway.protocols.mip.relay import RELAY
from gateway.protocols.mip.schema import NAME, NAN, OWN_TYPE, BatchMode
from gateway.protocols.mip.server import decode_request, encode_response

SPLIT = Traits(
    wire=Wire(
        untyped=True,
        unnamed=True,
        selects=False,
        rows=Rows.FIRST,
        parameters=False,
        own_parameters=frozenset({OWN_TYPE}),
        nan=NAN,
    ),
    models=Models(
        named=False,
        companions=False,
        trusted_metadata=False,
        metadata_parts=(),
        platform=NAME,
    ),
    servers=Servers(
        # kubemo's server accepts one connection, reads one request from it, runs the model, responds and closes the
        # connection. If the client disconnects, the server finishes the call before it accepts the next connection.
        max_in_flight=1,
        takes_many=ConcurrencyQuery(question_of_calls, takes_many),
        connection_per_call=True,
        one_connection=True,
        runs_to_the_end=True,
    ),
)

PROTOCOLS = (
    Protocol(
        NAME,
        binding=StreamBinding(FRAMING),
        patterns=(),
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=SPLIT,
        parsed_size=parsed_size,
        batches={
            BatchMode.SPLIT: SPLIT,
            BatchMode.WHOLE: replace(SPLIT, wire=replace(SPLIT.wire, rows=Rows.FREE)),
            BatchMode.EACH: replace(SPLIT, wire=replace(SPLIT.wire, rows=Rows.ONE)),
        },
        relay=RELAY,
    ),
)
