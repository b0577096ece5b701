"""Counts one backend's waiting and running calls. The external scaler uses these counts to start and stop the backend's
servers."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gateway.core.operations import WAKING
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler


class Activity:
    """Counts the waiting and running calls of one backend, and records the time at which the last call ended. Only the
    operations in `WAKING`, which start a server, count."""

    __slots__ = ("_clock", "_ended_at", "_waiters", "calls")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.calls = 0
        """The number of calls that are waiting or in flight now."""
        self._ended_at = -math.inf
        self._waiters: set[asyncio.Future[None]] = set()

    def counted(self, handler: Handler) -> Handler:
        """Wrap `handler` to count its calls."""

        async def counting(request: Request) -> Answer:
            if request.operation not in WAKING:
                return await handler(request)
            self._began()
            try:
                return await handler(request)
            finally:
                self._ended()

        return counting

    def counted_stream(self, handler: StreamHandler) -> StreamHandler:
        """Wrap `handler` to count its calls until their streams end."""

        async def counting(request: Request) -> AsyncGenerator[Response, None]:
            self._began()
            try:
                async with aclosing(handler(request)) as responses:
                    async for response in responses:
                        yield response
            finally:
                self._ended()

        return counting

    def seconds_active(self, idle: float) -> float:
        """Return the number of seconds for which the backend still counts as active: `idle` while calls run, less after
        the last call has ended. If the result is 0 or negative, the backend is inactive."""
        return idle if self.calls else self._ended_at + idle - self._clock()

    def next_call(self) -> "asyncio.Future[None]":
        """Return a future that completes when the next call begins. A caller that stops waiting must cancel the
        future."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def _began(self) -> None:
        self.calls += 1
        if self._waiters:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _ended(self) -> None:
        self.calls -= 1
        self._ended_at = self._clock()
