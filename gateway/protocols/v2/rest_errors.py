"""V2 REST's errors: a status and `{"error": text}`. The Reason travels beside them, so that gateways in a row lose
nothing."""

from gateway.core import json
from gateway.core.errors import REASONS, DecodeError, GatewayError, Reason, Status, refusal
from gateway.core.operations import SERVER_OPERATIONS
from gateway.core.types import Headers, Message, Request
from gateway.protocols.v2.members import Entry

_BY_REASON = {
    Reason.TOO_LARGE: 413,
    Reason.OVERLOADED: 429,
    Reason.INVALID_OUTPUT: 502,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.REQUEST_TIMEOUT: 408,
    Reason.LENGTH_REQUIRED: 411,
    Reason.UNSUPPORTED_ENCODING: 415,
    Reason.HEADERS_TOO_LARGE: 431,
    Reason.VERSION_NOT_SUPPORTED: 505,
}

_BY_STATUS = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.OUT_OF_RANGE: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.ALREADY_EXISTS: 409,
    Status.ABORTED: 409,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.CANCELLED: 499,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""The rest are 500."""

_REASONS = {
    400: Reason.INVALID_INPUT,
    401: Reason.UNAUTHENTICATED,
    403: Reason.PERMISSION_DENIED,
    404: Reason.MODEL_NOT_FOUND,
    405: Reason.UNSUPPORTED,
    413: Reason.TOO_LARGE,
    422: Reason.INVALID_INPUT,  # the validation of MLServer's and KServe's FastAPI
    429: Reason.OVERLOADED,
    499: Reason.CANCELLED,
    501: Reason.UNSUPPORTED,
    502: Reason.INVALID_OUTPUT,
    503: Reason.UNREACHABLE,
    504: Reason.TIMEOUT,
}
"""Of backends that tell none; MODEL_ERROR for the rest."""

_MAX_TEXT = 8192


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`."""
    status = _BY_REASON.get(error.reason) or _BY_STATUS.get(error.status, 500)
    headers = Headers(((b"content-type", b"application/json"), (b"gateway-reason", error.reason.value.encode())))
    text = error.message.encode("utf-8", "replace").decode()
    return Message(headers=headers, parts=(json.write({"error": text}),), status=status)


def decode_error(reply: Message, request: Request) -> GatewayError:
    """The error that a backend's reply of status 400 or above tells."""
    reason = REASONS.get(reply.headers.get("gateway-reason")) or _reason(reply.status, request)
    return refusal(reason, _text(reply) or f"status {reply.status} without a body")


def _reason(status: int, request: Request) -> Reason:
    if status == 404 and request.operation in SERVER_OPERATIONS:
        return Reason.UNSUPPORTED  # KServe has no repository index
    return _REASONS.get(status, Reason.MODEL_ERROR)


def _text(reply: Message) -> str:
    """`{"error": text}`, FastAPI's `{"detail": ...}`, or the body as it is: MLServer's crashes are plain text."""
    plain = bytes(memoryview(reply.body)[:_MAX_TEXT]).decode("utf-8", "replace").strip()
    try:
        document = json.read(reply.body, {}, values=1000, literals=True)
    except DecodeError:
        return plain
    return _told(document)[:_MAX_TEXT] or plain


def _told(document: Entry) -> str:
    error, detail = document.get("error"), document.get("detail")
    if isinstance(detail, list):
        return "; ".join(_fault(each) for each in detail if isinstance(each, dict))
    return next((text for text in (error, detail) if isinstance(text, str)), "")


def _fault(fault: Entry) -> str:
    """`{"loc": ["body", "inputs"], "msg": "Field required"}` as `body.inputs: Field required`."""
    place = fault.get("loc")
    steps = ".".join(map(str, place)) if isinstance(place, list) else str(place)
    return f"{steps}: {fault.get('msg')}"
