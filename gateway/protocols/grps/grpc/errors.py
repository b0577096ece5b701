"""Errors of grps over gRPC: messages of calls that succeed. Calls can fail only on the upstream side."""

from gateway.core.errors import GatewayError, error_fields
from gateway.core.messages import Headers, Message
from gateway.core.requests import Request
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.protobuf.message import write_message


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the message that reports `error`, even if the client's message was not a GrpsMessage.

    Every grps client reads the message, and treats a failed call as a failed connection."""
    return Message(headers=Headers(error_fields(error)), parts=write_message(failure(error)))
