"""Run work that might never end, in a thread for which the process does not wait when it exits."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_thread(name: str, work: Callable[[], T]) -> T:
    """Run `work` in a thread called `name`, and return its result or raise its exception. If the caller is cancelled,
    the thread continues, and its result is ignored."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not done.done():
            set_outcome(outcome)

    def run() -> None:
        set_outcome: Callable[[Any], None]
        try:
            outcome: object = work()
            set_outcome = done.set_result
        except Exception as error:
            outcome, set_outcome = error, done.set_exception
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, set_outcome, outcome)

    Thread(target=run, name=name, daemon=True).start()
    return await done
