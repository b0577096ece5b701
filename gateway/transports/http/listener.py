"""The HTTP/1 listener: an asyncio.Protocol on httptools."""

import asyncio
from collections.abc import Sequence

from gateway.core.address import Address
from gateway.core.patterns import PathTable
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.core.values import replace
from gateway.transports.http.connection import Connection
from gateway.transports.http.known_heads import KnownHeads
from gateway.transports.http.replying import Site
from gateway.transports.lifecycle import Lifecycle
from gateway.transports.sockets import BACKLOG, keep_probing
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
    ) -> None:
        self._connections: set[Lifecycle] = set()
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
            lambda: Connection(self._site), address.host, address.port, backlog=BACKLOG, start_serving=False
        )
        for sock in self._server.sockets:
            keep_probing(sock)
        self.address = str(replace(address, port=self._server.sockets[0].getsockname()[1]))
        await self._server.start_serving()

    async def drain(self, seconds: float) -> None:
        """Accept no more and close what is idle; let what is in flight finish for at most `seconds`, then break off."""
        if self._server is not None:
            self._server.close()
        closed = [connection.drain() for connection in list(self._connections)]
        if closed:
            await asyncio.wait(closed, timeout=seconds)
        for connection in list(self._connections):
            connection.abort()
        if closed:
            await asyncio.wait(closed)
