"""Functions that keep long work on the event loop from delaying requests. The work runs in steps of a few milliseconds,
with garbage collection in small parts. Reloads, file discovery and readers of load pages use this module."""

import asyncio
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

TURN = 0.002
"""Duration, in seconds, of a slice of work that does not noticeably delay requests."""


async def between_requests(steps: Iterable[None], turn: float = TURN) -> None:
    """Run the `steps` of long work. After every `turn` seconds, the event loop can run other tasks."""
    until = perf_counter() + turn
    for _ in steps:
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + turn


_SMALL_COLLECTIONS = (4_000, 2, 1_000_000)
"""Thresholds for the three generations. The collector handles young objects in small numbers, and never handles old
objects."""


@contextmanager
def small_collections() -> Iterator[None]:
    """Return a context in which garbage collection runs often and in small parts, so every collection takes at most a
    few milliseconds. A configuration with 1,000 routes creates 250,000 objects. A full collection would traverse all of
    them while requests wait, and find no garbage. Use this context only for a few seconds of work, because it leaves
    old garbage for a later collection."""
    before = gc.get_threshold()
    gc.set_threshold(*_SMALL_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
