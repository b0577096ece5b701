"""The party that caused an error: the caller, if the request is invalid, forbidden or over a limit, or otherwise a
server, which is the model server or the gateway itself. Errors of callers do not depend on the health of servers."""

from functools import cache
from typing import Literal, TypeAlias

from gateway.core.errors import DEFAULT_REASONS, REASONS, Reason, Status

Fault: TypeAlias = Literal["caller", "server"]

CALLER: Fault = "caller"
SERVER: Fault = "server"

_SERVERS = frozenset(
    {
        Reason.OVERLOADED, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.NOT_READY, Reason.CIRCUIT_OPEN, Reason.ABORTED,
        Reason.DATA_LOSS, Reason.UNKNOWN, Reason.INVALID_OUTPUT, Reason.MODEL_ERROR, Reason.INTERNAL,
    }
)  # fmt: skip
"""The reasons that are not the caller's fault. Errors for a client that has left (`cancelled`) are the caller's
fault."""


@cache
def fault(reason: str, status: str = "UNKNOWN") -> Fault:
    """Return CALLER or SERVER for an error with this reason. If the reason is empty, `status` decides."""
    found = REASONS.get(reason) or DEFAULT_REASONS[Status[status]]
    return SERVER if found in _SERVERS else CALLER
