"""Whose fault an error is: the caller's, whose request cannot be answered as it is, or that of a server, which is the
model server or the gateway itself. Errors of callers say nothing about the health of servers."""

from functools import cache

from gateway.core.errors import DEFAULT_REASONS, REASONS, Reason, Status

CALLER, SERVER = "caller", "server"

_SERVERS = frozenset(
    {
        Reason.OVERLOADED, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.NOT_READY, Reason.CIRCUIT_OPEN, Reason.ABORTED,
        Reason.DATA_LOSS, Reason.UNKNOWN, Reason.INVALID_OUTPUT, Reason.MODEL_ERROR, Reason.INTERNAL,
    }
)  # fmt: skip
"""The reasons that are not the caller's; a client that has left (`cancelled`) is a caller, too."""


@cache
def fault(reason: str, status: str = "UNKNOWN") -> str:
    """CALLER or SERVER, for an error with this reason; `status` tells where there is none."""
    found = REASONS.get(reason) or DEFAULT_REASONS[Status[status]]
    return SERVER if found in _SERVERS else CALLER
