"""Errors in gRPC replies, shared by the protocols that gRPC carries."""

from gateway.core.errors import DEFAULT_REASONS, REASON_HEADER, REASONS, GatewayError, Status
from gateway.core.types import Message

MAX_ERROR_TEXT = 8192
"""Bytes of an error's text that are read."""

_STATUSES = {status.value: status for status in Status}


def error_of(reply: Message) -> GatewayError:
    """The error in a backend's reply with a status other than 0. The body is its text, a trailer may hold its
    Reason."""
    # gRPC treats a code that the receiver does not know as UNKNOWN
    status = _STATUSES.get(reply.status, Status.UNKNOWN)
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or DEFAULT_REASONS[status]
    text = bytes(reply.body[:MAX_ERROR_TEXT]).decode("utf-8", "replace").strip()
    return GatewayError(status, reason, text or f"status {status.name} without a text")
