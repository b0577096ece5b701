"""Runs a program on uvloop, with the interpreter set up for an event loop that serves requests."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any

SWITCH_INTERVAL = 0.0005
"""Seconds after which the event loop's thread can request its turn from a thread that encodes or decodes.

With Python's default of 5 ms, it never requests its turn from a thread that releases the interpreter more often, for
microseconds. Threads release it in this way when numpy converts numbers. With Python's default, writing 12 million FP32
as JSON blocked the loop for 150 to 300 ms; with this value, it blocks the loop for 20 ms."""


COLLECT_AFTER = 25_000
"""Number of additional objects since the last garbage collection at which the next collection begins.

A request in flight has about 30 objects. With Python's default of 700, a few dozen requests start one collection after
the other. These find no garbage, and every hundredth collection also scans all objects of all idle connections. With
this value, 256 requests in flight start no collection."""


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it returns.

    It runs on uvloop, or on Python's loop on Windows, which uvloop does not support."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Imported modules live as long as the process, so the garbage collector does not need to scan them after a freeze.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if sys.platform == "win32":
        asyncio.run(program)
    else:
        import uvloop

        uvloop.run(program)
