"""Runs a program on uvloop, with the interpreter set up for an event loop that serves requests."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any

SWITCH_INTERVAL = 0.0005
"""Seconds after which the event loop's thread may ask a thread that encodes or decodes for its turn. At Python's 5 ms
it never asks one that gives its turn away more often, for microseconds, as numpy does when it converts numbers: the
loop stood still for 150 to 300 ms while 12 million FP32 were written as JSON, and stands for 20 ms with this."""


COLLECT_AFTER = 25_000
"""Objects that exist more than at the last collection of garbage, at which the next one begins. A request in flight has
about 30: at Python's 700 a few dozen of them begin one after the other, which find nothing to collect, and every
hundredth looks at all objects of all idle connections as well. 256 in flight begin none with this."""


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it returns, on uvloop; on Windows, which has none, on the loop of Python."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    # Imported modules live as long as the process: freezing them spares the garbage collector from scanning them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    if sys.platform == "win32":
        asyncio.run(program)
    else:
        import uvloop

        uvloop.run(program)
