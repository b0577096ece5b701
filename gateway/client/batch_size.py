"""The number of points that a map sends in one request, determined from the durations and errors of earlier requests.
`map.Window` uses it.

The client sends the first requests one at a time, so their durations are not affected by each other. Each request
contains up to GROWTH_ALONE times as many points as the previous one, until one takes about TARGET seconds. A request
that takes longer also ends this phase. Then requests run in parallel. After that, the size grows slowly while requests
are fast, and shrinks when requests are slow or fail.
"""

from collections.abc import Callable
from time import monotonic

TARGET = 0.1
"""Target duration of a request of several points, in seconds.

At its end, a map waits about this long for its last request. If a single point takes longer, each request contains one
point."""
GROWTH_ALONE, GROWTH = 8, 2
"""Maximum growth factors of the size: while the client sends one request at a time, and while several are in flight."""
PARTS = 8
"""Number of parts into which the client splits the points of a failed request."""
MOST_ROWS = 4096
"""Default maximum number of points in one request, because larger requests save nothing."""
MOST_BYTES = 2**20
"""Maximum bytes of inputs or outputs in one request of several points, because larger requests save nothing."""


class BatchSize:
    """Determines `rows`, the number of points in the next request, which is at most `most`.

    Pass `target` if the time limit of calls is not much longer than TARGET. `clock` returns the time in seconds."""

    def __init__(self, most: int, target: float = TARGET, clock: Callable[[], float] = monotonic) -> None:
        self.rows = 1
        self._most = most
        self._target = target
        self._clock = clock
        self._is_alone = most > 1
        """True while the client sends one request at a time to measure the model."""
        self._until = 0.0
        self._undecided = 0
        """Number of failed requests for which it is not yet known whether a point or the request's size is at fault."""
        self._at_fault = 0
        """Number of requests that failed although each of their points has a result."""

    def stop(self, most: int = 1) -> None:
        """Limit requests to `most` points from now on."""
        self._most = min(self._most, most)
        self.rows = min(self.rows, self._most)
        self._is_alone = self._is_alone and self._most > 1

    @property
    def is_one(self) -> bool:
        """Return True if every later request contains one point."""
        return self._most == 1

    def begun(self) -> None:
        """Record the start of a request."""
        self._until = self._clock() + self._target

    def patience(self, in_flight: int) -> float:
        """Return the seconds until another request can start in parallel; 0 if it can start now."""
        if not self._is_alone or not in_flight:
            return 0.0
        left = self._until - self._clock()
        self._is_alone = left > 0
        return max(left, 0.0)

    def succeeded(self, rows: int, seconds: float, weight: int, in_flight: int) -> None:
        """Record that a request of `rows` rows succeeded after `seconds`.

        `weight` is the size of one row's inputs or outputs in bytes, whichever is larger. `in_flight` is the number of
        requests in flight at that time, including this one."""
        if rows < self.rows or self._undecided:
            return  # a request of an earlier size, or a part of a failed request
        if seconds >= self._target:
            self._is_alone = False
            # In the worst case, the server ran the requests in flight one after the other.
            if seconds > 2 * in_flight * self._target:
                self.rows = max(1, self.rows // 2)
            return
        growth = min(self._target / max(seconds, 1e-6), GROWTH_ALONE if self._is_alone else GROWTH)
        grown = max(1, min(int(rows * growth), self._most, MOST_BYTES // max(weight, 1)))
        self._is_alone = self._is_alone and grown > rows
        self.rows = grown

    def failed(self, rows: int) -> None:
        """Record that a request of several rows has failed. The map then sends its points again in parts, and calls
        `decided` when all of them have ended."""
        self._undecided += 1
        self.rows = max(1, min(self.rows, rows // PARTS))

    def decided(self, rows: int, *, is_at_fault: bool) -> None:
        """Record that all points of a failed request have ended.

        `is_at_fault` is True if every point succeeded in another request, so the size of the failed request was at
        fault."""
        self._undecided -= 1
        if is_at_fault:
            self._at_fault += 1
            # A single fault can be temporary, such as a broken connection.
            self.stop(max(1, rows // (2 if self._at_fault == 1 else PARTS)))
