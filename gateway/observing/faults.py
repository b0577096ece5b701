"""The party that caused an error. The caller is at fault if the request is invalid, forbidden or over a limit.
Otherwise, a server is at fault: the model server or the gateway itself. Caller errors do not indicate server
problems."""

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
"""The reasons that are not the caller's fault. If the client disconnects (`cancelled`), the caller is at fault."""


@cache
def fault(reason: str, status: str = "UNKNOWN") -> Fault:
    """Return the party at fault for this error reason, CALLER or SERVER. If the reason is empty, use `status`."""
    found = REASONS.get(reason) or DEFAULT_REASONS[Status[status]]
    return SERVER if found in _SERVERS else CALLER
