"""Garbage collection in small parts while many objects are created."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SMALL = (4_000, 2, 1_000_000)
"""Thresholds of the three generations: the collector handles young objects in small numbers, and old objects never."""


@contextmanager
def small_collections() -> Iterator[None]:
    """Within the block, garbage collection runs often and in small parts, so every collection takes at most a few
    milliseconds. A configuration with a thousand routes creates a quarter of a million objects. One full collection
    would traverse all of them while requests wait, and find no garbage. Use this context only for work of a few
    seconds, because it leaves old garbage for a later collection."""
    before = gc.get_threshold()
    gc.set_threshold(*_SMALL)
    try:
        yield
    finally:
        gc.set_threshold(*before)
