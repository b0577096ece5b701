"""Functions that keep many tasks, or a periodic task, running after an unexpected error. They log the exception, and
the work continues.

    for connection in list(connections):
        with log_and_continue("the look at a connection"):
            connection.look_after()

Without this module, the first exception would stop a timer or loop for all of its items. Use it only for unexpected
errors, because errors of normal operation have their own handlers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gateway.core.log_limit import LogLimit

T = TypeVar("T")

log = logging.getLogger(__name__)
_lines = LogLimit(log, lines=1)


@contextmanager
def log_and_continue(what: str, *expected: type[Exception]) -> Iterator[None]:
    """Return a context that ends its block if the block raises an exception. The exception is logged with its
    traceback, at most once a minute for each `what`. `expected` exceptions, cancellation and process exit are raised as
    usual."""
    try:
        yield
    except Exception as error:
        if isinstance(error, expected):
            raise
        log_survived(what, error)


async def all_surviving(what: str, waits: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all awaitables in parallel.

    Return the results of the successful awaitables in order. `log_and_continue` logs each failure. If the caller is
    cancelled, all tasks are cancelled."""
    found = await asyncio.gather(*waits, return_exceptions=True)
    results: list[T] = []
    for each in found:
        if isinstance(each, Exception):
            log_survived(what, each)
        elif isinstance(each, BaseException):
            raise each
        else:
            results.append(each)
    return results


def log_survived(what: str, error: Exception) -> None:
    """Log an error that must not stop other work, at most once a minute for each `what`. Use this in code that runs too
    often for `log_and_continue`."""
    _lines.write(what, logging.ERROR, "unexpected error in %s; everything else continues", what, error=error)
