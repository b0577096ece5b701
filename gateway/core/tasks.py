"""Background tasks that are not forgotten."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.core.errors import GatewayError

log = logging.getLogger(__name__)

T = TypeVar("T")

_running: set["asyncio.Task[Any]"] = set()


def spawn(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A task that lives until it is done: the loop itself keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def outlived_by(task: "asyncio.Task[T]") -> T:
    """The result of a task that goes on if whoever waits here gives up. Its error is then nobody's: the log tells it,
    in one line if it is a GatewayError."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_abandoned)
        raise
    finally:
        del task  # it holds its error, whose traceback holds this frame


def _abandoned(task: "asyncio.Task[Any]") -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, GatewayError):
        log.info("a call that nobody waits for failed: %s", error.message)
    elif error is not None:
        log.error("unexpected error in a call that nobody waits for", exc_info=error)
