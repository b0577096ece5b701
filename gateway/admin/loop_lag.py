"""Measure event-loop lag for the metrics page, which shows whether something blocks the loop."""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

TICK_SECONDS = 0.1
WINDOW_SECONDS = 15.0


class LoopLag:
    """Measures event-loop lag ten times a second, as the delay with which a timer fires.

    `longest` is safe to read from any thread. Call the other methods on the loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = inf
        self._window_ends = clock() + WINDOW_SECONDS
        self._longest = self._longest_before = 0.0
        """The maximum in this window of WINDOW_SECONDS, and in the previous window."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def longest(self) -> float:
        """The maximum lag of the last one to two WINDOW_SECONDS, or the current lag if that is longer, in seconds."""
        return max(self._longest, self._longest_before, self._clock() - self._due)

    def start(self) -> None:
        """Start measuring the running loop."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self.note(self._clock() - self._due)
            wait()

        def wait() -> None:
            self._due = self._clock() + TICK_SECONDS
            self._timer = loop.call_later(TICK_SECONDS, tick)

        wait()

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, inf

    def note(self, late: float) -> None:
        """Record that the timer fired `late` seconds late."""
        if self._clock() >= self._window_ends:
            self._longest_before, self._longest = self._longest, 0.0
            self._window_ends = self._clock() + WINDOW_SECONDS
        self._longest = max(self._longest, late)
