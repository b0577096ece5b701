"""Garbage collection in small parts while much is built."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SMALL = (4_000, 2, 1_000_000)
"""Thresholds of the three generations: young objects are looked at while there are few of them, and old ones not at
all."""


@contextmanager
def small_collections() -> Iterator[None]:
    """Within, garbage is collected often and in small parts: no collection takes more than a few milliseconds. A
    configuration of a thousand routes is a quarter of a million objects, which one collection would look at together
    while requests wait, and find nothing to collect. For work of a few seconds: old garbage is collected afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*_SMALL)
    try:
        yield
    finally:
        gc.set_threshold(*before)
