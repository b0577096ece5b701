"""Servers in a thread and an event loop of their own: a Client blocks the loop of its caller."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from threading import Thread
from typing import Any, TypeVar

from gateway.assembly.registry import protocols
from gateway.client import AsyncClient
from tests.paused_server import Held, held
from tests.running_gateway import reference

T = TypeVar("T")

WIRE_FORMS = tuple(protocols())
NAMELESS = tuple(name for name, each in protocols().items() if not each.names_models)
"""Protocols whose servers have one model."""


@contextmanager
def elsewhere(context: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[tuple[asyncio.AbstractEventLoop, T]]:
    """What the asynchronous context gives, while it is open in the loop of another thread."""
    opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, T]] = Future()

    async def hold() -> None:
        async with context() as each:
            end = asyncio.Event()
            opened.set_result((asyncio.get_running_loop(), end, each))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(hold())
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = Thread(target=run)
    thread.start()
    try:
        loop, end, each = opened.result()
        try:
            yield loop, each
        finally:
            loop.call_soon_threadsafe(end.set)
    finally:
        thread.join()


@contextmanager
def served(protocol: str, *models: str) -> Iterator[str]:
    """The address, as a client writes it, of a reference server of bundled models."""
    with elsewhere(lambda: reference(protocol, *models)) as (_, address):
        yield f"{protocol}://{address.rpartition('://')[2]}"


@asynccontextmanager
async def asynchronous_client(protocol: str, *models: str, **arguments: Any) -> AsyncIterator[AsyncClient]:
    """An asynchronous client of such a server."""
    with served(protocol, *models) as address:
        async with AsyncClient(address, **arguments) as client:
            yield client


@contextmanager
def holding() -> Iterator[tuple[asyncio.AbstractEventLoop, Held]]:
    """A V2 server that answers no request before it is told to."""
    with elsewhere(held) as found:
        yield found
