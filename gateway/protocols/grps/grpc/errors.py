"""Errors of grps over gRPC: messages of calls that succeed. Only a backend's call can fail as such."""

from gateway.core.errors import GatewayError, error_fields
from gateway.core.types import Headers, Message, Request
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.protobuf.message import write_message


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The message that reports `error`, even if the client's was not a GrpsMessage: every client of grps looks into the
    reply, and takes a failed call for a failed connection."""
    return Message(headers=Headers(error_fields(error)), parts=write_message(failure(error)))
