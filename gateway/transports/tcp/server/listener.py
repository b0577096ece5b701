"""The listener of byte streams, over TCP or at a unix socket."""

import asyncio
from collections.abc import Sequence

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.protocol import ListenerSettings, Protocol, StreamForm
from gateway.core.transport import Exchanges
from gateway.transports.listener_connections import Connections
from gateway.transports.sockets import BACKLOG, keep_probing, stop_accepting
from gateway.transports.tcp.packets import SCRATCH_BYTES
from gateway.transports.tcp.server.connection import Connection, Site
from gateway.transports.tcp.server.unix_socket import UnixSocket
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts

AT_ONCE = 256
"""Requests of one multiplexed connection in flight; more stay in the kernel, which holds the client back."""


class TcpListener:
    """Accepts clients of one protocol, which has a Framing, at one address: nothing on a byte stream tells whose it is.

    Raises:
        ValueError: several protocols, or one without a Framing.
    """

    address: str
    """`tcp://host:port` or `unix:///path`, once started."""

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        [(protocol, _)] = protocols
        if not isinstance(protocol.carrier, StreamForm):
            raise ValueError(f"{protocol.name} has no framing, so it is no protocol for a byte stream")
        self._connections = Connections(settings.name, settings.limits.connections)
        self._site = Site(
            settings.limits,
            timeouts,
            self._connections,
            protocol,
            exchanges.exchange,
            exchanges.refuse,
            memoryview(bytearray(SCRATCH_BYTES)),
            1 if protocol.carrier.framing.tag is None else AT_ONCE,
        )
        self._server: asyncio.Server | None = None
        self._unix: UnixSocket | None = None

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or none of this machine.
        """
        self._server = await (self._bind_unix(address.path) if address.path else self._bind(address))
        port = 0 if address.path else self._server.sockets[0].getsockname()[1]
        self.address = str(replace(address, port=port, scheme="unix" if address.path else "tcp"))
        await self._server.start_serving()

    def announce_end(self) -> None:
        """Nothing to do: byte streams have no word for it. Requests are answered until `drain`."""

    async def drain(self, seconds: float) -> int:
        """Accept no more, let each connection end after its last reply, for at most `seconds`, then break off. Returns
        the number of requests given up. What still arrives on a multiplexed connection is refused meanwhile."""
        self._connections.begin_draining()
        if self._unix is not None:
            self._unix.remove()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server, self._connection)
        return await self._connections.end(seconds)

    async def _bind(self, address: Address) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(
            self._connection, address.host, address.port, backlog=BACKLOG, start_serving=False
        )
        for sock in server.sockets:
            keep_probing(sock)
        return server

    async def _bind_unix(self, path: str) -> asyncio.Server:
        self._unix = UnixSocket(path)
        return await asyncio.get_running_loop().create_unix_server(
            self._connection, sock=self._unix.socket, backlog=BACKLOG, start_serving=False
        )

    @property
    def refused_connections(self) -> int:
        """As of any Listener."""
        return self._connections.refused

    def _connection(self) -> Connection:
        return Connection(self._site)
