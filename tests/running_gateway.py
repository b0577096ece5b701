"""A gateway that runs in the test's own event loop, and listens on real ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.cli.options import catalog
from gateway.config import loads
from gateway.runtime.app import Gateway
from tests.limits import GENEROUS


@asynccontextmanager
async def running_gateway(text: str) -> AsyncIterator[Gateway]:
    """A gateway of the configuration `text`. The test has GENEROUS seconds for it."""
    gateway = Gateway(loads(text, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        async with asyncio.timeout(GENEROUS):
            yield gateway
    finally:
        await gateway.drain(0)
