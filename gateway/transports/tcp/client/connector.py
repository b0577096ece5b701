"""Exchanges messages with one endpoint of a byte stream."""

import asyncio

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.protocol import Framing, Limits
from gateway.core.tasks import spawn
from gateway.core.types import Message
from gateway.transports.connector_connections import OpenConnections
from gateway.transports.errors import connector_closed, not_connected
from gateway.transports.inflate import inflate_message, is_compressed
from gateway.transports.tcp.address import parse_address
from gateway.transports.tcp.client.connection import Connection, no_good_reply
from gateway.transports.tcp.packets import SCRATCH_BYTES
from gateway.transports.timeouts import CONNECT_SECONDS, connect_seconds

LINGER_SECONDS = 0.05
"""How long the endpoint has to close after its reply: who closes first keeps the port in TIME_WAIT for a minute. A
server that waits for its client to close, and serves nobody else meanwhile, must not wait long."""


class TcpConnector:
    """`address` as `parse_address` takes it.

    A connection carries one call (`connection_per_call`), one call at a time, or, where replies carry a tag, any number
    at once: then there is one connection, and a new one once a call waited in vain while nothing at all came. Nothing
    is ever sent twice.

    Raises:
        ValueError: the address is none.
    """

    def __init__(
        self,
        address: str,
        *,
        framing: Framing,
        connection_per_call: bool,
        limits: Limits,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        self._address = parse_address(address)
        self._framing = framing
        self._limits = limits
        self._connect_timeout = connect_timeout
        self._per_call = connection_per_call
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: OpenConnections[Connection] = OpenConnections()
        self._idle: list[Connection] = []
        self._shared: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling gives it up; see Connection.exchange.

        Raises:
            TransportError: UNAVAILABLE, the endpoint could not be reached or broke off; INTERNAL, what came is not a
                good reply, or larger than the limit; DEADLINE_EXCEEDED, the deadline had passed before anything was
                sent.
        """
        reply = await self._exchange(message)
        if not is_compressed(reply, self._framing):
            return reply
        try:
            return await inflate_message(reply, self._framing, self._limits)
        except (DecodeError, GatewayError) as error:
            raise no_good_reply(error) from error

    async def close(self) -> None:
        """Close every connection. Exchanges still running fail."""
        if self._attempt is not None:
            self._attempt.cancel()
        await self._connections.close()

    # What the connections call.

    def opened(self, connection: Connection) -> None:
        """It has a transport."""
        self._connections.opened(connection)

    def lost(self, connection: Connection) -> None:
        """It has no transport any more."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._connections.lost(connection)

    async def _exchange(self, message: Message) -> Message:
        if self._framing.tag is not None:
            return await (await self._multiplexed(message.deadline)).exchange(message)
        connection = self._take() or await self._connect(message.deadline)
        reply = await connection.exchange(message)
        self._done(connection)
        return reply

    def _take(self) -> Connection | None:
        """A connection that waits for its next call, and that the endpoint has left open."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        return None

    def _done(self, connection: Connection) -> None:
        """Its call has been answered."""
        if self._per_call:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, connection.close)
        else:
            self._idle.append(connection)

    async def _multiplexed(self, deadline: float | None) -> Connection:
        """The one connection, made by whoever needs it first. All that wait for it share one attempt, and its
        failure."""
        if self._shared is not None and not self._shared.is_usable():
            self._shared.retire()
            self._shared = None
        if self._shared is not None:
            return self._shared
        if self._attempt is None:
            self._attempt = spawn(self._connect(None))
            self._attempt.add_done_callback(self._attempted)
        attempt, loop = self._attempt, asyncio.get_running_loop()
        seconds = connect_seconds(self._connect_timeout, deadline, loop.time())
        # It goes on for the others, and as long as it may.
        await asyncio.wait([attempt], timeout=seconds if deadline is not None else None)
        if not attempt.done():  # the deadline is near
            raise not_connected(TimeoutError(), self._address.host, seconds, self._connect_timeout)
        if attempt.cancelled():
            raise connector_closed()
        return attempt.result()

    def _attempted(self, attempt: "asyncio.Task[Connection]") -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._shared = attempt.result()

    async def _connect(self, deadline: float | None) -> Connection:
        if self._connections.is_closed:
            raise connector_closed()
        seconds = connect_seconds(self._connect_timeout, deadline, asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(seconds):
                return await self._connected()
        except OSError as error:
            raise not_connected(error, self._address.host, seconds, self._connect_timeout) from error

    async def _connected(self) -> Connection:
        loop, address = asyncio.get_running_loop(), self._address
        if address.path:
            _, connection = await loop.create_unix_connection(self._connection, address.path)
        else:
            _, connection = await loop.create_connection(self._connection, address.host, address.port)
        return connection

    def _connection(self) -> Connection:
        return Connection(self._framing, self._limits, self._scratch, self)
