"""gRPC's status of a reply, shared by the protocols that gRPC carries."""

from gateway.core.errors import DEFAULT_REASONS, REASON_HEADER, REASONS, GatewayError, Status
from gateway.core.types import Message

MAX_ERROR_TEXT = 8192
"""Bytes of a reply's text that are looked at."""

_STATUSES = {status.value: status for status in Status}


def error_of(reply: Message) -> GatewayError:
    """The error that a backend's reply of another status than 0 tells: its text is the body, its Reason a trailer."""
    # gRPC: a code that the receiver does not know is UNKNOWN
    status = _STATUSES.get(reply.status, Status.UNKNOWN)
    reason = REASONS.get(reply.headers.get(REASON_HEADER)) or DEFAULT_REASONS[status]
    text = bytes(reply.body[:MAX_ERROR_TEXT]).decode("utf-8", "replace").strip()
    return GatewayError(status, reason, text or f"status {status.name} without a text")
