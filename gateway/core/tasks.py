"""Background tasks that the garbage collector cannot remove before they end. If a task fails and no caller waits for
it, the module logs the error."""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from gateway.core.errors import GatewayError
from gateway.core.log_limit import LogLimit

log = logging.getLogger(__name__)
_lines = LogLimit(log)

T = TypeVar("T")

_running: set["asyncio.Task[Any]"] = set()


def spawn(coroutine: Coroutine[Any, Any, T], context: Context | None = None) -> "asyncio.Task[T]":
    """Start a task in a copy of the current context, or in `context`. The module keeps a reference to the task until it
    is done, because the event loop keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(coroutine, context=context)
    keep(task)
    return task


def keep(task: "asyncio.Task[Any]") -> None:
    """Keep a reference to a task until it is done."""
    _running.add(task)
    task.add_done_callback(_running.discard)


async def outlived_by(task: "asyncio.Task[T]") -> T:
    """Wait for `task`, and return its result. If the caller is cancelled, the task continues.

    If the caller was cancelled and the task then fails, the module logs the error (a GatewayError in one line). The
    module keeps a reference to the task until it is done.

    `asyncio.shield` does the same, but with two more callbacks."""
    waiter: asyncio.Future[T] = task.get_loop().create_future()
    _running.add(task)
    task.add_done_callback(partial(_ended, waiter))
    try:
        return await waiter
    except asyncio.CancelledError:
        if not waiter.cancelled():  # the task ended just before the caller was cancelled
            _log_unseen(waiter.exception())
        raise
    finally:
        del task, waiter  # breaks a cycle: they hold the task's error, whose traceback holds this frame


def _ended(waiter: "asyncio.Future[T]", task: "asyncio.Task[T]") -> None:
    """Pass the result or error of `task` to the caller, unless the caller was cancelled."""
    _running.discard(task)
    error = None if task.cancelled() else task.exception()
    if waiter.cancelled():
        _log_unseen(error)
    elif error is not None:
        waiter.set_exception(error)
    elif task.cancelled():
        waiter.cancel()
    else:
        waiter.set_result(task.result())


def _log_unseen(error: BaseException | None) -> None:
    """Log the error, if any, of a task for which no caller waits."""
    if isinstance(error, GatewayError):
        _lines.write("failed", logging.INFO, "an abandoned call failed: %s", error.message)
    elif error is not None:
        log.error("unexpected error in an abandoned call", exc_info=error)
