import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.skipping_loop import SkippingLoop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LOOPS: Mapping[str, LoopFactory] = {"asyncio": SkippingLoop, "uvloop": uvloop.new_event_loop}
"""Their transports pause, close and half-close differently."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run each test on the event loops in its module's `LOOPS`, and the tests of each transport on both by default."""
    default = LOOPS if item.path.parent != Path(__file__).parent else {"asyncio": SkippingLoop}
    loops: Mapping[str, LoopFactory] = getattr(getattr(item, "module", None), "LOOPS", default)
    return loops
