"""The memory that Python takes within a block."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


class Traced:
    """Bytes, known after the block: at most at once, and at its end."""

    peak = 0
    left = 0


@contextmanager
def traced() -> Iterator[Traced]:
    """Within, memory is counted, however the block ends. The values are known behind it."""
    found = Traced()
    tracemalloc.start()
    try:
        yield found
    finally:
        found.left, found.peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
