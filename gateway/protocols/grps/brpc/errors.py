"""Reads and writes errors of grps over brpc, which are in the GrpsMessage of a response, or in the meta of its frame as
a brpc error number.

If an error occurs before the gateway reads a GrpsMessage, it reports the error to the client in the meta.
"""

import re

from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.messages import NO_HEADERS, Headers, Message
from gateway.core.protobuf.schema import Protobuf
from gateway.core.protobuf.wire import varint
from gateway.core.protocol import DEFAULT_LIMITS
from gateway.core.requests import Request
from gateway.protocols.grps.brpc.frames import (
    HEADER,
    correlation_field,
    is_whole,
    meta_size,
    read_frame,
    read_meta,
    write_frame,
)
from gateway.protocols.grps.brpc.meta import SERVICES, decode_text, read_operation
from gateway.protocols.grps.brpc.payload import check_payload, decompressed, is_compressed
from gateway.protocols.grps.brpc.server import SUCCESS, correlation_of
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.protobuf.message import write_message
from gateway.protocols.grps.schema import RpcMeta

# `src/brpc/errno.proto`, and ECANCELED of errno.h
ENOSERVICE, ENOMETHOD, EREQUEST, ERPCAUTH, ERPCTIMEDOUT, EOVERCROWDED = 1001, 1002, 1003, 1004, 1008, 1011
EINTERNAL, ELOGOFF, ELIMIT = 2001, 2003, 2004
ECANCELED = 125

_CODES: dict[Status, int] = {
    Status.INVALID_ARGUMENT: EREQUEST,
    Status.OUT_OF_RANGE: EREQUEST,
    Status.FAILED_PRECONDITION: EREQUEST,
    Status.NOT_FOUND: ENOMETHOD,
    Status.UNIMPLEMENTED: ENOMETHOD,
    Status.UNAUTHENTICATED: ERPCAUTH,
    Status.PERMISSION_DENIED: ERPCAUTH,
    Status.RESOURCE_EXHAUSTED: EREQUEST,
    Status.DEADLINE_EXCEEDED: ERPCTIMEDOUT,
    Status.UNAVAILABLE: ELOGOFF,
    Status.CANCELLED: ECANCELED,
}

_REASONS: dict[int, Reason] = {
    ENOSERVICE: Reason.UNSUPPORTED,
    ENOMETHOD: Reason.UNSUPPORTED,
    EREQUEST: Reason.INVALID_INPUT,
    ERPCAUTH: Reason.UNAUTHENTICATED,
    ERPCTIMEDOUT: Reason.TIMEOUT,
    EOVERCROWDED: Reason.OVERLOADED,
    EINTERNAL: Reason.MODEL_ERROR,
    ELOGOFF: Reason.UNREACHABLE,
    ELIMIT: Reason.OVERLOADED,
    ECANCELED: Reason.CANCELLED,
}


# --- To clients ---

# Errors that the gateway always reports in the meta, without reading the message. NOT_READY means that the listener is
# stopping. In this state, brpc's own server sends ELOGOFF, and its clients retry on another server. The other errors
# mean that the gateway is overloaded or the client is not authenticated.
_OF_THE_LISTENER = (Reason.NOT_READY, Reason.OVERLOADED, Reason.UNAUTHENTICATED)


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response that reports `error`.

    The response reports the error in a GrpsMessage if the client's message was readable, or else in the meta."""
    if request is None and error.reason in _OF_THE_LISTENER:
        return _in_meta(error, message)
    correlation = _correlation_if_readable(message) if request is None else correlation_of(request)
    if correlation is None:
        return _in_meta(error, message)
    meta = SUCCESS + RpcMeta(user_fields={REASON_HEADER: error.reason.value}).SerializeToString()
    return write_frame(meta + correlation, write_message(failure(error)))


def _correlation_if_readable(message: Message) -> bytes | None:
    """Return the correlation field for the response to a frame whose payload is a GrpsMessage.

    Return None for any other frame. If the frame contains a GrpsMessage, the error concerns the content of the
    message."""
    if not is_whole(message) or is_compressed(message):
        return None
    try:
        frame = decompressed(message, read_frame(message), DEFAULT_LIMITS)
        read_operation(frame.meta)
        check_payload(frame, DEFAULT_LIMITS)
    except (DecodeError, GatewayError):
        return None
    return correlation_field(frame.meta.correlation_id)


def _in_meta(error: GatewayError, message: Message) -> Message:
    """Return the frame with `error` in its meta. `message` can be incomplete or invalid."""
    asked = _meta_if_readable(message)
    code = _code(error, asked)
    meta = RpcMeta(user_fields={REASON_HEADER: error.reason.value})
    meta.response.error_code = code
    meta.response.error_text = f"[E{code}]{error.message.encode(errors='replace').decode()}"
    return write_frame(meta.SerializeToString() + correlation_field(asked.correlation_id))


def _meta_if_readable(message: Message) -> Protobuf:
    header, _ = message.parts
    if len(header) < HEADER.size:
        return RpcMeta()
    try:
        return read_meta(message)
    except DecodeError:
        return RpcMeta()


def _code(error: GatewayError, asked: Protobuf) -> int:
    if error.reason is Reason.UNSUPPORTED and _is_unknown_service(asked):
        return ENOSERVICE
    if error.reason in (Reason.OVERLOADED, Reason.RATE_LIMITED):
        return ELIMIT
    return _CODES.get(error.status, EINTERNAL)


def _is_unknown_service(asked: Protobuf) -> bool:
    """Return whether a request calls an unknown service. brpc's server sends ENOSERVICE only if the service name
    contains no dot; for any other name, it sends ENOMETHOD."""
    name = decode_text(asked.request.service_name)
    return "." not in name and name not in SERVICES


# --- From backends ---

_LOGOFF_VARINT = varint(ELOGOFF)
_PREFIX = re.compile(r"(\[[^\]]*\])*\[E\d+\]\s*")
"""The prefix of a server's error message, such as `[127.0.0.1:8000][E1002]`.

The prefix consists of the server's address and the error number."""


def backend_error(meta: Protobuf) -> GatewayError:
    """Return the error in the meta of a backend's response."""
    code, text = meta.response.error_code, decode_text(meta.response.error_text)
    text = _PREFIX.sub("", text, count=1)
    reason = REASONS.get(reason_headers(meta).get(REASON_HEADER)) or _REASONS.get(code, Reason.MODEL_ERROR)
    return refusal(reason, text or f"the server answered with brpc's error {code}, without a text")


def stopping_error(message: Message) -> GatewayError | None:
    """Return the error in a response with ELOGOFF, or None for other responses. A stopping brpc server sends ELOGOFF
    for requests that it has not started."""
    header, body = message.parts
    if _LOGOFF_VARINT not in bytes(body[: meta_size(header)]):
        return None  # the usual case: the meta is not parsed
    meta = read_meta(message)
    return backend_error(meta) if meta.response.error_code == ELOGOFF else None


def reason_headers(meta: Protobuf) -> Headers:
    """Return the Reason that another gateway wrote to `user_fields`, as the header that other transports use."""
    reason = meta.user_fields.get(REASON_HEADER)
    return Headers([(REASON_HEADER.encode(), decode_text(reason).encode())]) if reason else NO_HEADERS
