"""Make streams from generator functions. Each value that the generator yields is one response."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Executor
from contextlib import aclosing
from threading import Lock
from typing import Any, TypeAlias

from gateway.reference.model import Arguments, Config, Outputs, Stream

log = logging.getLogger(__name__)

Start: TypeAlias = Callable[[Arguments, Config], Any]
"""A function that calls the generator function."""
Finish: TypeAlias = Callable[[object, Arguments], Outputs]
"""A function that returns the tensors of a value that the generator yields."""

_END = object()
"""The value that is returned when the generator has ended."""


def is_generator(function: Callable[..., Any]) -> bool:
    """Return True if `function` is a generator function, `async` or not.

    This includes instances whose `__call__` is a generator function."""
    candidates = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in candidates)


def from_generator(function: Callable[..., Any], start: Start, finish: Finish, workers: Executor) -> Stream:
    """Return a Stream that runs a generator function.

    An `async` generator runs on the event loop, any other generator in threads."""
    call = getattr(function, "__call__", None)  # noqa: B004
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(call):
        return _on_event_loop(start, finish)
    return _in_threads(start, finish, workers)


def _on_event_loop(start: Start, finish: Finish) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        async with aclosing(start(arguments, config)) as results:
            async for result in results:
                yield finish(result, arguments)

    return stream


def _in_threads(start: Start, finish: Finish, workers: Executor) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        loop, generator = asyncio.get_running_loop(), _LockedGenerator(start(arguments, config))
        try:
            while (result := await loop.run_in_executor(workers, generator.next)) is not _END:
                yield finish(result, arguments)
        finally:
            # not awaited, because a thread might still compute the next value for a long time after the client has
            # disconnected
            loop.run_in_executor(workers, generator.close)

    return stream


class _LockedGenerator:
    """A generator that several threads can call, one at a time."""

    def __init__(self, results: Generator[object, None, None]) -> None:
        self._results = results
        self._lock = Lock()

    def next(self) -> object:
        """Return the next value, or _END after the last value."""
        with self._lock:
            return next(self._results, _END)

    def close(self) -> None:
        """Close the generator, which runs its `finally` blocks. The caller does not wait for it, so an error is
        logged."""
        with self._lock:
            try:
                self._results.close()
            except Exception as error:
                log.error("closing a model's generator failed", exc_info=error)
