"""The planned end of a working connection, after which the client connects again, possibly to another replica. The
bounded connections use it."""

import asyncio
import math
from collections.abc import Callable
from random import uniform

from gateway.core.protocol import Limits

_JITTER = 0.1
"""The fraction by which maximum ages differ randomly, so clients that connected together do not reconnect together."""


class Lifespan:
    """The lifespan of one connection, which began at `now`, according to `limits.requests_per_connection` and
    `limits.connection_age`."""

    __slots__ = ("_requests_left", "_timer", "ends_at")

    def __init__(self, limits: Limits, now: float) -> None:
        requests, age = limits.requests_per_connection, limits.connection_age
        self._requests_left = math.inf if requests is None else requests
        self.ends_at = math.inf if age is None else now + age * uniform(1 - _JITTER, 1 + _JITTER)
        """The time when the connection reaches its maximum age; infinite without a limit."""
        self._timer: asyncio.TimerHandle | None = None

    def is_last(self, now: float) -> bool:
        """Return True if the current request is the connection's last one. Call this once for each request."""
        self._requests_left -= 1
        return self._requests_left <= 0 or now >= self.ends_at

    def call_at(self, loop: asyncio.AbstractEventLoop, when: float, end: Callable[[], None]) -> None:
        """Call `end` at the time `when`, unless it is infinite. This replaces a previously scheduled call."""
        self.stop()
        self._timer = loop.call_at(when, end) if when < math.inf else None

    def stop(self) -> None:
        """Cancel the scheduled call."""
        if self._timer is not None:
            self._timer.cancel()
