"""Runs a coroutine on uvloop, with interpreter settings for an event loop that serves requests."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any

SWITCH_INTERVAL = 0.0005
"""Seconds after which the event loop's thread can request the GIL from a thread that encodes or decodes.

With Python's default of 5 ms, the loop never requests the GIL from a thread that releases it more often but only for
microseconds, as numpy does when it converts numbers. With the default, writing 12 million FP32 as JSON blocked the loop
for 150 to 300 ms; with this value, 20 ms."""


COLLECT_AFTER = 25_000
"""Number of new objects after which a garbage collection begins.

A request in flight has about 30 objects. With Python's default of 700, a few dozen requests trigger one collection
after another. These find no garbage, and every hundredth collection also scans the objects of all idle connections.
With this value, 256 requests in flight trigger no collection."""


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to completion.

    It runs on uvloop or, on Windows, which uvloop does not support, on Python's own event loop."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Imported modules live as long as the process, so freeze them: the garbage collector does not need to scan them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if sys.platform == "win32":
        asyncio.run(program)
    else:
        import uvloop

        uvloop.run(program)
