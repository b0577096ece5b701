"""A batch as one call per row, for backends that take one point at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.tasks import spawn

S = TypeVar("S")
T = TypeVar("T")


async def each(rows: Sequence[S], call: Callable[[S], Coroutine[Any, Any, T]], window: int) -> list[T]:
    """The results of `call` for all `rows`, in their order, with at most `window` calls begun and not done.

    Raises:
        GatewayError, DecodeError: the first failure, naming its row; what is not sent yet is not sent any more.
    """
    results: dict[int, T] = {}
    running: dict[asyncio.Task[T], int] = {}
    waiting = iter(enumerate(rows))
    try:
        while len(results) < len(rows):
            for row, item in _take(waiting, window - len(running)):
                running[spawn(call(item))] = row
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                results[running[task]] = _result(task, running[task])
                del running[task]
    finally:
        await _cancel(running)
    return [results[row] for row in range(len(rows))]


def _take(waiting: Iterable[S], count: int) -> list[S]:
    # zip asks the range first, so it takes nothing that it does not give
    return [item for _, item in zip(range(count), waiting, strict=False)]


def _result(task: "asyncio.Task[T]", row: int) -> T:
    try:
        return task.result()
    except GatewayError as error:
        raise GatewayError(error.status, error.reason, f"row {row}: {error.message}") from error
    except DecodeError as error:
        raise DecodeError(f"row {row}: {error}") from error


async def _cancel(tasks: "Iterable[asyncio.Task[T]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
