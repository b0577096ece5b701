"""Converts grps messages over gRPC to canonical Requests, and Answers to responses: the gateway is the server of its
clients. The package's Protocol refers to these functions."""

from gateway.core.errors import GatewayError, error_fields
from gateway.core.messages import NO_HEADERS, Headers, Message, reply
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.grps import schema, server
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import GRPC_SERVICE

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


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the message that reports `error`, even if the client's message was not a GrpsMessage.

    Every grps client reads the message of a successful call, and treats a failed call as a failed connection."""
    return Message(headers=Headers(error_fields(error)), parts=write_message(failure(error)))
