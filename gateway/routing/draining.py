"""A drained endpoint gets no new calls, so its server can be maintained, until an operator undoes the drain.

| state | meaning |
|---|---|
| serving | it gets calls |
| draining | it gets no new calls; calls in flight continue, and for a limited time also sequences with state on it |
| drained | it has no calls or sequences left: its server can be stopped |

If models are loaded on demand, other endpoints first load its models. Until that is done, the endpoint gets calls.

A drain applies to all backends that share the endpoint, and a configuration reload keeps it. An endpoint that leaves
the configuration, or that discovery no longer finds, serves again when it returns.
"""

import asyncio
from datetime import UTC, datetime
from enum import Enum


class DrainState(Enum):
    """The values are the words that `/status` uses."""

    DRAINING = "draining"
    DRAINED = "drained"


class Drain:
    """The drain of one endpoint, which gets no new calls until an operator undoes the drain. Its sequences can continue
    there for `seconds`."""

    __slots__ = ("_ends", "failed_moves", "is_moving", "since", "state")

    def __init__(self, seconds: float, *, is_moving: bool = False) -> None:
        self.since = datetime.now(UTC)
        self.state = DrainState.DRAINING
        """DRAINED is set by the code that waits for the end of the calls."""
        self.is_moving = is_moving
        """True while its models are being loaded on other endpoints."""
        self.failed_moves: tuple[str, ...] = ()
        """The models that other endpoints could not load, with the reasons."""
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def seconds_left(self) -> float:
        """The number of seconds for which sequences can still continue at the endpoint."""
        return max(0.0, self._ends - asyncio.get_running_loop().time())
