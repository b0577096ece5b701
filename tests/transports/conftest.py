import asyncio
from collections.abc import Callable, Mapping

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Run each test on the event loops in its module's `LOOPS`."""
    module = getattr(item, "module", None)
    loops: Mapping[str, LoopFactory] = getattr(module, "LOOPS", {"asyncio": asyncio.new_event_loop})
    return loops
