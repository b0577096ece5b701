"""V2 REST's errors: a status and `{"error": text}`. The Reason travels beside them, so that gateways in a row lose
nothing."""

from gateway import json
from gateway.core import http_status
from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, reason_field, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.operations import SERVER_OPERATIONS, Operation
from gateway.core.types import Headers, Message, Request
from gateway.protocols.v2.rest.events import unwrapped
from gateway.protocols.v2.rest.json_fields import Entry

_MAX_TEXT = 8192

_REASON = "gateway_reason"
"""The member of an error's event that tells its Reason."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`."""
    status = http_status.number(error)
    headers = Headers(((b"content-type", b"application/json"), reason_field(error)))
    document: Entry = {"error": error.message.encode("utf-8", "replace").decode()}
    if request and request.operation is Operation.MODEL_READY:
        # "a 4xx status code indicates false": also where nobody can be asked
        status = 400 if status >= 500 else status
        document = {"name": request.model, "ready": False, **document}
    if request and request.operation is Operation.STREAM and not request.schemaless:
        # behind the first event there are no headers; this is the form that gateways speak among themselves
        document[_REASON] = error.reason.value
    return Message(headers=headers, parts=(json.write(document),), status=status)


def decode_error(reply: Message, request: Request) -> GatewayError:
    """The error that a backend's reply of status 400 or above tells."""
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or _reason(reply.status, request)
    return refusal(reason, _text(reply) or f"status {reply.status} without a body")


def denies_readiness(reply: Message) -> bool:
    """Whether a reply to a question for health says no, and nothing but that: another gateway may tell why."""
    reason = REASONS.get(reply.headers.get(REASON_HEADER))
    return 400 <= reply.status < 500 and reason in (None, Reason.MODEL_NOT_FOUND)


def decode_event_error(reply: Message) -> GatewayError | None:
    """The error that an event tells, `{"error": text}`; None where it is none. Its Reason is a gateway's to tell."""
    try:
        document = json.read(reply.body, {}, values=1000, literals=False)
    except DecodeError:
        return None
    text, reason = document.get("error"), document.get(_REASON)
    if not isinstance(text, str):
        return None
    return refusal(REASONS.get(str(reason), Reason.MODEL_ERROR), text[:_MAX_TEXT] or "an error without a text")


def _reason(status: int, request: Request) -> Reason:
    if status in (404, 405) and request.operation is Operation.STREAM:
        return Reason.UNSUPPORTED  # servers without streams; of an unknown model the plain call tells
    if status == 404 and request.operation in SERVER_OPERATIONS:
        return Reason.UNSUPPORTED  # KServe has no repository index
    return REASONS_BY_NUMBER.get(status, Reason.MODEL_ERROR)


def _text(reply: Message) -> str:
    """`{"error": text}`, FastAPI's `{"detail": ...}`, or the body as it is: MLServer's crashes are plain text."""
    body = unwrapped(reply.headers, reply.body)
    plain = bytes(memoryview(body)[:_MAX_TEXT]).decode("utf-8", "replace").strip()
    try:
        document = json.read(body, {}, values=1000, literals=True)
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
