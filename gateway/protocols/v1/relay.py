"""Relays calls from a V1 client to a V1 server without decoding them (`core.protocol.Relay`), for each server type of
the listener.

The path contains the model name, so the router does not need the body. KServe and TensorFlow Serving use the same JSON
bodies, except for CloudEvents, responses to columns, NaN, and errors from KServe's batcher. The gateway decodes
messages in which these differences matter.
"""

from gateway.core.messages import JSON_HEADERS, Buffer, Message, post
from gateway.core.messages import reply as reply_to_client
from gateway.core.operations import INFER, Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.core.words import has_word
from gateway.protocols.v1.client import decode_response
from gateway.protocols.v1.cloudevents import may_be_event
from gateway.protocols.v1.schema import KSERVE, MODEL_PATHS, asked_version, backend_path

_VERBS = {":predict": INFER, ":explain": Operation.EXPLAIN}
_OPERATIONS: dict[str, Operation] = {
    f"POST {path}{verb}": operation for path in MODEL_PATHS for verb, operation in _VERBS.items()
}
_SUFFIXES = {operation: verb for verb, operation in _VERBS.items()}


# --- requests ---


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of a call, read from its path.

    Return None if the gateway must decode the body because it might be a CloudEvent."""
    operation, body = _OPERATIONS.get(message.pattern), message.body
    if operation is None or not len(body) or may_be_event(message):
        return None
    return Head(operation, message.captures["model"], asked_version(message))


def request(message: Message, request: Request, target: Target) -> Message | None:
    """Return the message for a server that accepts the client's body unchanged.

    Return None for requests with columns to KServe, because KServe's models choose the key of the response.

    Raises:
        GatewayError: the errors of `backend_path`.
    """
    path = backend_path(request, target, _SUFFIXES[request.operation])
    if target.flavor == KSERVE and has_word(message.body, b'"inputs"', 3):
        return None
    return post(path, JSON_HEADERS, message.parts, request.deadline)


# --- responses ---


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the response for the client, or None if the gateway must decode the response.

    The gateway must decode a response if its content type is not JSON, or if it might be an error from KServe's
    batcher. It must also decode NaN and infinities, because each server type writes them differently.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    if reply.status != 200:
        decode_response(reply, request, target)  # this call raises the error, because every other status is an error
    if not reply.headers.first.get(b"content-type", b"").startswith(b"application/json"):
        return None
    if request.operation is INFER and _must_be_read(reply.body):
        return None
    return reply_to_client(JSON_HEADERS, reply.parts, 200)


def _must_be_read(body: Buffer) -> bool:
    return has_word(body, b"NaN", 0) or has_word(body, b"Infinity", 0) or has_word(body, b'"batchId"', 6)


RELAY = Relay(head, request, reply)
