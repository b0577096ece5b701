import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.clock import LoopClock

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Their transports pause, close and half-close differently."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run each test on the event loops in its module's `LOOPS`, and the tests of each transport on both by default.
    The clock of uvloop cannot be moved."""
    one = {"asyncio": asyncio.new_event_loop}
    if "loop_clock" in getattr(item, "fixturenames", ()):
        return one
    default = LOOPS if item.path.parent != Path(__file__).parent else one
    loops: Mapping[str, LoopFactory] = getattr(getattr(item, "module", None), "LOOPS", default)
    return loops


@pytest.fixture
async def loop_clock() -> LoopClock:
    return LoopClock()
