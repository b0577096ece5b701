"""Relays inferences from a grps-grpc client to a grps-grpc server without decoding them (`core.protocol.Relay`)."""

from gateway.core.grpc_status import error_of
from gateway.core.messages import NO_HEADERS, Message, call
from gateway.core.messages import reply as reply_to_client
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.protocols.grps.errors import backend_error, is_failure
from gateway.protocols.grps.protobuf.message import read_head
from gateway.protocols.grps.schema import GRPC_SERVICE, backend_method

_METHODS = {operation: f"/{GRPC_SERVICE}/{backend_method(operation)}" for operation in (INFER, STREAM)}
_OPERATIONS = {method: operation for operation, method in _METHODS.items()}


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of an inference.

    Return None if the gateway must decode the message because it is malformed, calls another method, or omits the model
    name for a listener with a default model."""
    operation = _OPERATIONS.get(message.pattern)
    if operation is None:
        return None
    found = read_head(message.body)
    if found is None or not found.has_data or (listener.model and not found.model):
        return None
    return Head(operation, found.model)


def request(message: Message, request: Request, target: Target) -> Message:
    """Return the message for a server. Both inference methods take the same message."""
    return call(_METHODS[request.operation], message.parts)


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the response for the client, or one message of a stream. Return None if the gateway must decode the
    message.

    Raises:
        GatewayError: the error that the response reports, in its message or by the status of the call.
    """
    if reply.status:
        raise error_of(reply)
    found = read_head(reply.body)
    if found is None or (found.status is None and not found.has_data):
        return None
    if found.status is not None and is_failure(found.status):
        raise backend_error(found.status, reply.headers)
    return reply_to_client(NO_HEADERS, reply.parts)


RELAY = Relay(head, request, reply)
