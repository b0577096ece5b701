"""A timer that is postponed far more often than it fires, such as the idle timeout of a connection (`transports`).

Postponing only stores the new time. If the event loop's timer fires before this time, the alarm sets the timer again
for the remaining time. Therefore, the alarm needs one loop timer per period instead of one per message.
"""

import asyncio
import math
from collections.abc import Callable

_MIN_SECONDS = 0.001


class Alarm:
    """Calls `ring` once, at the time most recently passed to `set`."""

    __slots__ = ("_due", "_loop", "_ring", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """The time at which the loop's timer fires."""
        self._when = math.inf
        """The time at which the alarm rings."""

    def set(self, seconds: float) -> None:
        """Ring after `seconds` (at least a millisecond) instead of at the previously set time."""
        self._when = when = self._loop.time() + seconds
        if when < self._due:
            self._start_timer(when)

    def silence(self) -> None:
        """Do not ring unless `set` is called again."""
        self._when = math.inf

    def stop(self) -> None:
        """Disable the alarm permanently.

        The method also drops the reference to `ring`. The owner of `ring` usually refers to the alarm, so this
        reference would form a cycle."""
        self._ring = _do_nothing
        self.silence()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, math.inf

    def _start_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # For a timer without delay, uvloop returns a plain Handle, which cannot be cancelled like a TimerHandle.
        self._due = due = max(when, self._loop.time() + _MIN_SECONDS)
        self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer, self._due = None, math.inf
        remaining = self._when - self._loop.time()
        if remaining <= 0:
            self._ring()
        elif remaining < math.inf:
            self.set(remaining)


def _do_nothing() -> None: ...
