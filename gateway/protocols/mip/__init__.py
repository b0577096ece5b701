"""MIP, the Model Invocation Protocol of KubeMo: batches of examples in packets, over TCP and unix sockets."""

from gateway.core.frozen import replace
from gateway.core.protocol import Models, Protocol, Rows, Servers, StreamForm, Traits, Wire
from gateway.protocols.mip.client import decode_response, encode_request
from gateway.protocols.mip.errors import encode_error
from gateway.protocols.mip.packets import FRAMING
from gateway.protocols.mip.schema import NAME, NAN, Batch
from gateway.protocols.mip.server import decode_request, encode_response

SPLIT = Traits(
    wire=Wire(
        untyped=True,
        unnamed=True,
        selects=False,
        rows=Rows.FIRST,
        parameters=False,
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
        # The real server accepts one connection, reads one request from it, computes and closes; a call that was given
        # up is computed to its end before the next connection is looked at.
        max_in_flight=1,
        connection_per_call=True,
        one_connection=True,
        runs_to_the_end=True,
    ),
)

PROTOCOLS = (
    Protocol(
        NAME,
        carrier=StreamForm(FRAMING),
        patterns=(),
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=SPLIT,
        batches={
            Batch.SPLIT: SPLIT,
            Batch.WHOLE: replace(SPLIT, wire=replace(SPLIT.wire, rows=Rows.FREE)),
            Batch.EACH: replace(SPLIT, wire=replace(SPLIT.wire, rows=Rows.ONE)),
        },
    ),
)
