"""A clock that wakes the event loop on time, because the loop's own timers are up to 1 ms late, which is ten times the
latency of a fast server."""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The current time and a wake-up timer. `Load` uses it."""

    def now(self) -> float:
        """Return the seconds since a fixed point in time."""

    def wake_at(self, when: float) -> None:
        """Call `awake` at `when`, or immediately if `when` has passed. This time replaces the previous one."""

    def start(self, awake: Callable[[], None]) -> None:
        """Start calling `awake` at the times set by `wake_at`."""

    def close(self) -> None:
        """Stop calling `awake`."""


def real_clock() -> Clock:
    """Return the clock for this system. Call it in the event loop."""
    return TimerClock() if sys.platform == "linux" else LoopClock()


class LoopClock:
    """A Clock that uses the loop's timers, for systems without timerfd."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.now: Callable[[], float] = time.monotonic

    def start(self, awake: Callable[[], None]) -> None:
        """See Clock."""
        self._awake = awake

    def wake_at(self, when: float) -> None:
        """See Clock."""
        self.close()
        self._timer = self._loop.call_later(max(0.0, when - self.now()), self._awake)

    def close(self) -> None:
        """See Clock."""
        if self._timer is not None:
            self._timer.cancel()


class TimerClock:
    """A Clock that uses a file-descriptor timer (timerfd_create), which is late by only a few hundredths of a
    millisecond."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._settime = _LIBC.timerfd_settime
        self._fd = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.now: Callable[[], float] = time.monotonic  # also CLOCK_MONOTONIC

    def start(self, awake: Callable[[], None]) -> None:
        """See Clock."""
        self._loop.add_reader(self._fd, self._ring, awake)

    def wake_at(self, when: float) -> None:
        """See Clock."""
        nanoseconds = int(when * 1e9)
        # The interval is 0, so the timer fires once.
        setting = _Setting(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
        self._settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None)

    def close(self) -> None:
        """See Clock."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _ring(self, awake: Callable[[], None]) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # the timer has been set again since it fired
        awake()


class _Setting(ctypes.Structure):
    """The C struct `itimerspec`."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_LIBC = ctypes.CDLL(None, use_errno=True)
