"""Runs a program on uvloop, with the interpreter set up for an event loop that serves requests."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any

SWITCH_INTERVAL = 0.0005
"""Seconds after which the event loop's thread can request its turn from a thread that encodes or decodes. With Python's
5 ms, it never makes a request to a thread that releases the interpreter more often, for microseconds. Threads release
it in this way when numpy converts numbers: writing 12 million FP32 as JSON blocked the loop for 150 to 300 ms, and
blocks it for 20 ms with this value."""


COLLECT_AFTER = 25_000
"""Number of additional objects since the last garbage collection at which the next one begins. A request in flight has
about 30 objects. With Python's 700, a few dozen requests start one collection after the other, which find no garbage,
and every hundredth collection also scans all objects of all idle connections. With this value, 256 requests in flight
start no collection."""


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it returns, on uvloop; on Windows, which uvloop does not support, on Python's loop."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Imported modules live as long as the process: the garbage collector does not need to scan frozen ones.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if sys.platform == "win32":
        asyncio.run(program)
    else:
        import uvloop

        uvloop.run(program)
