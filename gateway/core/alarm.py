"""A deadline that is moved far more often than it is met."""

import asyncio
import math
from collections.abc import Callable

_LEAST = 0.001


class Alarm:
    """Calls `ring` once the time is over. Moving it later costs nothing: the timer that fires too early is set anew."""

    __slots__ = ("_loop", "_ring", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._when = math.inf

    def set(self, seconds: float) -> None:
        """Ring in `seconds`, a millisecond at the least, and not at the time set before."""
        # uvloop makes a plain Handle, which has no `when`, of a timer that is due at once.
        self._when = self._loop.time() + max(seconds, _LEAST)
        if self._timer is None:
            self._timer = self._loop.call_at(self._when, self._fire)
        elif self._when < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(self._when, self._fire)

    def silence(self) -> None:
        """Do not ring until set again."""
        self._when = math.inf

    def stop(self) -> None:
        """Never ring again, and let go of `ring`, whose owner most likely owns the alarm."""
        self._ring = _nothing
        self.silence()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        left = self._when - self._loop.time()
        if left <= 0:
            self._ring()
        elif left < math.inf:
            self.set(left)


def _nothing() -> None: ...
