"""Reads and writes TensorFlow Serving errors: gRPC status codes with messages that clients recognize.

The trailing metadata contains the Reason, which therefore survives a chain of gateways.
"""

from gateway.core.errors import GatewayError, Reason, error_fields, refusal
from gateway.core.grpc_status import error_of
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request

_MAX_TEXT = 1024
_TRUNCATED = "...TRUNCATED"
"""The end of a shortened message."""

_NO_VERSIONS = "Could not find any versions of model "
_NO_SERVABLE = "Servable not found for request: "


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response that reports `error`. For a missing model, the message consists of a real server's message
    and the gateway's own message."""
    text = error.message
    if error.reason is Reason.MODEL_NOT_FOUND and request is not None:
        text = _unknown_model(request, text)
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT] + _TRUNCATED
    body = text.encode("utf-8", "replace")
    return Message(headers=Headers(error_fields(error)), parts=(body,), status=error.status)


def _unknown_model(request: Request, text: str) -> str:
    known = _words(request)
    return known if text == known else f"{known} ({text})"


def _words(request: Request) -> str:
    """Return a real server's message for a missing model."""
    model, version = request.model, request.version
    if request.operation is Operation.MODEL_READY:
        return f"Could not find version {version} of model {model}" if version else f"{_NO_VERSIONS}{model}"
    return f"{_NO_SERVABLE}Specific({model}, {version})" if version else f"{_NO_SERVABLE}Latest({model})"


def decode_error(reply: Message, request: Request) -> GatewayError:
    """Return the error in a response to `request`. If another gateway sent the error, the function removes the real
    server's message that precedes the other gateway's own message."""
    error = error_of(reply)
    known = f"{_words(request)} ("
    if error.reason is Reason.MODEL_NOT_FOUND and error.message.startswith(known) and error.message.endswith(")"):
        return refusal(error.reason, error.message[len(known) : -1])
    return error


def is_unknown_servable(reply: Message, model: str) -> bool:
    """Return whether a server reports a missing model with TensorFlow Serving's message."""
    text = bytes(reply.body[:_MAX_TEXT]).decode("utf-8", "replace")
    known = (f"{_NO_VERSIONS}{model}", f"{_NO_SERVABLE}Latest({model})")
    return reply.status == Reason.MODEL_NOT_FOUND.status and text.startswith(known)
