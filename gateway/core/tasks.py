"""Background tasks that are kept until they are done, and whose errors are logged if nobody waits for them."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.core.errors import GatewayError
from gateway.core.log_limit import LogLimit

log = logging.getLogger(__name__)
_lines = LogLimit(log)

T = TypeVar("T")

_running: set["asyncio.Task[Any]"] = set()


def spawn(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task and keep a reference until it is done: the event loop itself keeps only a weak one."""
    task = asyncio.get_running_loop().create_task(coroutine)
    keep(task)
    return task


def keep(task: "asyncio.Task[Any]") -> None:
    """Keep a reference to a task until it is done."""
    _running.add(task)
    task.add_done_callback(_running.discard)


async def outlived_by(task: "asyncio.Task[T]") -> T:
    """The result of `task`, which goes on if the caller is cancelled. Its error is then logged, a GatewayError in one
    line."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_abandoned)
        raise
    finally:
        del task  # breaks a cycle: the task holds its error, the error's traceback holds this frame


def _abandoned(task: "asyncio.Task[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, GatewayError):
        _lines.write("failed", logging.INFO, "a call that nobody waits for failed: %s", error.message)
    elif error is not None:
        log.error("unexpected error in a call that nobody waits for", exc_info=error)
