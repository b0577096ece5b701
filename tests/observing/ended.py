"""How requests of tests end."""

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.record import Record


def ended(record: Record, seconds: float, *, failed: bool = False, rejected: bool = False) -> Record:
    """`record` after so many seconds: by an error of the server, or of the caller, or as a success."""
    if failed:
        record.failed(GatewayError(Status.UNAVAILABLE, Reason.UNREACHABLE, "gone"))
    if rejected:
        record.failed(GatewayError(Status.INVALID_ARGUMENT, Reason.INVALID_INPUT, "no such input"))
    record.ended = record.received + seconds
    return record
