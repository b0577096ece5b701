"""The connections to one endpoint: one connection to each address to which the host name resolves."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Container, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from gateway.core.address import Address
from gateway.core.errors import TransportError
from gateway.core.protocol import Limits
from gateway.core.tasks import spawn
from gateway.transports.connector_connections import ConnectorConnections
from gateway.transports.errors import connector_closed, deadline_passed, not_connected, unreachable
from gateway.transports.grpc.client.connection import GrpcClientConnection
from gateway.transports.timeouts import GrpcEndpointTimeouts, connect_seconds
from gateway.transports.tls import Secured

Resolve: TypeAlias = Callable[[], Awaitable[Sequence[Address]]]
"""Returns the current addresses. Raises TransportError if the lookup finds no address."""

_MOST_ATTEMPTS = 3
"""The maximum number of connection attempts for one call. The limit is necessary because an endpoint can close each
connection before it accepts a call."""
_CLOSED_AT_ONCE = "the endpoint closed the connection immediately"


class GrpcPool:
    """The connections to one endpoint. Calls take turns on the connections that accept calls. The first call that needs
    a connection opens connections to all addresses in parallel. The pool keeps connections open, and replaces them when
    they break. In the meantime, calls use other connections, or wait."""

    def __init__(
        self, resolve: Resolve, limits: Limits, timeouts: GrpcEndpointTimeouts, secured: Secured | None = None
    ) -> None:
        self._resolve = resolve
        self._secured = secured
        self._limits = limits
        self._timeouts = timeouts
        self._ready: list[GrpcClientConnection] = []
        self._connections: ConnectorConnections[GrpcClientConnection] = ConnectorConnections()
        self._turn = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """A heap of waiting calls, by ticket.

        The pool serves waiting calls in the order of their arrival. A call that wakes up but does not get a connection
        keeps its ticket."""
        self._tickets = count()
        self._attempt: asyncio.Task[str] | None = None
        self._is_incomplete = True
        self._next_attempt = 0.0
        self.on_disconnect: Callable[[], None] | None = None
        """The function to call when the last connection that accepted calls is retired or lost."""

    def take(self) -> GrpcClientConnection | None:
        """Return a connection that accepts a call now.

        Return None if no connection is available, or if earlier calls are waiting."""
        if self._is_incomplete and self._ready:
            self._complete()
        return None if self._waiting else self._next()

    async def wait(self, deadline: float | None = None) -> GrpcClientConnection:
        """Wait for a connection that accepts a call, and return it.

        Raises:
            TransportError: UNAVAILABLE if all addresses are unreachable. DEADLINE_EXCEEDED if no connection opens
                within half of the time until the deadline, or if the existing connections do not accept the call before
                the deadline.
        """
        ticket, tried = next(self._tickets), set[asyncio.Task[str]]()
        while (connection := self._next()) is None:
            if self._connections.is_closed:
                raise connector_closed(sent=False)
            attempt = None if self._ready else self._attempted()
            if attempt is not None:
                tried.add(attempt)
            if len(tried) > _MOST_ATTEMPTS:
                raise unreachable(_CLOSED_AT_ONCE, sent=False)
            await self._wait_in_time(ticket, deadline)
            if attempt is not None and attempt.done() and not self._ready and not self._connections.is_closed:
                raise unreachable(attempt.result() or _CLOSED_AT_ONCE, sent=False)
        return connection

    async def close(self) -> None:
        """Close all connections, and fail the waiting calls."""
        self._connections.abort_all()
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        self.changed()
        await self._connections.close()

    # Callbacks of connections.

    def opened(self, connection: GrpcClientConnection) -> None:
        """Handle a connection whose socket is connected."""
        self._connections.opened(connection)

    def changed(self) -> None:
        """Wake all waiting calls, because several calls might get a connection, or because all connection attempts
        failed."""
        for _ in range(len(self._waiting)):
            self.freed()

    def freed(self) -> None:
        """Wake the first waiting call, because a connection has capacity for one more call."""
        while self._waiting:
            _, waiter = heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return

    def retired(self, connection: GrpcClientConnection) -> None:
        """Handle a connection that accepts no more calls."""
        self._is_incomplete = True
        if connection in self._ready:
            self._ready.remove(connection)
            if self.on_disconnect is not None and not self._ready:
                self.on_disconnect()
        self.changed()

    def lost(self, connection: GrpcClientConnection) -> None:
        """Handle a connection whose socket is closed."""
        self._connections.lost(connection)

    # Waiting.

    def _next(self) -> GrpcClientConnection | None:
        ready = self._ready
        if len(ready) == 1:
            return ready[0] if ready[0].has_room else None
        for _ in ready:
            self._turn = (self._turn + 1) % len(ready)
            if ready[self._turn].has_room:
                return ready[self._turn]
        return None

    async def _wait_in_time(self, ticket: int, deadline: float | None) -> None:
        if deadline is None:
            await self._wait_in_line(ticket)
            return
        now = asyncio.get_running_loop().time()
        if deadline <= now:
            raise deadline_passed(sent=False)
        is_connected, left = bool(self._ready), deadline - now
        seconds = left if is_connected else connect_seconds(math.inf, deadline, now)
        try:
            async with asyncio.timeout(seconds):
                await self._wait_in_line(ticket)
        except TimeoutError as error:
            if is_connected:
                raise deadline_passed(sent=False) from error
            raise not_connected(error, "", seconds, math.inf) from error

    async def _wait_in_line(self, ticket: int) -> None:
        """Wait until the pool wakes this call, because something has changed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (ticket, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.freed()  # it was the turn of this call
            raise

    # Connecting.

    def _complete(self) -> None:
        """In the background, try again to connect to addresses without a connection."""
        if self._attempt is None and asyncio.get_running_loop().time() >= self._next_attempt:
            self._attempted()

    def _attempted(self) -> "asyncio.Task[str]":
        """Return the attempt in progress, or start one."""
        if self._attempt is None:
            self._attempt = spawn(self._connect_all())
            self._attempt.add_done_callback(self._tried)
        return self._attempt

    def _tried(self, attempt: "asyncio.Task[str]") -> None:
        self._attempt = None
        self._next_attempt = asyncio.get_running_loop().time() + self._timeouts.between
        self.changed()

    async def _connect_all(self) -> str:
        """Connect to every address. Return the reason why one of the addresses is unreachable, or an empty string."""
        try:
            async with asyncio.timeout(self._timeouts.connect):
                places = await self._resolve()
        except TimeoutError:
            return f"the host name was not resolved within {self._timeouts.connect:g} s; check the name and DNS"
        except TransportError as error:
            return error.message
        self._is_incomplete = False
        self._retire_all_but(places)
        connected = {connection.place for connection in self._ready}
        failed = await asyncio.gather(*(self._connect(place) for place in places if place not in connected))
        reasons = [reason for reason in failed if reason]
        self._is_incomplete |= bool(reasons)
        return reasons[-1] if reasons else ""

    def _retire_all_but(self, places: Container[Address]) -> None:
        for connection in [each for each in self._ready if each.place not in places]:
            connection.retire()

    async def _connect(self, place: Address) -> str:
        """Connect to one address. Return the reason if the attempt fails, otherwise an empty string."""
        connection = GrpcClientConnection(place, self._limits, self._timeouts, self)
        try:
            async with asyncio.timeout(self._timeouts.connect):
                await self._connections.open(connection, place, self._secured)
                await connection.ready
        except OSError as error:
            name = "" if self._secured is None else self._secured.server_name
            why = not_connected(error, place.host, self._timeouts.connect, server_name=name)
            if connection in self._connections:
                connection.abort(why)
            return why.message
        except TransportError as error:
            return error.message
        if connection.is_retired:
            return _CLOSED_AT_ONCE
        self._ready.append(connection)
        self.changed()
        return ""
