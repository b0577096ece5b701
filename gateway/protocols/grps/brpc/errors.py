"""The errors of baidu_std's frames, to and from Status and Reason: those that are told before a GrpsMessage is read.
What goes wrong later is told inside one, in a frame without an error."""

import re

from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.types import NO_HEADERS, Headers, Message
from gateway.protobuf.schema import Protobuf
from gateway.protobuf.wire import varint
from gateway.protocols.grps.brpc.frames import HEADER, SERVICES, RpcMeta, correlation_id, frame, head, meta_of

ENOSERVICE, ENOMETHOD, EREQUEST, ERPCAUTH, ERPCTIMEDOUT, EOVERCROWDED = 1001, 1002, 1003, 1004, 1008, 1011
EINTERNAL, ELOGOFF, ELIMIT, ECANCELED = 2001, 2003, 2004, 125
"""The numbers of brpc; the last one is of errno."""

_NUMBERS: dict[Status, int] = {
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

_LOGOFF = varint(ELOGOFF)
_PREFIX = re.compile(r"(\[[^\]]*\])*\[E\d+\]\s*")
"""`[127.0.0.1:8000][E1002]`: the server's address, and the number once more."""


def encode(error: GatewayError, message: Message) -> Message:
    """The frame that tells `error`, about a message of which only a part may be there, or be what it should."""
    asked = _meta(message)
    number = _number(error, asked)
    meta = RpcMeta(user_fields={REASON_HEADER: error.reason.value})
    meta.response.error_code = number
    meta.response.error_text = f"[E{number}]{error.message.encode(errors='replace').decode()}"
    return frame(meta.SerializeToString() + correlation_id(asked.correlation_id))


def _meta(message: Message) -> Protobuf:
    header, _ = message.parts
    if len(header) < HEADER.size:
        return RpcMeta()
    try:
        return meta_of(message)
    except DecodeError:
        return RpcMeta()


def _number(error: GatewayError, asked: Protobuf) -> int:
    if error.reason is Reason.UNSUPPORTED and _names_no_service(asked):
        return ENOSERVICE
    if error.reason is Reason.OVERLOADED:
        return ELIMIT
    return _NUMBERS.get(error.status, EINTERNAL)


def _names_no_service(asked: Protobuf) -> bool:
    """brpc's server looks a name without a dot up as a service's; of any other it says that there is no such method."""
    name = as_text(asked.request.service_name)
    return "." not in name and name not in SERVICES


def told(meta: Protobuf) -> GatewayError:
    """The error that a server's frame tells."""
    number, text = meta.response.error_code, as_text(meta.response.error_text)
    text = _PREFIX.sub("", text, count=1)
    reason = REASONS.get(headers(meta).get(REASON_HEADER)) or _REASONS.get(number, Reason.MODEL_ERROR)
    return refusal(reason, text or f"the server answered with brpc's error {number}, without a text")


def stopping(message: Message) -> GatewayError | None:
    """The error of a reply that says ELOGOFF: brpc's server answers so, while it stops, what it has not begun."""
    header, body = message.parts
    if _LOGOFF not in bytes(body[: head(header)]):
        return None  # nearly always, and without a look at the rest of the meta
    meta = meta_of(message)
    return told(meta) if meta.response.error_code == ELOGOFF else None


def headers(meta: Protobuf) -> Headers:
    """Of a reply's `user_fields`, which newer versions of brpc have, the Reason."""
    reason = meta.user_fields.get(REASON_HEADER)
    return Headers([(REASON_HEADER.encode(), as_text(reason).encode())]) if reason else NO_HEADERS


def as_text(text: str | bytes) -> str:
    """A string of proto2, which need not be UTF-8."""
    return text if isinstance(text, str) else text.decode(errors="replace")
