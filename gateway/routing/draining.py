"""The drain of an endpoint for maintenance. A drained endpoint gets no new calls until an operator undoes the drain.

| state | meaning |
|---|---|
| serving | it gets calls |
| draining | it gets no new calls; calls in flight, and sequences with state on it, continue for a limited time |
| drained | it has no calls or sequences left: its server can be stopped |

If models are loaded on demand, other endpoints first load its models. Until then, the endpoint still gets calls.

A drain applies to all backends that share the endpoint, and survives configuration reloads. An endpoint that is removed
from the configuration, or that discovery no longer finds, serves again when it returns.
"""

import asyncio
from datetime import UTC, datetime
from enum import Enum


class DrainState(Enum):
    """The values are the words that `/status` shows."""

    DRAINING = "draining"
    DRAINED = "drained"


class Drain:
    """The drain of one endpoint, which gets no new calls until an operator undoes the drain. Sequences with state on
    the endpoint can continue for `seconds`."""

    __slots__ = ("_ends", "failed_moves", "is_moving", "since", "state")

    def __init__(self, seconds: float, *, is_moving: bool = False) -> None:
        self.since = datetime.now(UTC)
        self.state = DrainState.DRAINING
        """The code that waits for the calls to end sets it to DRAINED."""
        self.is_moving = is_moving
        """True while other endpoints are loading its models."""
        self.failed_moves: tuple[str, ...] = ()
        """The models that other endpoints could not load, and the reasons."""
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def seconds_left(self) -> float:
        """How many more seconds sequences can continue on the endpoint."""
        return max(0.0, self._ends - asyncio.get_running_loop().time())
