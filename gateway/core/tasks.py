"""Background tasks that are not forgotten."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_running: set["asyncio.Task[Any]"] = set()


def spawn(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """A task that lives until it is done: the loop itself keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
