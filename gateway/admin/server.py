"""ASGI applications on uvicorn."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import uvicorn

from gateway.core.address import Address
from gateway.core.tasks import spawn
from gateway.core.values import replace

ASGI: TypeAlias = Callable[..., Awaitable[None]]


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
        config = uvicorn.Config(application, log_config=None, access_log=False, lifespan="off", server_header=False)
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
