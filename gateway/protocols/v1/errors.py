"""Reads and writes V1 errors: an HTTP status and `{"error": text}`, with the layout and the statuses of each server
type.

The header `gateway-reason` contains the Reason, which therefore survives a chain of gateways.
"""

import re

from gateway.core import http_status, json
from gateway.core.errors import REASON_HEADER, REASONS, DecodeError, GatewayError, Reason, error_fields, refusal
from gateway.core.http_status import REASONS_BY_NUMBER
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.requests import Request
from gateway.protocols.v1.parameters import BodyMessage
from gateway.protocols.v1.schema import TENSORFLOW

_MAX_TEXT = 8192
_NO_SUCH_PATH = frozenset({Reason.PATH_NOT_FOUND, Reason.METHOD_NOT_ALLOWED})
_NOT_FOUND = "Not Found"
"""The message for an unknown path in FastAPI, on which KServe is built."""

_REASONS = {**REASONS_BY_NUMBER, 409: Reason.ABORTED}
_OF_A_MODEL = re.compile(r"model|servable", re.IGNORECASE)
"""Words in the messages of KServe, TensorFlow Serving, TorchServe and OpenVINO about a missing model."""

_NOT_READY = " is not ready."
"""The end of KServe's error message for a model that is not loaded."""


def encode_error(flavor: str, error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response with `error` in the layout of `flavor`. If the model rejects rows that arrived as JSON texts,
    the message also explains why the rows are not a tensor."""
    origin = request.origin if request is not None else None
    tensor_error = (
        origin.tensor_error if isinstance(origin, BodyMessage) and error.reason is Reason.INVALID_INPUT else ""
    )
    message_text = f"{error.message} ({tensor_error})" if tensor_error else error.message
    text = message_text.encode("utf-8", "replace").decode()
    write = _as_tensorflow if flavor == TENSORFLOW else _as_kserve
    status, body = write(error, text, message)
    headers = Headers((*JSON_HEADERS.raw, *error_fields(error)))
    return Message(headers=headers, parts=(body,), status=status)


def _as_kserve(error: GatewayError, text: str, message: Message) -> tuple[int, bytes]:
    # FastAPI, on which KServe is built, handles these errors itself and uses its own key
    key = "detail" if error.reason in _NO_SUCH_PATH else "error"
    return http_status.number(error), json.write({key: text})


def _as_tensorflow(error: GatewayError, text: str, message: Message) -> tuple[int, bytes]:
    status = http_status.number_of_status(error.status)  # TensorFlow Serving maps gRPC codes in the usual way
    if error.reason in _NO_SUCH_PATH:
        status, text = 400, f"Malformed request: {message.method} {message.path}"
    return status, b'{\n    "error": %b\n}' % json.write(text)


def decode_error(reply: Message) -> GatewayError:
    """Return the error in a backend's response with status 400 or above. The body can be `{"error": text}`, FastAPI's
    `{"detail": ...}` or plain text."""
    text = _text(reply)
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or _reason(reply.status, text)
    return refusal(reason, text or f"status {reply.status} without a body")


def _reason(status: int, text: str) -> Reason:
    if status == 503 and text.endswith(_NOT_READY):
        return Reason.NOT_READY
    if status == 404 and text == _NOT_FOUND:
        return Reason.UNSUPPORTED  # the path is missing and not the model
    return _REASONS.get(status, Reason.MODEL_ERROR)


def lacks_path(reply: Message, model: str = "") -> bool:
    """Return whether the server does not have the path or the verb.

    If the path is missing, the response comes from a web server or framework, and is a page, a line, or an empty body.
    A handwritten server can also send an error that does not mention a model, such as `{"error": "Not found"}`. If the
    server has the path, its error about a missing model contains a word for models, or the name `model`."""
    if reply.headers.get(REASON_HEADER):
        return False
    if reply.status not in (400, 404):
        return reply.status in (405, 501)
    words = _error_text(reply.body)[:_MAX_TEXT].split()
    about = " ".join([word for word in words if "/v1/models" not in word])
    if _OF_A_MODEL.search(about):
        return False
    if reply.status == 400:
        return about != " ".join(words)  # TensorFlow Serving's error for an unknown path quotes the path
    return not (model and re.search(rf"(?<!\w){re.escape(model)}(?!\w)", about))


def is_unknown_servable(reply: Message, model: str) -> bool:
    """Return True if TensorFlow Serving reports a missing model.

    The message is "Could not find any versions of model x" in responses to status requests, and "Servable not found for
    request: Latest(x)" in other responses."""
    text = _text(reply)
    return reply.status == 404 and text in (
        f"Could not find any versions of model {model}",
        f"Servable not found for request: Latest({model})",
    )


def error_in_success(reply: Message) -> GatewayError | None:
    """Return the error in a response with status 200 if the body is `{"error": text}` instead of a prediction.

    Return None if the response is not an error."""
    text = _error_text(reply.body)
    return refusal(Reason.MODEL_ERROR, text[:_MAX_TEXT]) if text else None


def batcher_error(message: object) -> GatewayError:
    """Return the error that KServe's batcher sends with status 200. `message` is the body of the model server's error
    response."""
    text = str(message)
    return refusal(Reason.MODEL_ERROR, (_error_text(text.encode("utf-8", "replace")) or text)[:_MAX_TEXT])


def _text(reply: Message) -> str:
    plain = bytes(memoryview(reply.body)[:_MAX_TEXT])
    return (_error_text(reply.body) or plain.decode("utf-8", "replace").strip())[:_MAX_TEXT]


def _error_text(body: "bytes | bytearray | memoryview") -> str:
    try:
        document = json.read(body, {}, values=1000, literals=True)
    except DecodeError:
        return ""
    detail = document.get("error", document.get("detail", ""))
    return detail if isinstance(detail, str) else json.write(detail).decode()
