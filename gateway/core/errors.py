"""The errors that all protocols share: a Status, a Reason, and a message (what is wrong, where, how to fix it).

Only codecs convert a Status and a Reason to a protocol's own error numbers, and back.
"""

import math
from enum import Enum, IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """The class of an error, which is one of gRPC's canonical codes. Every protocol's own error numbers map to these
    codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(Enum):
    """The reason for an error, more precise than its Status. Gateways send the Reason to each other in
    REASON_HEADER."""

    def __new__(cls, text: str, status: Status) -> "Reason":
        member = object.__new__(cls)
        member._value_ = text
        member.status = status
        return member

    status: Status

    INVALID_INPUT = "invalid-input", Status.INVALID_ARGUMENT
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", Status.INVALID_ARGUMENT
    MODEL_NOT_FOUND = "model-not-found", Status.NOT_FOUND
    PATH_NOT_FOUND = "path-not-found", Status.NOT_FOUND
    UNSUPPORTED = "unsupported", Status.UNIMPLEMENTED
    UNAUTHENTICATED = "unauthenticated", Status.UNAUTHENTICATED
    PERMISSION_DENIED = "permission-denied", Status.PERMISSION_DENIED
    TOO_LARGE = "too-large", Status.RESOURCE_EXHAUSTED
    OVERLOADED = "overloaded", Status.RESOURCE_EXHAUSTED
    RATE_LIMITED = "rate-limited", Status.RESOURCE_EXHAUSTED
    """The client sent more requests than its limit allows."""
    TIMEOUT = "timeout", Status.DEADLINE_EXCEEDED
    UNREACHABLE = "unreachable", Status.UNAVAILABLE
    NOT_READY = "not-ready", Status.UNAVAILABLE
    CIRCUIT_OPEN = "circuit-open", Status.UNAVAILABLE
    """The model failed repeatedly, so the gateway sends it no calls for some seconds."""
    CANCELLED = "cancelled", Status.CANCELLED
    FAILED_PRECONDITION = "failed-precondition", Status.FAILED_PRECONDITION
    ALREADY_EXISTS = "already-exists", Status.ALREADY_EXISTS
    ABORTED = "aborted", Status.ABORTED
    OUT_OF_RANGE = "out-of-range", Status.OUT_OF_RANGE
    DATA_LOSS = "data-loss", Status.DATA_LOSS
    UNKNOWN = "unknown", Status.UNKNOWN
    INVALID_OUTPUT = "invalid-output", Status.INTERNAL
    """The backend's response is malformed, or contradicts the model's metadata."""
    MODEL_ERROR = "model-error", Status.INTERNAL
    """The model failed during its computation."""
    INTERNAL = "internal", Status.INTERNAL
    """The gateway itself failed."""

    # The HTTP transport rejects these requests before they reach a codec.
    METHOD_NOT_ALLOWED = "method-not-allowed", Status.UNIMPLEMENTED
    REQUEST_TIMEOUT = "request-timeout", Status.DEADLINE_EXCEEDED
    UNSUPPORTED_ENCODING = "unsupported-encoding", Status.INVALID_ARGUMENT
    HEADERS_TOO_LARGE = "headers-too-large", Status.RESOURCE_EXHAUSTED
    LENGTH_REQUIRED = "length-required", Status.INVALID_ARGUMENT
    VERSION_NOT_SUPPORTED = "version-not-supported", Status.UNIMPLEMENTED


REASON_HEADER = "gateway-reason"
"""The header or metadata key that carries the Reason of an error response between gateways."""

RETRY_HEADER = "retry-after"
"""The header (RFC 9110, section 10.2.3) or metadata key in which an error response states after how many seconds to
retry."""

_LONGEST_DECODE_ERROR = 2000
"""Maximum length of a DecodeError's message, in characters."""

_LONGEST_SECONDS = 9
"""Maximum number of digits in a RETRY_HEADER. Nine digits allow about 30 years."""

REASONS: dict[str, Reason] = {reason.value: reason for reason in Reason}

DEFAULT_REASONS: dict[Status, Reason] = {
    **{reason.status: reason for reason in reversed(Reason)},
    Status.INTERNAL: Reason.MODEL_ERROR,
}
"""The Reason assumed for a Status that arrived without a Reason: MODEL_ERROR for INTERNAL, otherwise the first Reason
with this Status."""


class WrittenError(NamedTuple):
    """An error as a server wrote it: the HTTP status, the media type, the body, and the decoded `message`."""

    status: int
    media_type: bytes
    body: bytes | bytearray | memoryview
    message: str


class GatewayError(Exception):
    """A request failed. The client receives `message`, so it must not contain a traceback or a path on this machine.

    `retry_after` is the number of seconds after which another attempt can succeed, or None if it is unknown."""

    def __init__(self, status: Status, reason: Reason, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.endpoint = ""
        """The address of the endpoint where the call failed; empty if the call did not reach an endpoint.

        The Backend sets this field."""
        self.written: WrittenError | None = None
        """The error as the server wrote it, for a client of the same protocol over HTTP.

        If this field is None, the codec encodes the error."""


class ElementError(GatewayError):
    """A tensor element cannot be encoded, such as NaN in a format without NaN, or bytes that are not text.

    Apart from this element, the protocol can represent the tensor."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.INVALID_ARGUMENT, Reason.INVALID_INPUT, message)


class DecodeError(Exception):
    """The received bytes violate their protocol.

    `exchange.answer` reports this error as the client's error, and `exchange.ask` reports it as the backend's. Long
    messages are shortened, because they can quote many bytes."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text if len(text) <= _LONGEST_DECODE_ERROR else f"{text[:_LONGEST_DECODE_ERROR]}...")


class WrongReplyError(DecodeError):
    """A backend's response belongs to another request.

    The gateway closes the connection, because later responses on it can also belong to other requests."""


class TransportError(GatewayError):
    """An exchange with an endpoint failed.

    - `sent`: True if the endpoint might have started processing the request.
    - `answered`: True if the call failed although the endpoint responded. For example, the endpoint rejected the
      request, or its response exceeded a limit. The gateway does not count this error as a failure of the endpoint.
    - `by_proxy`: True if a proxy in front of the endpoint reported that the endpoint did not respond.
    """

    def __init__(
        self,
        status: Status,
        reason: Reason,
        message: str,
        *,
        sent: bool,
        answered: bool = False,
        by_proxy: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.sent = sent
        self.answered = answered
        self.by_proxy = by_proxy


class DetailedError(TransportError):
    """A TransportError whose `detail` contains server output. Only clients with the permission for full errors receive
    `detail`; all other clients receive the message `brief`."""

    def __init__(self, status: Status, reason: Reason, brief: str, detail: str, *, sent: bool) -> None:
        shown = without_traceback(detail)
        super().__init__(status, reason, f"{brief}; the end of its output: {shown}" if shown else brief, sent=sent)
        self.brief = brief
        self.detail = detail


def reason_field(error: GatewayError) -> tuple[bytes, bytes]:
    """Return the REASON_HEADER of `error`, as name and value."""
    return REASON_HEADER.encode(), error.reason.value.encode()


def error_fields(error: GatewayError) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of a response that reports `error`: REASON_HEADER and, if `retry_after` is set, RETRY_HEADER.
    The value of RETRY_HEADER is in whole seconds, rounded up, and at least 1."""
    if error.retry_after is None:
        return (reason_field(error),)
    return reason_field(error), (RETRY_HEADER.encode(), b"%d" % max(math.ceil(error.retry_after), 1))


def retry_after(text: str) -> float | None:
    """Return the number of seconds in a RETRY_HEADER; None if the value is not a number, such as the date that HTTP
    also allows."""
    return float(text) if text.isdecimal() and len(text) <= _LONGEST_SECONDS else None


def refusal(reason: Reason, message: str, retry_after: float | None = None) -> GatewayError:
    """Return an error with this Reason and its Status."""
    return GatewayError(reason.status, reason, message, retry_after=retry_after)


def invalid_input(message: str) -> GatewayError:
    """Return the error for invalid tensors or parameters from a client."""
    return refusal(Reason.INVALID_INPUT, message)


def invalid_output(message: str) -> GatewayError:
    """Return the error for an invalid response from a backend."""
    return refusal(Reason.INVALID_OUTPUT, message)


def not_found(message: str) -> GatewayError:
    """Return the error for a model or version that does not exist."""
    return refusal(Reason.MODEL_NOT_FOUND, message)


def unsupported(message: str) -> GatewayError:
    """Return the error for an operation that the model or the backend's protocol does not support."""
    return refusal(Reason.UNSUPPORTED, message)


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of `error` and of its causes and contexts.

    A traceback keeps the frames that the error passed through, and these frames keep the request's body. If a frame
    also refers to the error (through a task or a future), this reference cycle keeps the body in memory until the
    garbage collector runs."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            pending += (each.__cause__, each.__context__)


def without_traceback(text: str) -> str:
    """Return a backend's error message for clients. A traceback is reduced to its last line, and Triton's `At:` list is
    removed."""
    # Triton's python backend: "...message: ValueError: why\n\nAt:\n  /models/m/1/model.py(12): execute\n"
    text = text.split("\n\nAt:\n", 1)[0]
    starts = [at for mark in ("Traceback", 'File "') if (at := text.find(mark)) >= 0]
    if not starts:
        return text
    last = text[min(starts) :].rstrip().splitlines()[-1].strip()
    shown = "" if 'File "' in last or "Traceback" in last else last
    return f"{text[: min(starts)].rstrip()} {shown}".strip()


def readable(text: str) -> str:
    """Return the `text` of a response in an unknown format, with non-printable characters (such as the bytes of a
    flatbuffer) replaced by spaces. Line ends and tabs are kept."""
    return "".join(each if each.isprintable() or each in "\n\r\t" else " " for each in text)
