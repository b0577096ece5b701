"""A batch as one call per row, for backends that take one point at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from gateway.core.errors import GatewayError
from gateway.core.tasks import spawn

T = TypeVar("T")


async def each(count: int, call: Callable[[int], Coroutine[Any, Any, T]], window: int) -> list[T]:
    """The results of `call(0)` .. `call(count - 1)`, in order, with at most `window` begun and not done.

    Raises:
        GatewayError: the first failure, naming its row; what is not sent yet is not sent any more.
    """
    results: dict[int, T] = {}
    running: dict[asyncio.Task[T], int] = {}
    try:
        while len(results) < count:
            for row in range(len(results) + len(running), min(count, len(results) + window)):
                running[spawn(call(row))] = row
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                row = running.pop(task)
                results[row] = _result(task, row)
    finally:
        await _cancel(running)
    return [results[row] for row in range(count)]


def _result(task: "asyncio.Task[T]", row: int) -> T:
    try:
        return task.result()
    except GatewayError as error:
        raise GatewayError(error.status, error.reason, f"row {row}: {error.message}") from error


async def _cancel(tasks: "dict[asyncio.Task[T], int]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        waiting: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
        await waiting
