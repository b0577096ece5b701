"""grps over gRPC, client side."""

from gateway.core.messages import NO_HEADERS, Message, reply
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.grps import schema, server
from gateway.protocols.grps.descriptors import GRPC_SERVICE
from gateway.protocols.grps.protobuf.message import read_message, write_message

_OPERATIONS = {f"/{GRPC_SERVICE}/{name}": operation for name, operation in schema.METHODS.items()}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a client's message.

    Raises:
        DecodeError: the message is not a GrpsMessage, or is a GrpsMessage without valid data.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit.
    """
    grps = read_message(message.body, listener.limits.message)
    return server.decode_request(grps, _OPERATIONS[message.pattern], message, listener.model)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a request that `decode_request` returned, or one message of a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT if the response cannot represent an output (the message says which).
    """
    return reply(NO_HEADERS, write_message(server.encode_response(answer, request, translate)))
