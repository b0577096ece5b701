"""Errors of grps over gRPC: messages of calls that succeed. Only a backend's call can fail as such."""

from gateway.core.errors import REASON_HEADER, GatewayError, Reason, error_fields, refusal
from gateway.core.grpc_status import error_of
from gateway.core.types import Headers, Message, Request
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.protobuf.message import write_message


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The message that reports `error`, even if the client's was not a GrpsMessage: every client of grps looks into the
    reply, and takes a failed call for a failed connection."""
    return Message(headers=Headers(error_fields(error)), parts=write_message(failure(error)))


def call_error(reply: Message) -> GatewayError:
    """The error of a backend's call that failed with a gRPC status."""
    error = error_of(reply)
    # RESOURCE_EXHAUSTED from the Python server means too many calls at once; from gRPC itself ("SERVER: Received
    # message larger than max") it means too many bytes. Another gateway says which in its header.
    is_of_gateway = bool(reply.headers.get(REASON_HEADER))
    if error.reason is Reason.TOO_LARGE and "larger than max" not in error.message and not is_of_gateway:
        return refusal(Reason.OVERLOADED, error.message)
    return error
