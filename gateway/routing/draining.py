"""Draining: an endpoint gets no new calls, for maintenance of its server, until that is undone.

| state | meaning |
|---|---|
| serving | it gets calls |
| draining | it gets no new calls; those that it has go on, and for a time so do the sequences whose state it has |
| drained | it has nothing to do any more: its server can be stopped |

Where models are loaded on demand, those of the endpoint are loaded elsewhere first; until then it gets calls.

An endpoint is drained in all backends that share it. A reload of the configuration keeps that. One that leaves the
configuration, or that discovery no longer finds, and that comes back, serves again.
"""

import asyncio
from datetime import UTC, datetime
from enum import Enum


class DrainState(Enum):
    """The values are the words of `/status`."""

    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"


class Drain:
    """The drain of one endpoint, which gets no new calls until an operator undoes it. Its sequences can continue there
    for `seconds`."""

    __slots__ = ("_ends", "failed_moves", "is_moving", "since", "state")

    def __init__(self, seconds: float, *, is_moving: bool = False) -> None:
        self.since = datetime.now(UTC)
        self.state = DrainState.DRAINING
        """DRAINED is noted by whoever waits for the end of its calls."""
        self.is_moving = is_moving
        """Its models are being loaded elsewhere."""
        self.failed_moves: tuple[str, ...] = ()
        """The models that could not be loaded elsewhere, each with the reason."""
        self._ends = asyncio.get_running_loop().time() + seconds

    @property
    def seconds_left(self) -> float:
        """For how many seconds sequences may still go on at the endpoint."""
        return max(0.0, self._ends - asyncio.get_running_loop().time())
