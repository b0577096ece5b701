"""The connector for byte streams, which exchanges messages with one endpoint."""

import asyncio

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import Framing, Limits
from gateway.core.tasks import spawn
from gateway.transports.connector_connections import ConnectorConnections
from gateway.transports.errors import connector_closed, not_connected
from gateway.transports.inflate import inflate_message, is_compressed
from gateway.transports.tcp.address import TLS, parse_address
from gateway.transports.tcp.client_connection import TcpClientConnection, reply_error
from gateway.transports.tcp.packets import SCRATCH_BYTES
from gateway.transports.timeouts import CONNECT_SECONDS, connect_seconds
from gateway.transports.tls import ClientTls, Secured, default_tls

LINGER_SECONDS = 0.05
"""Number of seconds that the gateway gives the endpoint to close a connection after the reply to its only call.

The gateway waits for the endpoint because the side that closes first keeps the port in TIME_WAIT for a minute. However,
some servers wait for the client to close the connection, and serve no other client during this time, so the wait must
be short."""


class TcpConnector:
    """The connector of one endpoint. The number of calls on a connection depends on the framing:

    - Without tags, a connection has one call at a time. With `connection_per_call`, it has only one call.
    - With tags, one shared connection has any number of parallel calls. If a call is cancelled and no reply to any call
      arrived while it waited, the connector replaces the connection.

    The connector never sends a call twice. `address` has a format that `parse_address` reads. `ip` is the IP address to
    which to connect instead of the host name. If `tls` is set, an address without a scheme uses TLS. For `tcps://`
    without `tls`, the system's CAs verify the endpoint.

    Raises:
        ValueError: `address` is invalid.
    """

    def __init__(
        self,
        address: str,
        *,
        framing: Framing,
        connection_per_call: bool,
        limits: Limits,
        ip: str = "",
        tls: ClientTls | None = None,
    ) -> None:
        parsed = parse_address(address if tls is None or "://" in address else f"{TLS}://{address}")
        self._secured = Secured(tls or default_tls(), parsed.host) if parsed.scheme == TLS else None
        self._address = replace(parsed, host=ip) if ip else parsed
        self._framing = framing
        self._limits = limits
        self._per_call = connection_per_call
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: ConnectorConnections[TcpClientConnection] = ConnectorConnections()
        self._idle: list[TcpClientConnection] = []
        self._shared: TcpClientConnection | None = None
        self._attempt: asyncio.Task[TcpClientConnection] | None = None

    async def exchange(self, message: Message) -> Message:
        """Send `message`, and return the decompressed reply. Cancellation works as in TcpClientConnection.exchange.

        Raises:
            TransportError: UNAVAILABLE if the endpoint is unreachable or the connection broke. INTERNAL if the reply is
                malformed or too large. DEADLINE_EXCEEDED if the deadline passed before the gateway sent the request.
        """
        reply = await self._exchange(message)
        if not is_compressed(reply, self._framing):
            return reply
        try:
            return await inflate_message(reply, self._framing, self._limits)
        except (DecodeError, GatewayError) as error:
            raise reply_error(error) from error

    async def close(self) -> None:
        """Close every connection. Exchanges in progress fail."""
        if self._attempt is not None:
            self._attempt.cancel()
        await self._connections.close()

    # Callbacks of the connections.

    def opened(self, connection: TcpClientConnection) -> None:
        """See `TcpConnectionObserver.opened`."""
        self._connections.opened(connection)

    def lost(self, connection: TcpClientConnection) -> None:
        """See `TcpConnectionObserver.lost`."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._connections.lost(connection)

    async def _exchange(self, message: Message) -> Message:
        if self._framing.tag is not None:
            return await (await self._shared_connection(message.deadline)).exchange(message)
        connection = self._take() or await self._connect(message.deadline)
        reply = await connection.exchange(message)
        self._release(connection)
        return reply

    def _take(self) -> TcpClientConnection | None:
        """Return an idle connection that the endpoint has left open; None if no such connection exists."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    def _release(self, connection: TcpClientConnection) -> None:
        """Keep the connection after the reply to its call, or wait for the endpoint to close it."""
        if self._per_call:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, connection.close)
        else:
            self._idle.append(connection)

    async def _shared_connection(self, deadline: float | None) -> TcpClientConnection:
        """Return the shared connection.

        The first call that needs the connection starts the attempt to open it. All calls that wait for the connection
        share this attempt and its result."""
        if self._shared is not None and not self._shared.is_usable():
            self._shared.retire()
            self._shared = None
        if self._shared is not None:
            return self._shared
        if self._attempt is None:
            self._attempt = spawn(self._connect(None))
            self._attempt.add_done_callback(self._attempt_ended)
        attempt, loop = self._attempt, asyncio.get_running_loop()
        seconds = connect_seconds(CONNECT_SECONDS, deadline, loop.time())
        # For the other calls, the attempt continues up to the connect timeout.
        await asyncio.wait([attempt], timeout=seconds if deadline is not None else None)
        if not attempt.done():  # the deadline is near
            raise not_connected(TimeoutError(), self._address.host, seconds, CONNECT_SECONDS)
        if attempt.cancelled():
            raise connector_closed()
        return attempt.result()

    def _attempt_ended(self, attempt: "asyncio.Task[TcpClientConnection]") -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._shared = attempt.result()

    async def _connect(self, deadline: float | None) -> TcpClientConnection:
        if self._connections.is_closed:
            raise connector_closed()
        seconds = connect_seconds(CONNECT_SECONDS, deadline, asyncio.get_running_loop().time())
        connection = TcpClientConnection(self._framing, self._limits, self._scratch, self)
        try:
            async with asyncio.timeout(seconds):
                await self._connections.open(connection, self._address, self._secured)
        except OSError as error:
            name = "" if self._secured is None else self._secured.server_name
            raise not_connected(error, self._address.host, seconds, CONNECT_SECONDS, name) from error
        return connection
