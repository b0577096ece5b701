"""UM-Bridge's errors, `{"error": {"type", "message"}}` with an HTTP status, to and from a Reason.

The four types of the interface are InvalidInput, InvalidOutput, ModelNotFound and UnsupportedFeature. The Python and
the C++ client show any other type as it is, so failures that have none of the four get types of their own.
"""

from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, reason_field, refusal
from gateway.core.protocol import Target
from gateway.core.types import Headers, Message, Request
from gateway.json import Json, read, write

# Of rows with the same status and type the first is the one that they are read as.
_ROWS: dict[Reason, tuple[int, str]] = {
    Reason.INVALID_INPUT: (400, "InvalidInput"),
    Reason.MODEL_NOT_FOUND: (400, "ModelNotFound"),
    Reason.UNSUPPORTED: (400, "UnsupportedFeature"),
    Reason.INVALID_OUTPUT: (500, "InvalidOutput"),
    Reason.MODEL_ERROR: (500, "ModelError"),
    Reason.TIMEOUT: (504, "Timeout"),
    Reason.UNREACHABLE: (503, "UpstreamUnavailable"),
    Reason.OVERLOADED: (503, "Overloaded"),
    Reason.TOO_LARGE: (413, "InvalidInput"),
    Reason.UNAUTHENTICATED: (401, "Unauthenticated"),
    Reason.PERMISSION_DENIED: (403, "PermissionDenied"),
    Reason.CANCELLED: (499, "Cancelled"),
    Reason.PATH_NOT_FOUND: (404, "UnsupportedFeature"),
    Reason.METHOD_NOT_ALLOWED: (405, "UnsupportedFeature"),
    Reason.REQUEST_TIMEOUT: (408, "Timeout"),
    Reason.LENGTH_REQUIRED: (411, "InvalidInput"),
    Reason.UNSUPPORTED_ENCODING: (415, "InvalidInput"),
    Reason.HEADERS_TOO_LARGE: (431, "InvalidInput"),
    Reason.VERSION_NOT_SUPPORTED: (505, "UnsupportedFeature"),
    Reason.FAILED_PRECONDITION: (400, "InvalidInput"),
    Reason.OUT_OF_RANGE: (400, "InvalidInput"),
    Reason.ALREADY_EXISTS: (400, "InvalidInput"),
    Reason.NOT_READY: (503, "UpstreamUnavailable"),
    Reason.ABORTED: (500, "ModelError"),
    Reason.DATA_LOSS: (500, "ModelError"),
    Reason.UNKNOWN: (500, "ModelError"),
    Reason.INTERNAL: (500, "ModelError"),
}
_BY_ROW = {row: reason for reason, row in reversed(_ROWS.items())}
_BY_TYPE = {type_: reason for reason, (_, type_) in reversed(_ROWS.items())}
_BY_STATUS = {
    400: Reason.INVALID_INPUT,
    401: Reason.UNAUTHENTICATED,
    403: Reason.PERMISSION_DENIED,
    # no path of UM-Bridge is unknown to its servers: this one is something else, or an older version
    404: Reason.UNSUPPORTED,
    405: Reason.UNSUPPORTED,
    413: Reason.TOO_LARGE,
    429: Reason.OVERLOADED,
    501: Reason.UNSUPPORTED,
    # of proxies in front of the servers
    502: Reason.UNREACHABLE,
    503: Reason.UNREACHABLE,
    504: Reason.TIMEOUT,
}


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The HTTP reply that tells a client of `error`."""
    status, type_ = _ROWS[error.reason]
    # orjson refuses lone surrogates, which a client may have put into a name
    text = error.message.encode("utf-8", "replace").decode()
    body = write({"error": {"type": type_, "message": text}})
    headers = ((b"content-type", b"application/json"), reason_field(error))
    return Message(headers=Headers(headers), parts=(body,), status=status)


def from_object(error: Json, message: Message) -> GatewayError:
    """The GatewayError of a reply's `error` member: an object, or just a text. A type that is in no table is kept in
    the text (Julia's InvalidGradient, ...)."""
    type_, text = _type_and_text(error)
    if type_ and type_ not in _BY_TYPE:
        text = f"{type_}: {text}"
    return refusal(_reason(message, type_), text)


def from_text(message: Message, target: Target) -> GatewayError:
    """The GatewayError of a reply with an HTTP status that is no success.

    Exceptions in a model are no JSON: the Python server answers 500 with a text, the C++ server 500 with an empty body
    and the text in the header EXCEPTION_WHAT.
    """
    try:
        body = read(message.body, {}, values=target.limits.json_values, literals=True)
    except DecodeError:
        body = {}
    if "error" in body:
        return from_object(body["error"], message)
    text = message.headers.get("exception_what") or bytes(message.body).decode("utf-8", "replace").strip()
    return refusal(_reason(message, ""), text or f"HTTP status {message.status} with an empty body")


def _type_and_text(error: Json) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "", str(error)
    return str(error.get("type", "")), str(error.get("message", ""))


def _reason(message: Message, type_: str) -> Reason:
    """What another gateway said, else by type and status, type, status."""
    return (
        REASONS.get(message.headers.get(REASON_HEADER))
        or _BY_ROW.get((message.status, type_))
        or _BY_TYPE.get(type_)
        or _BY_STATUS.get(message.status)
        or (Reason.MODEL_ERROR if message.status >= 500 else Reason.INVALID_OUTPUT)
    )
