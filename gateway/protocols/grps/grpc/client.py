"""grps over gRPC, facing backends."""

from gateway.core.grpc_status import error_of
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Request, call
from gateway.protocols.grps import client
from gateway.protocols.grps.descriptors import GRPC_SERVICE
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import backend_method


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, grps has no such method, or the payload is an ndarray; INVALID_ARGUMENT naming a
            parameter or an input that the message cannot carry.
    """
    path = f"/{GRPC_SERVICE}/{backend_method(request.operation)}"
    return call(path, write_message(client.encode_request(request)))


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`, or one message of its stream.

    Raises:
        DecodeError: not a reply of grps.
        GatewayError: the error that the reply reports, in its message or by the status of the call.
    """
    if reply.status:
        raise error_of(reply)
    grps = read_message(reply.body, target.limits.message)
    return client.decode_response(grps, reply.headers, request)
