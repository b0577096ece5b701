"""ASGI applications on uvicorn."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.tasks import spawn

ASGI: TypeAlias = Callable[..., Awaitable[None]]


CONNECTIONS = 64
"""More are answered 503."""
CONNECTION_SECONDS = 30.0


class _ShortConnection(HttpToolsProtocol):
    """A connection that ends after a while, whatever its client does: uvicorn waits for ever for the first request, and
    for the rest of one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end = self.loop.call_later(CONNECTION_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end.cancel()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those are the gateway's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


class AdminServer:
    """Serves one application."""

    address: str
    """`host:port`, once started."""

    def __init__(self, application: ASGI) -> None:
        config = uvicorn.Config(
            application,
            http=_ShortConnection,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=CONNECTIONS,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> None:
        """Bind, and accept connections. Raises OSError where that cannot be: uvicorn itself would end the process."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.create_server((address.host, address.port), family=family)
        self.address = str(replace(address, port=sock.getsockname()[1]))
        self._task = spawn(self._server.serve([sock]))
        await self._server.accepting.wait()

    async def stop(self) -> None:
        """Close. Open connections are not waited for: what they ask for takes no time."""
        if self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._task
