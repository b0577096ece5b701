"""Load shedding. While the process is overloaded, the gateway rejects new work early, before the work costs much.
`listener_connections` and the bounded connections call this module before they accept work.

Every LOOK_SECONDS, the gateway measures the load: the event-loop lag, and the fraction of the memory in use. After
UP_LOOKS consecutive measurements over a limit, it rejects one more kind of work. The kinds that are cheapest to reject
come first:

    NOTHING → CONNECTIONS → LARGE → ALL

After DOWN_LOOKS consecutive measurements clearly below the limits, the gateway rejects one kind less. Because several
measurements are necessary, a single long turn of the loop does not cause load shedding. The gateway never rejects
requests without a body (health, readiness, metadata over HTTP, MIP pings).
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
"""The load counts as clearly below the limits if it is below these fractions of the limits."""


class Level(IntEnum):
    """The levels of load shedding. Each level includes the previous levels."""

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
    """The state of load shedding in one process or in all workers together."""

    level: Level
    since: datetime | None
    """The time when load shedding began; None while the gateway accepts all work."""
    refused: int
    """The number of rejected connections and requests since the start."""


class Shedding:
    """The load shedding of this process.

    `lag` is the limit for the event-loop lag, in seconds. `memory` is a limit for two fractions: the part of
    `limits.memory` that messages use, and the part of the cgroup's memory limit that the process uses."""

    def __init__(self, lag: float, memory: float) -> None:
        self.level = Level.NOTHING
        self.since: datetime | None = None
        """The time when load shedding began; None while the gateway accepts all work."""
        self.refused = 0
        """The number of rejected connections and requests since the start."""
        self._lag = lag
        self._memory = memory
        self._over = self._calm = 0
        self._began = 0.0
        self._refused_before = 0
        self._lines = LogLimit(log)
        self._timer: asyncio.TimerHandle | None = None

    def refusal(self, size: int | None) -> GatewayError | None:
        """Return the error for a new request with a body of `size` bytes (None means unknown). The result is None if
        the gateway serves the request."""
        level = self.level
        if level < Level.LARGE or size == 0:
            return None
        if level < Level.ALL and size is not None and size < LARGE_BYTES:
            return None
        return self._refuse()

    def connection_refusal(self) -> GatewayError | None:
        """Return the error for a new connection; None if the gateway accepts the connection."""
        return self._refuse() if self.level else None

    def look(self, lag: float, memory: float) -> None:
        """Process a measurement. `lag` is the event-loop lag in seconds, and `memory` is the fraction of the memory in
        use."""
        is_late = lag > self._lag
        self._over = self._over + 1 if is_late or memory > self._memory else 0
        is_calm = lag < self._lag * _CALM_LAG and memory < self._memory * _CALM_MEMORY
        self._calm = self._calm + 1 if is_calm else 0
        # Rejecting small requests frees no memory, and would never stop if the process itself were too large.
        highest = Level.ALL if is_late else Level.LARGE
        if self._over >= UP_LOOKS and self.level < highest:
            self._over = 0
            self._raise(lag, memory)
        elif self._calm >= DOWN_LOOKS and self.level:
            self._calm = 0
            self._lower()

    def start(self) -> None:
        """Start periodic measurements in the running event loop."""
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
        """Stop the measurements, and accept all work."""
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
