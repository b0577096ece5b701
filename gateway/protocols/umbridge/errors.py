"""Converts UM-Bridge errors (`{"error": {"type", "message"}}` with an HTTP status) to and from Reasons.

`required` and `excerpt` write error messages about JSON members for the other codecs in this folder.

The interface defines four error types: InvalidInput, InvalidOutput, ModelNotFound and UnsupportedFeature. The Python
and C++ clients show any other type unchanged, so the gateway uses additional types for other failures.
"""

from reprlib import Repr

from gateway.core.errors import (
    REASON_HEADER,
    REASONS,
    DecodeError,
    GatewayError,
    Reason,
    error_fields,
    readable,
    refusal,
)
from gateway.core.json import Json, read, write
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.protocol import Target
from gateway.core.requests import Request

# Every Reason needs a row. If several rows contain the same status and type, the gateway decodes this pair as the
# Reason of the first row.
_STATUS_AND_TYPE: dict[Reason, tuple[int, str]] = {
    Reason.INVALID_INPUT: (400, "InvalidInput"),
    Reason.MODEL_NOT_FOUND: (400, "ModelNotFound"),
    Reason.UNSUPPORTED: (400, "UnsupportedFeature"),
    Reason.INVALID_OUTPUT: (500, "InvalidOutput"),
    Reason.MODEL_ERROR: (500, "ModelError"),
    Reason.TIMEOUT: (504, "Timeout"),
    Reason.UNREACHABLE: (503, "UpstreamUnavailable"),
    Reason.OVERLOADED: (503, "Overloaded"),
    Reason.RATE_LIMITED: (429, "RateLimited"),
    Reason.TOO_LARGE: (413, "InvalidInput"),
    Reason.UNAUTHENTICATED: (401, "Unauthenticated"),
    Reason.PERMISSION_DENIED: (403, "PermissionDenied"),
    Reason.CANCELLED: (499, "Cancelled"),
    Reason.PATH_NOT_FOUND: (404, "UnsupportedFeature"),
    Reason.METHOD_NOT_ALLOWED: (405, "UnsupportedFeature"),
    Reason.REQUEST_TIMEOUT: (408, "Timeout"),
    Reason.LENGTH_REQUIRED: (411, "InvalidInput"),
    Reason.UNSUPPORTED_MEDIA_TYPE: (415, "InvalidInput"),
    Reason.UNSUPPORTED_ENCODING: (415, "InvalidInput"),
    Reason.HEADERS_TOO_LARGE: (431, "InvalidInput"),
    Reason.VERSION_NOT_SUPPORTED: (505, "UnsupportedFeature"),
    Reason.FAILED_PRECONDITION: (400, "InvalidInput"),
    Reason.OUT_OF_RANGE: (400, "InvalidInput"),
    Reason.ALREADY_EXISTS: (400, "InvalidInput"),
    Reason.NOT_READY: (503, "UpstreamUnavailable"),
    Reason.CIRCUIT_OPEN: (503, "UpstreamUnavailable"),
    Reason.ABORTED: (500, "ModelError"),
    Reason.DATA_LOSS: (500, "ModelError"),
    Reason.UNKNOWN: (500, "ModelError"),
    Reason.INTERNAL: (500, "ModelError"),
}
TYPES = tuple(dict.fromkeys(type_ for _, type_ in _STATUS_AND_TYPE.values()))
"""The error types that clients receive."""
_BY_STATUS_AND_TYPE = {pair: reason for reason, pair in reversed(_STATUS_AND_TYPE.items())}
_BY_TYPE = {type_: reason for reason, (_, type_) in reversed(_STATUS_AND_TYPE.items())}
_BY_STATUS = {
    400: Reason.INVALID_INPUT,
    401: Reason.UNAUTHENTICATED,
    403: Reason.PERMISSION_DENIED,
    # Every UM-Bridge server has all paths, so these statuses come from a different server or an older version.
    404: Reason.UNSUPPORTED,
    405: Reason.UNSUPPORTED,
    413: Reason.TOO_LARGE,
    429: Reason.OVERLOADED,
    501: Reason.UNSUPPORTED,
    # The statuses 502 to 504 come from proxies between the gateway and the servers.
    502: Reason.UNREACHABLE,
    503: Reason.UNREACHABLE,
    504: Reason.TIMEOUT,
}


_NOTHING_SAID = "Server got itself in trouble"
"""The end of the body that the Python server (aiohttp) sends instead of the message of an exception in the model."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the HTTP response that reports `error` to a client."""
    status, type_ = _STATUS_AND_TYPE[error.reason]
    # orjson rejects lone surrogates, which a client's model name can contain
    text = error.message.encode("utf-8", "replace").decode()
    body = write({"error": {"type": type_, "message": text}})
    headers = (*JSON_HEADERS.raw, *error_fields(error))
    return Message(headers=Headers(headers), parts=(body,), status=status)


def decode_error(error: Json, message: Message) -> GatewayError:
    """Return the GatewayError for a response's `error` member, which is an object or a string. The message keeps an
    unknown type, such as Julia's InvalidGradient."""
    type_, text = _type_and_text(error)
    if type_ and type_ not in _BY_TYPE:
        text = f"{type_}: {text}"
    return refusal(_reason(message, type_), text)


def decode_error_reply(message: Message, target: Target) -> GatewayError:
    """Return the GatewayError for a response whose HTTP status is not 2xx.

    If the model raises an exception, the response is not JSON. The Python server sends 500 and plain text. The C++
    server sends 500, an empty body, and the message in the header EXCEPTION_WHAT."""
    try:
        body = read(message.body, {}, values=target.limits.json_values, literals=True)
    except DecodeError:
        body = {}
    if "error" in body:
        return decode_error(body["error"], message)
    text = message.headers.get("exception_what") or readable(bytes(message.body).decode("utf-8", "replace")).strip()
    if text.endswith(_NOTHING_SAID):
        text = f"the server's error is only '{_NOTHING_SAID}'; read the exception in the server's output"
    return refusal(_reason(message, ""), text or f"HTTP status {message.status} with an empty body")


def _type_and_text(error: Json) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "", str(error)
    return str(error.get("type", "")), str(error.get("message", ""))


def _reason(message: Message, type_: str) -> Reason:
    """Return the Reason of an error response.

    The first match in this order counts: the header of another gateway, the status and type, the type, the status."""
    return (
        REASONS.get(message.headers.get(REASON_HEADER))
        or _BY_STATUS_AND_TYPE.get((message.status, type_))
        or _BY_TYPE.get(type_)
        or _BY_STATUS.get(message.status)
        or (Reason.MODEL_ERROR if message.status >= 500 else Reason.INVALID_OUTPUT)
    )


def required(body: dict[str, Json], key: str, role: str) -> Json:
    """Return the value of `key`. `role` (`request` or `reply`) is the word for `body` in the error message.

    Raises:
        DecodeError: `key` is missing. The message lists the keys that exist.
    """
    if key not in body:
        raise DecodeError(f'no "{key}" in the {role}; it has {", ".join(map(excerpt, body)) or "no keys"}')
    return body[key]


_short = Repr()
_short.maxstring = _short.maxother = 60
excerpt = _short.repr
"""Return a value in Python's notation, shortened for an error message. The middle of long and deep values is cut
out."""
