"""The HTTP/1 listener: an asyncio.Protocol on httptools."""

import asyncio
from collections.abc import Sequence

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.patterns import PathTable
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.http.server.connection import Connection
from gateway.transports.http.server.head_cache import KnownHeads
from gateway.transports.http.server.replying import Site
from gateway.transports.listener_connections import PROCESS, Connections, Room
from gateway.transports.sockets import BACKLOG, keep_probing, stop_accepting
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class HttpListener:
    """Accepts clients of `protocols`, each below its prefix, at one address."""

    address: str
    """`host:port`, once started."""

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        room: Room = PROCESS,
    ) -> None:
        self._connections = Connections(settings.name, settings.limits.connections, room)
        table = PathTable(protocols)
        self._site = Site(
            settings.limits,
            timeouts,
            self._connections,
            table,
            KnownHeads(table, settings.limits.headers),
            exchanges.exchange,
            exchanges.stream,
            exchanges.refuse,
        )
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or none of this machine.
        """
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, address.host, address.port, backlog=BACKLOG, start_serving=False
        )
        for sock in self._server.sockets:
            keep_probing(sock)
        self.address = str(replace(address, port=self._server.sockets[0].getsockname()[1]))
        await self._server.start_serving()

    def announce_end(self) -> None:
        """From now on every reply says `Connection: close`, and is the last one on its connection."""
        self._connections.ending = True

    async def drain(self, seconds: float) -> int:
        """Accept no more, let each connection end after its last reply, for at most `seconds`, then break off. Returns
        the number of requests given up."""
        self._connections.begin_draining()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server, self._connection)
        return await self._connections.end(seconds)

    @property
    def refused_connections(self) -> int:
        """As of any Listener."""
        return self._connections.refused

    def _connection(self) -> Connection:
        return Connection(self._site)
