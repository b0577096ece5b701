"""How many points of a map travel in one request: found by time, and by errors.

The first requests are alone in flight, so that their times are those of the model, and each has up to GROWTH_ALONE
times as many points as the one before, until one takes about TARGET seconds. A request that takes longer ends this: the
others begin beside it. From then on the size grows slowly while requests are fast, and falls with those that are slow
or fail.
"""

from collections.abc import Callable
from time import monotonic

TARGET = 0.1
"""Seconds that a request of several points may take. A map that ends waits this long for its last request, and a model
that takes longer for one point gets points one by one."""
GROWTH_ALONE, GROWTH = 8, 2
"""The most by which a size grows at once: while a request is alone in flight, and beside others."""
PARTS = 8
"""The number of parts in which the points of a failed request are sent again."""
MOST_ROWS = 4096
"""The most points in one request by default: more would save nothing."""
MOST_BYTES = 2**20
"""The most bytes of inputs, or of outputs, in one request of several points, for the same reason."""


class BatchSize:
    """The size of the next request, `rows`: at most `most` points.

    `target`: as TARGET, where calls have a time limit that is not much longer. `clock` gives seconds.
    """

    def __init__(self, most: int, target: float = TARGET, clock: Callable[[], float] = monotonic) -> None:
        self.rows = 1
        self._most = most
        self._target = target
        self._clock = clock
        self._is_alone = most > 1
        """Whether one request is in flight at a time, to find out how long the model takes."""
        self._until = 0.0
        self._undecided = 0
        """Number of failed requests for which it is not yet known whether a point or their size is at fault."""
        self._at_fault = 0
        """Number of requests that failed although each of their points has a result."""

    def stop(self, most: int = 1) -> None:
        """Send no more than `most` points in one request."""
        self._most = min(self._most, most)
        self.rows = min(self.rows, self._most)
        self._is_alone = self._is_alone and self._most > 1

    @property
    def is_one(self) -> bool:
        """Whether every request has one point, and will have."""
        return self._most == 1

    def begun(self) -> None:
        """A request begins."""
        self._until = self._clock() + self._target

    def patience(self, in_flight: int) -> float:
        """The seconds until another request may begin beside those in flight; 0 if it may now."""
        if not self._is_alone or not in_flight:
            return 0.0
        left = self._until - self._clock()
        self._is_alone = left > 0
        return max(left, 0.0)

    def succeeded(self, rows: int, seconds: float, weight: int, in_flight: int) -> None:
        """A request of so many rows was answered after so many seconds. `weight`: the bytes of one row, of its inputs
        or its outputs, whichever are more; `in_flight`: the requests at that time, with it."""
        if rows < self.rows or self._undecided:
            return  # one of an earlier size, or a part of one that failed
        if seconds >= self._target:
            self._is_alone = False
            # At worst the server has computed those in flight one after the other.
            if seconds > 2 * in_flight * self._target:
                self.rows = max(1, self.rows // 2)
            return
        growth = min(self._target / max(seconds, 1e-6), GROWTH_ALONE if self._is_alone else GROWTH)
        grown = max(1, min(int(rows * growth), self._most, MOST_BYTES // max(weight, 1)))
        self._is_alone = self._is_alone and grown > rows
        self.rows = grown

    def failed(self, rows: int) -> None:
        """A request of several rows has failed, and its points are sent again in parts. `decided` tells the end."""
        self._undecided += 1
        self.rows = max(1, min(self.rows, rows // PARTS))

    def decided(self, rows: int, *, is_at_fault: bool) -> None:
        """All points of a failed request have ended. `is_at_fault`: none failed by itself, so its size was too
        large."""
        self._undecided -= 1
        if is_at_fault:
            self._at_fault += 1
            # One fault can be a passing one, such as a connection that broke.
            self.stop(max(1, rows // (2 if self._at_fault == 1 else PARTS)))
