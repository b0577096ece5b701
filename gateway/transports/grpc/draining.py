"""What a listener that is to end must tell those whose calls last: streams may be idle for hours."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio


class Draining:
    """`announced` is set once: the listener no longer calls itself ready. `begun` follows; from then on the streams of
    a listener read nothing more."""

    def __init__(self) -> None:
        self.announced = asyncio.Event()
        self.begun = asyncio.Event()
        self.calls = 0
        """In flight."""
        self._reading: set[asyncio.Task[Any]] = set()

    def begin(self) -> None:
        """Wake the streams that wait for their clients."""
        self.announced.set()
        self.begun.set()
        for task in self._reading:
            task.cancel()

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call, from its first message to its end."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    async def read(self, context: Any) -> bytes | None:
        """The next message of a stream; None where the client ended it, or the listener drains."""
        if self.begun.is_set():
            return None
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if not self.begun.is_set():
                raise
            task.uncancel()
            return None
        finally:
            self._reading.discard(task)
        return None if message is grpc.aio.EOF else message
