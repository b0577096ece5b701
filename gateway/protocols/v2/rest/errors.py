"""Reads and writes V2 REST errors, which consist of a status and `{"error": text}`.

A header contains the error's Reason, which therefore survives a chain of gateways.
"""

from gateway.core import http_status, json
from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, error_fields, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.requests import Request
from gateway.core.server_sent_events import EventCutter
from gateway.protocols.v2.rest.messages import JsonObject

_MAX_TEXT = 8192
"""Maximum length of a backend's error message, in characters."""

_REASON = "gateway_reason"
"""The member that contains the Reason in an error event."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response that reports `error` to the client. In a stream, the response is an event."""
    status = http_status.number(error)
    headers = Headers((*JSON_HEADERS.raw, *error_fields(error)))
    document: JsonObject = {"error": error.message.encode("utf-8", "replace").decode()}
    if request and request.operation is Operation.MODEL_READY:
        # "a 4xx status code indicates false", even if the gateway cannot query the backend
        status = 400 if status >= 500 else status
        document = {"name": request.model, "ready": False, **document}
    if request and request.operation is Operation.STREAM and not request.schemaless:
        # after the first event, the Reason cannot be sent in a header; only gateways read this member
        document[_REASON] = error.reason.value
    return Message(headers=headers, parts=(json.write(document),), status=status)


def decode_error(reply: Message, request: Request) -> GatewayError:
    """Return the error in a backend's 4xx or 5xx response."""
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or _reason_of_status(reply.status, request)
    return refusal(reason, _error_text(reply) or f"status {reply.status} without a body")


def denies_readiness(reply: Message) -> bool:
    """Return True if an error response to a health request means "not ready".

    An error response from another gateway can also mean that the other gateway could not query its backend."""
    reason = REASONS.get(reply.headers.get(REASON_HEADER))
    return 400 <= reply.status < 500 and reason in (None, Reason.MODEL_NOT_FOUND)


def decode_event_error(reply: Message) -> GatewayError | None:
    """Return the error in an event `{"error": text}`, or None for any other event. Only gateways add a Reason."""
    try:
        document = json.read(reply.body, {}, values=1000, literals=False)
    except DecodeError:
        return None
    text, reason = document.get("error"), document.get(_REASON)
    if not isinstance(text, str):
        return None
    return refusal(REASONS.get(str(reason), Reason.MODEL_ERROR), text[:_MAX_TEXT] or "an error without a text")


def _reason_of_status(status: int, request: Request) -> Reason:
    if status in (404, 405) and request.operation is Operation.STREAM:
        return Reason.UNSUPPORTED  # no streams; the bridge then tries infer, which detects unknown models
    if status == 404 and request.operation in SERVER_OPERATIONS:
        return Reason.UNSUPPORTED  # KServe has no repository index
    return REASONS_BY_NUMBER.get(status, Reason.MODEL_ERROR)


def _error_text(reply: Message) -> str:
    """Return the text in `{"error": text}` or in FastAPI's `{"detail": ...}`, or else the entire body, because MLServer
    reports crashes as plain text."""
    body = _first_event(reply.headers, reply.body)
    plain = bytes(memoryview(body)[:_MAX_TEXT]).decode("utf-8", "replace").strip()
    try:
        document = json.read(body, {}, values=1000, literals=True)
    except DecodeError:
        return plain
    return _document_text(document)[:_MAX_TEXT] or plain


def _first_event(headers: Headers, body: Buffer) -> Buffer:
    """Return the data of the first event if `body` is a stream of events, or else `body`.

    If a streaming request fails before its first response, Triton sends an error status and one event."""
    if not headers.get("content-type").lower().startswith("text/event-stream"):
        return body
    return next(iter(EventCutter(len(body)).feed(body)), body)


def _document_text(document: JsonObject) -> str:
    error, detail = document.get("error"), document.get("detail")
    if isinstance(detail, list):
        return "; ".join(_detail_text(each) for each in detail if isinstance(each, dict))
    return next((text for text in (error, detail) if isinstance(text, str)), "")


def _detail_text(detail: JsonObject) -> str:
    """Return `{"loc": ["body", "inputs"], "msg": "Field required"}` as `body.inputs: Field required`."""
    location = detail.get("loc")
    place = ".".join(map(str, location)) if isinstance(location, list) else str(location)
    return f"{place}: {detail.get('msg')}"
