"""How late the event loop is: whether something keeps it from its work."""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic

TICK_SECONDS = 0.1
WINDOW_SECONDS = 15.0


class LoopLag:
    """Measures by how much a timer of the event loop is late, ten times a second.

    `longest` may be read from any thread. The others are called on the loop.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = inf
        self._window_ends = clock() + WINDOW_SECONDS
        self._longest = self._longest_before = 0.0
        """In this window of WINDOW_SECONDS, and in the one before."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def longest(self) -> float:
        """The most seconds by which the loop was late, in the last WINDOW_SECONDS to twice that, or is late now."""
        return max(self._longest, self._longest_before, self._clock() - self._due)

    def start(self) -> None:
        """Begin to measure the loop that runs."""
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self.note(self._clock() - self._due)
            wait()

        def wait() -> None:
            self._due = self._clock() + TICK_SECONDS
            self._timer = loop.call_later(TICK_SECONDS, tick)

        wait()

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, inf

    def note(self, late: float) -> None:
        """Take a measurement: the loop was `late` seconds late."""
        if self._clock() >= self._window_ends:
            self._longest_before, self._longest = self._longest, 0.0
            self._window_ends = self._clock() + WINDOW_SECONDS
        self._longest = max(self._longest, late)
