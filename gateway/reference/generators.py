"""Generator functions as models that stream: each value that one yields is one response."""

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
"""Calls the generator function."""
Finish: TypeAlias = Callable[[object, Arguments], Outputs]
"""The tensors of a value that it yields."""

_END = object()


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it gives an iterator to be drawn from, also of instances whose `__call__` is a generator."""
    candidates = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in candidates)


def from_generator(function: Callable[..., Any], start: Start, finish: Finish, workers: Executor) -> Stream:
    """A Stream of a generator function: an `async` one is drawn from on the event loop, others in a thread."""
    call = getattr(function, "__call__", None)  # noqa: B004
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(call):
        return _on_the_loop(start, finish)
    return _in_threads(start, finish, workers)


def _on_the_loop(start: Start, finish: Finish) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        async with aclosing(start(arguments, config)) as results:
            async for result in results:
                yield finish(result, arguments)

    return stream


def _in_threads(start: Start, finish: Finish, workers: Executor) -> Stream:
    async def stream(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
        loop, drawn = asyncio.get_running_loop(), _Drawn(start(arguments, config))
        try:
            while (result := await loop.run_in_executor(workers, drawn.next)) is not _END:
                yield finish(result, arguments)
        finally:
            # not waited for: a client that goes away may leave a thread in the middle of a long step
            loop.run_in_executor(workers, drawn.close)

    return stream


class _Drawn:
    """A generator that threads draw from, one at a time."""

    def __init__(self, results: Generator[object, None, None]) -> None:
        self._results = results
        self._lock = Lock()

    def next(self) -> object:
        """The next value, _END behind the last."""
        with self._lock:
            return next(self._results, _END)

    def close(self) -> None:
        """Runs its `finally`. Nobody waits for it, so an error is the log's."""
        with self._lock:
            try:
                self._results.close()
            except Exception as error:
                log.error("a model's generator failed as it was closed", exc_info=error)
