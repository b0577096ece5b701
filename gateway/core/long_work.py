"""Long work on the event loop that does not delay requests: in steps of a few milliseconds, and with garbage collection
in small parts. Reloads, file discovery and readers of load pages use it."""

import asyncio
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

TURN = 0.002
"""Duration of a slice of work, in seconds, that does not noticeably delay requests."""


async def between_requests(steps: Iterable[None], turn: float = TURN) -> None:
    """Do long work in steps. The event loop runs after every `turn` seconds of steps."""
    until = perf_counter() + turn
    for _ in steps:
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + turn


_SMALL_COLLECTIONS = (4_000, 2, 1_000_000)
"""Thresholds of the three generations: the collector handles young objects in small numbers, and old objects never."""


@contextmanager
def small_collections() -> Iterator[None]:
    """Within the block, garbage collection runs often and in small parts, so every collection takes at most a few
    milliseconds. A configuration with a thousand routes creates a quarter of a million objects. One full collection
    would traverse all of them while requests wait, and find no garbage. Use this context only for work of a few
    seconds, because it leaves old garbage for a later collection."""
    before = gc.get_threshold()
    gc.set_threshold(*_SMALL_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
