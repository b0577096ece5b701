"""Serves an ASGI application with uvicorn, with limits on connections and their duration."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.admin.host_check import ASGI
from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.protocol import ListenerSettings
from gateway.core.tasks import spawn
from gateway.transports.listener_connections import ConnectionLimit, ListenerConnections
from gateway.transports.timeouts import DEFAULT_TIMEOUTS
from gateway.transports.tls import accepting

if TYPE_CHECKING:
    from gateway.admin.access import AccessCheck

MAX_CONNECTIONS = 64
"""Open connections; requests on further ones are answered 503."""
CONNECTION_SECONDS = 30.0
"""The longest that a connection may stay open."""


class _ShortConnection(HttpToolsProtocol):
    """A connection that is closed after CONNECTION_SECONDS. uvicorn itself waits without limit for the first request
    and for the rest of an incomplete one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._closing = self.loop.call_later(CONNECTION_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._closing.cancel()


class _Server(uvicorn.Server):
    """A uvicorn server that installs no signal handlers, since the gateway has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


GATHERED = ("/status", "/api/traffic", "/api/errors", "/api/requests", "/api/keys")
"""The paths that tell what was counted."""


def gathering(application: ASGI, gather: Callable[[], Awaitable[None]]) -> ASGI:
    """`application`, which awaits `gather` before it tells what was counted."""

    async def gathered(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") in GATHERED:
            await gather()
        await application(scope, receive, send)

    return gathered


class AdminServer:
    """Serves one application. `access` is the part of it that asks for credentials, if there is one. `tls` is as in
    ListenerSettings."""

    address: str
    """`host:port`; set by `start`."""

    def __init__(
        self,
        application: ASGI,
        access: "AccessCheck | None" = None,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self.access = access
        self._handshakes = ListenerConnections("admin", shared_limit=ConnectionLimit(MAX_CONNECTIONS))
        settings = ListenerSettings("admin", tls=tls)

        def accepted(**arguments: Any) -> asyncio.BaseProtocol:
            serve = partial(_ShortConnection, **arguments)
            return accepting(settings, serve, self._handshakes, DEFAULT_TIMEOUTS)()

        config = uvicorn.Config(
            application,
            http=_ShortConnection if tls is None else cast(type[asyncio.Protocol], accepted),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            # uvicorn counts the request's own connection and already refuses when the limit is reached
            limit_concurrency=MAX_CONNECTIONS + 1,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> None:
        """Bind and accept connections. Raises OSError if the address cannot be bound.

        The socket is bound here because uvicorn ends the process when it cannot bind.
        """
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.create_server((address.host, address.port), family=family)
        self.address = str(replace(address, port=sock.getsockname()[1]))
        self._task = spawn(self._server.serve([sock]))
        await self._server.accepting.wait()

    async def stop(self) -> None:
        """Close the port without waiting for open connections: their requests are answered at once."""
        if self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._task
            await self._handshakes.end(0)
