"""Converts canonical Requests to grps messages over gRPC, and responses to Answers (upstream side)."""

from gateway.core.grpc_status import error_of
from gateway.core.messages import Message, call
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request
from gateway.protocols.grps import client
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import GRPC_SERVICE, backend_method


def encode_request(request: Request, target: Target) -> Message:
    """Return the message of a request to `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if grps does not support the method, or the payload is an ndarray; INVALID_ARGUMENT
            if the message cannot represent a parameter or an input (the message says which).
    """
    path = f"/{GRPC_SERVICE}/{backend_method(request.operation)}"
    return call(path, write_message(client.encode_request(request)))


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`, or one message of a stream.

    Raises:
        DecodeError: the response is not a grps response.
        GatewayError: the error that the response reports, in its message or by the status of the call.
    """
    if reply.status:
        raise error_of(reply)
    grps = read_message(reply.body, target.limits.message)
    return client.decode_response(grps, reply.headers, request)
