"""The base class for the listeners of all transports. It accepts clients, closes their connections, and counts them."""

import asyncio
from abc import ABC, abstractmethod

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.protocol import ListenerSettings
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.sockets import bound_server, stop_accepting
from gateway.transports.timeouts import Timeouts
from gateway.transports.tls import accepting


class BaseListener(ABC):
    """The part of a Listener that does not depend on the protocol and does not handle requests."""

    address: str
    """The address as `host:port`, which is set by `start`."""

    def __init__(self, settings: ListenerSettings, connections: ListenerConnections | None, timeouts: Timeouts) -> None:
        self._connections = ListenerConnections.of(settings) if connections is None else connections
        self._timeouts = timeouts
        self._server: asyncio.Server | None = None
        self._accept_with(settings)

    @abstractmethod
    def serve(self) -> asyncio.BaseProtocol:
        """Return the connection object for a new client, after the TLS handshake."""

    def _accept_with(self, settings: ListenerSettings) -> None:
        """Use these settings for clients that connect from now on."""
        self._is_bounded = self._connections.are_bounded(settings.limits)
        """True if the listener limits the requests or the age of connections, or sheds load."""
        self._accept = accepting(settings, self.serve, self._connections, self._timeouts)

    def _make_connection(self) -> asyncio.BaseProtocol:
        connection = self._accept()
        self._connections.add_created(connection)
        return connection

    async def start(self, address: Address) -> None:
        """Bind the address, and accept connections.

        Raises:
            OSError: the address is in use, not allowed, or not an address of this machine.
        """
        self._server = await bound_server(self._make_connection, address)
        self.address = str(replace(address, port=self._server.sockets[0].getsockname()[1]))
        await self._server.start_serving()

    async def stop_accepting(self) -> None:
        """See `Listener.stop_accepting`."""
        self._connections.begin_draining()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server, self._make_connection)

    async def drain(self, seconds: float) -> int:
        """Accept no more connections, and close open connections after their last replies. After `seconds`, terminate
        the remaining connections. Return the number of unanswered requests."""
        await self.stop_accepting()
        return await self._connections.end(seconds)

    @property
    def refused_connections(self) -> int:
        """See `Listener.refused_connections`."""
        return self._connections.refused

    @property
    def unrecognised_connections(self) -> int:
        """See `Listener.unrecognised_connections`."""
        return self._connections.unrecognised

    @property
    def open_connections(self) -> int:
        """See `Listener.open_connections`."""
        return self._connections.accepted

    @property
    def unanswered_requests(self) -> int:
        """See `Listener.unanswered_requests`."""
        return self._connections.unanswered
