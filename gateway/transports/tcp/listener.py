"""The listener for byte streams on a TCP port or a unix socket, and its connections with limits.

Connections with limits have a separate class, so listeners without limits have no additional cost per message.
"""

import asyncio
from collections.abc import Sequence

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol, StreamBinding
from gateway.core.transport import Exchanges
from gateway.transports.base_listener import BaseListener
from gateway.transports.lifecycle import Lifespan
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.shared_listener import Opening
from gateway.transports.sockets import BACKLOG, UnixSocket
from gateway.transports.tcp.packets import SCRATCH_BYTES
from gateway.transports.tcp.server_connection import TcpContext, TcpServerConnection
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class BoundedTcpConnection(TcpServerConnection):
    """A connection with limits.

    At its limit, the connection closes after the last reply. If replies have a tag (brpc), the connection stays open,
    because brpc clients fail all calls for 3 s after a connection closes. When the gateway sheds load, it rejects
    requests before decompressing and decoding them."""

    def __init__(self, context: TcpContext) -> None:
        super().__init__(context)
        self._lifespan = Lifespan(context.limits, self._loop.time()) if self._framing.tag is None else None
        self._shedding = context.connections.shedding

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client."""
        super().connection_made(transport)
        if self._lifespan is not None:
            self._lifespan.call_at(self._loop, self._lifespan.ends_at, self.drain)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        if self._lifespan is not None:
            self._lifespan.stop()

    def begin(self, message: Message) -> None:
        error = self._shedding.refusal(len(message.parts[1])) if self._shedding is not None else None
        if error is not None:
            self._refuse(error, message)
        else:
            super().begin(message)
        if self._lifespan is not None and self._lifespan.is_last(self._loop.time()):
            self.drain()


MAX_IN_FLIGHT = 256
"""The maximum number of requests in flight on one multiplexed connection. Further requests stay in the kernel, so the
client must wait."""


class TcpListener(BaseListener):
    """Serves one protocol, which must have a Framing, at one address.

    The listener serves only one protocol because a byte stream does not identify its protocol. If this listener is a
    part of a SharedListener, it shares the `connections` with the other parts. `assembly/listening.py` creates it
    through `transports.tcp.Listener`.

    Raises:
        ValueError: `protocols` contains several protocols, or the protocol has no Framing.
    """

    address: str
    """The address as `tcp://host:port` or `unix:///path`, which is set by `start`."""

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        connections: ListenerConnections | None = None,
    ) -> None:
        [(protocol, _)] = protocols
        if not isinstance(protocol.binding, StreamBinding):
            raise ValueError(f"{protocol.name} has no framing, so it cannot be served on a byte stream")
        super().__init__(settings, connections, timeouts)
        self.opening = Opening(protocol.binding.framing.magic)
        self._context = TcpContext(
            limits=settings.limits,
            timeouts=timeouts,
            connections=self._connections,
            protocol=protocol,
            exchange=exchanges.exchange,
            refuse=exchanges.refuse,
            record=exchanges.record,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            max_in_flight=1 if protocol.binding.framing.tag is None else MAX_IN_FLIGHT,
            admit=exchanges.admit,
        )
        self._unix: UnixSocket | None = None

    async def start(self, address: Address) -> None:
        """Start on a TCP address or a unix socket."""
        if not address.path:
            await super().start(replace(address, scheme="tcp"))
            return
        self._unix = UnixSocket(address.path)
        self._server = await asyncio.get_running_loop().create_unix_server(
            self._make_connection, sock=self._unix.socket, backlog=BACKLOG, start_serving=False
        )
        self.address = str(replace(address, port=0, scheme="unix"))
        await self._server.start_serving()

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """See `Listener.why_not_renewed`.

        Open connections cannot change to another protocol, because a byte stream does not identify its protocol."""
        wanted, own = ", ".join(protocol.name for protocol, _ in protocols), self._context.protocol.name
        return "" if wanted == own else f"its protocol cannot change from {own} to {wanted}"

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> list[asyncio.Task[None]]:
        """See `Listener.renew`."""
        [(protocol, _)] = protocols
        self._context = context = replace(
            self._context,
            limits=settings.limits,
            protocol=protocol,
            exchange=exchanges.exchange,
            refuse=exchanges.refuse,
            record=exchanges.record,
            admit=exchanges.admit,
        )
        self._accept_with(settings)
        connections = self._connections.renew(settings)
        # the connections of a SharedListener include connections of its other parts
        own = [each for each in connections if isinstance(each, TcpServerConnection) and each.protocol == protocol.name]
        return [task for each in own for task in each.renew(context)]

    def announce_end(self) -> None:
        """Do nothing, because byte stream protocols cannot announce the end of connections. The listener serves
        requests until `drain`."""

    async def stop_accepting(self) -> None:
        """See `Listener.stop_accepting`. Multiplexed connections reject new requests from now on."""
        if self._unix is not None:
            self._unix.remove()
        await super().stop_accepting()

    def serve(self) -> TcpServerConnection:
        """Return the connection object for a new client, after the TLS handshake."""
        return (BoundedTcpConnection if self._is_bounded else TcpServerConnection)(self._context)
