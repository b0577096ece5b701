"""Serve the admin port's ASGI application with uvicorn, with limits on the number and the duration of connections."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.admin.access import ASGI
from gateway.core.address import Address, peer_address
from gateway.core.frozen import replace
from gateway.core.log_limit import LogLimit
from gateway.core.protocol import ListenerSettings
from gateway.core.tasks import spawn
from gateway.transports.listener_connections import PORT_CONNECTIONS, Admission, ConnectionLimit, ListenerConnections
from gateway.transports.timeouts import PORT_TIMEOUTS
from gateway.transports.tls import accepting

if TYPE_CHECKING:
    from gateway.admin.access import AccessCheck

CONNECTION_SECONDS = 30.0
"""Maximum duration of a connection, in seconds. This duration is longer than the playground's maximum wait for a
response."""


_uvicorn_log = logging.getLogger("uvicorn.error")
_uvicorn_log.addFilter(LogLimit(_uvicorn_log).passes)
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
    b"too many requests are served\n"
)


class _ShortConnection(HttpToolsProtocol):
    """A connection, which counts in `admitted`. The server closes the connection after PORT_TIMEOUTS.first_byte seconds
    without a byte, and at the latest after CONNECTION_SECONDS. uvicorn itself waits without limit for the first request
    and for the rest of an incomplete request. `ListenerConnections` calls `unanswered`, `awaits_client`, `drain` and
    `terminate`."""

    unanswered = 0  # ListenerConnections adds it to the totals of all connections

    def __init__(self, admitted: ListenerConnections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._admitted = admitted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._closing = self.loop.call_later(CONNECTION_SECONDS, transport.abort)
        self._silent = self.loop.call_later(PORT_TIMEOUTS.first_byte, transport.abort)
        admission = self._admitted.admit(self, peer_address(transport.get_extra_info("peername")))
        if admission is Admission.REFUSED:
            transport.write(_TOO_MANY)
        if admission is not Admission.ACCEPTED:  # a dropped connection gets no response
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._silent.cancel()
        if not self.transport.is_closing():
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._admitted.discard(self)
        self._closing.cancel()
        self._silent.cancel()

    @property
    def awaits_client(self) -> bool:
        """Return True if the gateway is waiting for the client to send a request or read a response."""
        request: RequestResponseCycle | None = self.cycle
        return request is None or request.response_complete or request.more_body or self.flow.write_paused

    def drain(self) -> None:
        """Close the connection after the last response."""
        self.shutdown()

    def terminate(self) -> None:
        """Close the connection immediately."""
        self.connections.discard(self)
        self.transport.abort()


class _Server(uvicorn.Server):
    """A uvicorn server that installs no signal handlers, because the gateway installs handlers itself."""

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
    """Serves one application. `access` is the part of the application that checks credentials, if any. `tls` is the
    same as in ListenerSettings."""

    address: str
    """The server's `host:port`, set by `start`."""

    def __init__(
        self,
        application: ASGI,
        access: "AccessCheck | None" = None,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self.access = access
        limit = ConnectionLimit(PORT_CONNECTIONS, makes_room=True)
        self._connections = ListenerConnections("admin", shared_limit=limit)
        settings = ListenerSettings("admin", tls=tls)

        def accepted(**arguments: Any) -> asyncio.BaseProtocol:
            serve = partial(_ShortConnection, self._connections, **arguments)
            # uvicorn calls `accepted` for each connection, so the factory is created and used immediately
            return accepting(settings, serve, self._connections, PORT_TIMEOUTS)()

        config = uvicorn.Config(
            application,
            http=cast(type[asyncio.Protocol], accepted),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            # Pages of other origins also cannot load responses as scripts or images.
            headers=[("Cross-Origin-Resource-Policy", "same-origin")],
            # uvicorn also counts requests whose clients have disconnected. `+ 1` because uvicorn refuses a request when
            # the limit is reached, and counts the request's own connection.
            limit_concurrency=PORT_CONNECTIONS + 1,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> None:
        """Bind and accept connections. Raises OSError if the address cannot be bound.

        This method binds the socket itself, because uvicorn ends the process if it cannot bind."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.create_server((address.host, address.port), family=family)
        self.address = str(replace(address, port=sock.getsockname()[1]))
        self._task = spawn(self._server.serve([sock]))
        await self._server.accepting.wait()

    async def stop(self) -> None:
        """Close the port without waiting for open connections, because their requests get a response immediately."""
        if self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._task
            self._connections.begin_draining()
