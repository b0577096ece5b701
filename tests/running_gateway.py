"""Gateways and reference servers that run in the test's own event loop, and listen on real ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.config import Config, loads, reference_config
from gateway.runtime.app import Gateway
from tests.limits import GENEROUS


def config_of(text: str) -> Config:
    """The configuration `text`, without environment variables."""
    return loads(text, "test.yaml", catalog(), {})


@asynccontextmanager
async def running_gateway(text: str | Config, drain: float = 0) -> AsyncIterator[Gateway]:
    """A gateway of this configuration. The test has GENEROUS seconds for it; then its calls have `drain` seconds."""
    gateway = Gateway(config_of(text) if isinstance(text, str) else text)
    await gateway.start()
    try:
        async with asyncio.timeout(GENEROUS):
            yield gateway
    finally:
        await gateway.drain(drain)


@asynccontextmanager
async def reference(protocol: str, *models: str, bind: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address of a reference server, without TLS."""
    config = reference_config(protocol, bind, models, catalog())
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    try:
        yield listener.address
    finally:
        await listener.drain(0)
