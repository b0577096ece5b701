"""The base class of all transports' listeners: where they accept clients, the end of their connections, and what they
count."""

import asyncio

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.protocol import ListenerSettings
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.sockets import bound_server, stop_accepting
from gateway.transports.timeouts import Timeouts
from gateway.transports.tls import accepting


class BaseListener:
    """A Listener without its wire. None of this is used by requests."""

    address: str
    """`host:port`, once started."""

    def __init__(self, settings: ListenerSettings, connections: ListenerConnections | None, timeouts: Timeouts) -> None:
        self._connections = ListenerConnections.of(settings) if connections is None else connections
        self._timeouts = timeouts
        self._server: asyncio.Server | None = None
        self._accept_with(settings)

    def serve(self) -> asyncio.BaseProtocol:
        """The connection of a new client, after the TLS handshake."""
        raise NotImplementedError

    def _accept_with(self, settings: ListenerSettings) -> None:
        """Serve the clients that connect from now on with these settings."""
        self._is_bounded = self._connections.are_bounded(settings.limits)
        """Whether connections may end, or refuse requests, before their clients want it."""
        self._accept = accepting(settings, self.serve, self._connections, self._timeouts)

    def _make_connection(self) -> asyncio.BaseProtocol:
        return self._accept()

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or not of this machine.
        """
        self._server = await bound_server(self._make_connection, address)
        self.address = str(replace(address, port=self._server.sockets[0].getsockname()[1]))
        await self._server.start_serving()

    async def stop_accepting(self) -> None:
        """As in every Listener."""
        self._connections.begin_draining()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server, self._make_connection)

    async def drain(self, seconds: float) -> int:
        """Accept no more connections, let those that are open end after their last reply, and terminate them after
        `seconds`. Returns the number of requests that were not answered."""
        await self.stop_accepting()
        return await self._connections.end(seconds)

    @property
    def refused_connections(self) -> int:
        """As in every Listener."""
        return self._connections.refused

    @property
    def unrecognised_connections(self) -> int:
        """As in every Listener."""
        return self._connections.unrecognised

    @property
    def open_connections(self) -> int:
        """As in every Listener."""
        return self._connections.accepted

    @property
    def unanswered_requests(self) -> int:
        """As in every Listener."""
        return self._connections.unanswered
