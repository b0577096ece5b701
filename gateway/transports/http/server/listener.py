"""The HTTP/1.1 listener: accepts clients at one address."""

import asyncio
from collections.abc import Sequence

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.patterns import PathTable
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.base_listener import BaseListener
from gateway.transports.first_bytes import Opening
from gateway.transports.http.address import ALPN
from gateway.transports.http.server.bounded_connection import BoundedConnection
from gateway.transports.http.server.connection import HttpContext, ServerConnection, refusal_noter
from gateway.transports.http.server.http2_refusal import Http2Refusal
from gateway.transports.http.server.whole_heads import WholeHeads
from gateway.transports.listener_connections import PROCESS_CONNECTIONS, ConnectionLimit, ListenerConnections
from gateway.transports.sockets import bound_server, stop_accepting
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts
from gateway.transports.tls import accepting


class HttpListener(BaseListener):
    """Serves `protocols`, each below its path prefix, at one address. At most `connection_limit` clients are connected,
    those of other listeners with the same limit included. As a part of a shared listener it has that one's
    `connections`."""

    opening = Opening(alpn=ALPN)

    address: str
    """`host:port`, once started."""

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        connection_limit: ConnectionLimit = PROCESS_CONNECTIONS,
        connections: ListenerConnections | None = None,
    ) -> None:
        own = ListenerConnections.of(settings, connection_limit) if connections is None else connections
        super().__init__(own)
        self._context = _context(settings, protocols, exchanges, timeouts, self._connections)
        self._connection = self._connection_class(settings)
        self._accept = accepting(settings, self.serve, self._connections, timeouts)
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or not of this machine.
        """
        self._server = await bound_server(self._make_connection, address)
        self.address = str(replace(address, port=self._server.sockets[0].getsockname()[1]))
        await self._server.start_serving()

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Empty: any protocols over HTTP can follow each other."""
        return ""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> list[asyncio.Task[None]]:
        """As in every Listener."""
        timeouts = self._context.timeouts
        self._context = context = _context(settings, protocols, exchanges, timeouts, self._connections)
        self._connection = self._connection_class(settings)
        self._accept = accepting(settings, self.serve, self._connections, timeouts)
        connections = self._connections.renew(settings)
        for each in connections:
            if isinstance(each, Http2Refusal):
                each.renew(context, refusal_noter(context))
        tasks = (each.renew(context) for each in connections if isinstance(each, ServerConnection))
        return [task for task in tasks if task is not None]

    def _connection_class(self, settings: ListenerSettings) -> type[ServerConnection]:
        return BoundedConnection if self._connections.are_bounded(settings.limits) else ServerConnection

    def announce_end(self) -> None:
        """From now on every reply says `Connection: close` and is the last one on its connection."""
        self._connections.ending = True

    async def stop_accepting(self) -> None:
        """As in every Listener."""
        self._connections.begin_draining()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server, self._make_connection)

    def _make_connection(self) -> asyncio.BaseProtocol:
        return self._accept()

    def serve(self) -> ServerConnection:
        """The connection of a new client, after the TLS handshake."""
        return self._connection(self._context)


def _context(
    settings: ListenerSettings,
    protocols: Sequence[tuple[Protocol, str]],
    exchanges: Exchanges,
    timeouts: Timeouts,
    connections: ListenerConnections,
) -> HttpContext:
    table = PathTable(protocols)
    return HttpContext(
        settings.limits,
        timeouts,
        connections,
        table,
        WholeHeads(table, settings.limits),
        exchanges.exchange,
        exchanges.stream,
        exchanges.refuse,
        exchanges.record,
        exchanges.admit,
    )
