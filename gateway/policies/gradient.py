"""An adaptive limit on the calls in flight, derived from the gradient of their latency.

A server queues calls that it cannot run in parallel, so their latency grows. `Gradient` compares the current latency
with the server's latency when it is not busy, and lowers the limit in the same proportion:

    gradient = TOLERANCE * usual / now, between 1/2 and 1
    limit = limit * gradient + sqrt(limit), smoothed

The square root is the allowed queue length, and lets the limit grow. The algorithm is Netflix's concurrency-limits
(`Gradient2Limit`), with one difference. In Netflix's algorithm, the usual latency is an average over all calls. If a
server stays overloaded, this average rises with the latency, and the limit grows without bound. In this module, the
usual latency is the average over calls that began while few calls were in flight, so they did not queue. If the server
stays busy, the limit drops for a moment (a rest), and the latency of these few calls becomes the usual latency.
"""

from math import sqrt

TOLERANCE = 1.5
"""A latency up to this multiple of the usual latency counts as usual."""
SMOOTHING = 0.2
"""The weight of each new limit in the smoothed limit."""
WINDOW = 10
"""Number of calls in a window. The current latency is the mean over a window."""
LONG = 100
"""Number of windows over which the usual latency is averaged."""
TO_REST = 200
"""Number of windows with queueing after which a rest begins."""
AT_REST = 3
"""Maximum number of calls in flight during a rest."""
FIRST = 20
"""The initial limit."""


class Gradient:
    """An adaptive limit on the calls in flight, between `least` and `most`."""

    __slots__ = ("_begin", "_count", "_least", "_limit", "_most", "_queued", "_rests", "_sum", "_usual")

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._limit = float(min(max(FIRST, least), most))
        self._usual = 0.0
        """The usual latency in seconds; 0 until the first window is full."""
        self._queued = 0
        """Number of windows with queueing since the usual latency was measured."""
        self._rests = False
        self._begin = 0.0
        """Calls that began before this time are ignored, because more calls ran in parallel with them than during a
        rest."""
        self._count = 0
        self._sum = 0.0

    @property
    def limit(self) -> int:
        """Maximum number of calls in flight now."""
        limit = int(self._limit)
        return min(limit, max(AT_REST, self._least)) if self._rests else limit

    def ended(self, began: float, now: float, in_flight: int) -> None:
        """Record a call that has just got its response. `in_flight` is the number of calls in flight, including this
        one."""
        if began < self._begin:
            return
        self._count += 1
        self._sum += now - began
        if self._count == WINDOW:
            latency = max(self._sum / WINDOW, 1e-9)
            self._count, self._sum = 0, 0.0
            self._window(latency, now, in_flight)

    def given_up(self, began: float, now: float, in_flight: int) -> None:
        """Record a call that was just cancelled because no client waits for it. The time until now is a lower bound of
        its duration. The bound counts if it exceeds the usual latency, but never changes the usual latency itself."""
        if self._usual and not self._rests and now - began > self._usual:
            self.ended(began, now, in_flight)

    def _window(self, latency: float, now: float, in_flight: int) -> None:
        if self._rests or not self._usual:
            is_first = not self._rests
            self._usual, self._queued, self._rests = latency, 0, False
            if is_first and in_flight > AT_REST:  # these calls might have queued
                self._rest(now)
            return
        has_queue = latency > TOLERANCE * self._usual
        if has_queue:
            self._queued += 1
            if self._queued >= TO_REST:
                self._rest(now)
                return
        elif in_flight < self._limit / 2:
            self._usual += (latency - self._usual) / LONG
            self._queued = 0
            return  # so few calls do not justify a higher limit
        gradient = max(0.5, min(1.0, TOLERANCE * self._usual / latency))
        wanted = self._limit * gradient + sqrt(self._limit)
        smoothed = self._limit + (wanted - self._limit) * SMOOTHING
        self._limit = min(max(smoothed, self._least), self._most)

    def _rest(self, now: float) -> None:
        self._rests, self._begin = True, now
