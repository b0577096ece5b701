"""Reads and writes a request's meta, except sizes: the method that the request calls, its request id and its trace.

The request id and the trace are converted to and from headers of other transports:

    request_id              x-request-id; if it is missing, the digits of log_id
    trace_id, span_id       the lower half of the trace id, and the parent id, of a sampled traceparent

brpc's client writes the ids of its own span into a request, and brpc's server uses these three numbers unchanged for
its own span. Therefore, span_id is the span that the request belongs to, and parent_span_id is the parent of that span.
A server records every request that has a trace_id, so the gateway sends a trace_id only for sampled traces.
"""

from gateway.core.errors import DecodeError, unsupported
from gateway.core.messages import NO_HEADERS, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf
from gateway.core.protobuf.wire import varint
from gateway.core.record import ID_HEADER, Record
from gateway.core.spans import TRACE_PARENT, Span, TraceContext, read_context
from gateway.protocols.grps import schema
from gateway.protocols.grps.brpc.frames import HEADER, read_meta

SERVICE = "grps.protos.v1.GrpsBrpcService"
SERVICES = frozenset({SERVICE, "GrpsBrpcService"})
"""The names of the service. Real servers also accept the name without its package."""

METHODS = {name: operation for name, operation in schema.METHODS.items() if operation is not Operation.STREAM}
"""The operations by method name.

PredictStreaming is missing because grps offers it only over gRPC. PredictByHttp is missing because real servers never
respond to it over baidu_std."""


def read_operation(meta: Protobuf) -> Operation:
    """Return the operation of the method in a request's meta.

    Raises:
        DecodeError: the service or the method is missing.
        GatewayError: UNIMPLEMENTED if the method is unknown, or the meta has no request part.
    """
    if not meta.HasField("request"):
        raise unsupported(f"the frame's meta has no request part, expected one that names {SERVICE}")
    call = meta.request
    if not (call.HasField("service_name") and call.HasField("method_name")):
        raise DecodeError("the request part of the frame's meta lacks service_name or method_name; send both")
    service, method = decode_text(call.service_name), decode_text(call.method_name)
    operation = METHODS.get(method)
    if service not in SERVICES or operation is None:
        expected = f"expected {', '.join(METHODS)} of {SERVICE}"
        raise unsupported(f"Fail to find method={service[:200]}/{method[:200]}; {expected}")
    return operation


def decode_text(text: str | bytes) -> str:
    """Return a string field of the meta as text.

    A proto2 string can be invalid UTF-8. In that case, the protobuf library returns bytes."""
    return text if isinstance(text, str) else text.decode(errors="replace")


# --- Request id and trace ---

_BITS = 0xFFFFFFFFFFFFFFFF
"""A mask, because protobuf writes a negative int64 as the unsigned number with the same bits."""
_LARGEST_LOG_ID = 2**63 - 1

# The keys of RpcRequestMeta's fields.
_LOG_ID = b"\x18"
_TRACE_ID = b"\x20"
_SPAN_ID = b"\x28"
_PARENT_SPAN_ID = b"\x30"
_REQUEST_ID = b"\x3a"

_ID = ID_HEADER.encode()


def read_headers(message: Message) -> Headers:
    """Return the request id and the trace in a client's frame, as headers.

    Return no headers if the meta is unreadable. A 64-bit trace id becomes the lower half of a 128-bit trace id."""
    if len(message.parts[0]) < HEADER.size:
        return NO_HEADERS
    try:
        call = read_meta(message).request
    except DecodeError:
        return NO_HEADERS  # the codec reports the error
    raw = []
    given = decode_text(call.request_id) or (str(call.log_id) if call.log_id else "")
    if given:
        raw.append((_ID, given.encode()))
    if call.trace_id and call.span_id:
        raw.append((TRACE_PARENT, b"00-%032x-%016x-01" % (call.trace_id & _BITS, call.span_id & _BITS)))
    return Headers(tuple(raw)) if raw else NO_HEADERS


def request_fields(record: Record, span: Span | None) -> bytes:
    """Return the meta fields for a backend request in `span`, in ascending field order. Their values come from the
    span's record. If the request id is a number within the range of log_id, the function also writes it to log_id,
    because brpc's servers log that field."""
    identifier = record.id if record.telling.forwards else ""
    fields = b""
    if identifier.isdecimal() and str(number := int(identifier)) == identifier and number <= _LARGEST_LOG_ID:
        fields = _LOG_ID + varint(number)
    fields += _trace_fields(record, span)
    if identifier:
        fields += _REQUEST_ID + varint(len(identifier)) + identifier.encode()
    return fields


def _trace_fields(record: Record, span: Span | None) -> bytes:
    if isinstance(record.context, TraceContext):
        context, above = record.context, record.context.id
        own = above if span is None else span.id
    elif record.context is None and record.traceparent and record.telling.forwards:
        # The gateway does not trace, so it forwards the client's own span, as it does over HTTP.
        found = read_context(record.traceparent, (), 0)
        if not isinstance(found, TraceContext):
            return b""
        context, own, above = found, found.parent, 0
    else:
        return b""
    if not context.is_sampled or not context.trace & _BITS:
        return b""
    fields = _TRACE_ID + varint(context.trace & _BITS) + _SPAN_ID + varint(own)
    return fields + _PARENT_SPAN_ID + varint(above) if above not in (0, own) else fields
