"""Inferences that pass unread between two sides of grps-grpc (`core.protocol.Relay`)."""

from gateway.core.grpc_status import error_of
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.types import NO_HEADERS, Head, Message, Request, call
from gateway.core.types import reply as reply_to_client
from gateway.protocols.grps.descriptors import GRPC_SERVICE
from gateway.protocols.grps.errors import backend_error, is_failure
from gateway.protocols.grps.protobuf.message import read_head
from gateway.protocols.grps.schema import backend_method

_METHODS = {operation: f"/{GRPC_SERVICE}/{backend_method(operation)}" for operation in (INFER, STREAM)}
_OPERATIONS = {method: operation for operation, method in _METHODS.items()}


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """The request of an inference. None if the message must be read: one of another method, a malformed one, and one
    that names no model where the listener has one for it."""
    operation = _OPERATIONS.get(message.pattern)
    if operation is None:
        return None
    found = read_head(message.body)
    if found is None or not found.has_data or (listener.model and not found.model):
        return None
    return Head(operation, found.model)


def request(message: Message, request: Request, target: Target) -> Message:
    """The message to a server. Both methods of an inference take the same."""
    return call(_METHODS[request.operation], message.parts)


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """The reply to the client, or one message of its stream; None if that must be read.

    Raises:
        GatewayError: the error that the reply reports, in its message or by the status of the call.
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
