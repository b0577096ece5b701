"""Load shedding. While the process is overloaded, the gateway refuses new work early, before it has a high cost.

Every LOOK_SECONDS it measures the load: how late the event loop was for the measurement, and how full the memory is.
After UP_LOOKS measurements in a row over a limit, it refuses one more kind of work. The kinds that are cheapest to
refuse come first:

    NOTHING → CONNECTIONS → LARGE → ALL

After DOWN_LOOKS measurements in a row clearly below the limits, it refuses one kind less. So a single long turn of the
loop does not cause load shedding. Requests without a body (health, readiness, metadata over HTTP, MIP's pings) are
never refused.
"""

import asyncio
import logging
import typing
from datetime import UTC, datetime
from enum import IntEnum
from time import monotonic

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.log_limit import LogLimit
from gateway.core.surviving import log_and_continue
from gateway.transports.memory import PROCESS_MEMORY, cgroup_memory, resident_memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
UP_LOOKS = 4
DOWN_LOOKS = 10
LARGE_BYTES = 64 * 2**10
"""The minimum size of a large body, in bytes."""
RETRY_AFTER = 1.0
"""The retry delay in responses to clients, in seconds."""

_CALM_LAG, _CALM_MEMORY = 0.5, 0.9
"""If the load is below these shares of the limits, it is clearly below the limits."""


class Level(IntEnum):
    """The levels of load shedding; each includes the previous ones."""

    NOTHING = 0
    CONNECTIONS = 1
    LARGE = 2
    ALL = 3


_REFUSED = {
    Level.CONNECTIONS: "new connections",
    Level.LARGE: "new connections and large requests",
    Level.ALL: "new connections and requests",
}


class SheddingState(typing.Protocol):
    """The state of load shedding in one process, or in all workers together."""

    level: Level
    since: datetime | None
    """The time when it began; None while everything is accepted."""
    refused: int
    """The number of refused connections and requests since the start."""


class Shedding:
    """The load shedding of the process.

    `lag` is the maximum lateness of the event loop, in seconds. `memory` is the maximum share of `limits.memory` for
    messages, and of the cgroup's limit for the process."""

    def __init__(self, lag: float, memory: float) -> None:
        self.level = Level.NOTHING
        self.since: datetime | None = None
        """The time when it began; None while everything is accepted."""
        self.refused = 0
        """The number of refused connections and requests since the start."""
        self._lag = lag
        self._memory = memory
        self._over = self._calm = 0
        self._began = 0.0
        self._refused_before = 0
        self._lines = LogLimit(log)
        self._timer: asyncio.TimerHandle | None = None

    def refusal(self, size: int | None) -> GatewayError | None:
        """Return the error for a new request with a body of `size` bytes (None means unknown), or None to serve the
        request."""
        level = self.level
        if level < Level.LARGE or size == 0:
            return None
        if level < Level.ALL and size is not None and size < LARGE_BYTES:
            return None
        return self._refuse()

    def connection_refusal(self) -> GatewayError | None:
        """Return the error for a new connection; None if it is accepted."""
        return self._refuse() if self.level else None

    def look(self, lag: float, memory: float) -> None:
        """Process a measurement, in which the loop is `lag` seconds late and the share `memory` is in use."""
        is_late = lag > self._lag
        self._over = self._over + 1 if is_late or memory > self._memory else 0
        is_calm = lag < self._lag * _CALM_LAG and memory < self._memory * _CALM_MEMORY
        self._calm = self._calm + 1 if is_calm else 0
        # Refusing small requests frees no memory, and would never end if the process itself is too large.
        highest = Level.ALL if is_late else Level.LARGE
        if self._over >= UP_LOOKS and self.level < highest:
            self._over = 0
            self._raise(lag, memory)
        elif self._calm >= DOWN_LOOKS and self.level:
            self._calm = 0
            self._lower()

    def start(self) -> None:
        """Start regular measurements in the running event loop."""
        loop = asyncio.get_running_loop()
        limit = cgroup_memory()

        def look(due: float) -> None:
            with log_and_continue("measuring the load"):
                used = PROCESS_MEMORY.used / PROCESS_MEMORY.limit
                resident = 0.0 if limit is None else resident_memory() / limit
                self.look(loop.time() - due, max(used, resident))
            wait()

        def wait() -> None:
            due = loop.time() + LOOK_SECONDS
            self._timer = loop.call_at(due, look, due)

        wait()

    def stop(self) -> None:
        """Stop the measurements, and refuse nothing."""
        self.level = Level.NOTHING
        if self._timer is not None:
            self._timer.cancel()

    def _refuse(self) -> GatewayError:
        self.refused += 1
        text = f"the gateway is overloaded; try again in {RETRY_AFTER:g} s"
        return GatewayError(Status.UNAVAILABLE, Reason.OVERLOADED, text, retry_after=RETRY_AFTER)

    def _raise(self, lag: float, memory: float) -> None:
        if not self.level:
            self.since, self._began, self._refused_before = datetime.now(UTC), monotonic(), self.refused
        self.level = Level(self.level + 1)
        self._lines.write(
            self.level,
            logging.WARNING,
            "overloaded, refusing %s: the event loop is %.2f s late (limits.shed.lag is %g), memory is at %.0f %% "
            "(limits.shed.memory is %.0f %%)",
            _REFUSED[self.level],
            lag,
            self._lag,
            100 * memory,
            100 * self._memory,
        )

    def _lower(self) -> None:
        self.level = Level(self.level - 1)
        if self.level:
            return
        self.since = None
        self._lines.write(
            Level.NOTHING,
            logging.WARNING,
            "no longer overloaded: refused %d connections and requests in %.1f s",
            self.refused - self._refused_before,
            monotonic() - self._began,
        )
