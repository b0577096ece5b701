"""The connections to one endpoint, including idle connections."""

import asyncio
import math
from collections.abc import Callable

from gateway.core.surviving import log_and_continue
from gateway.transports.connector_connections import ConnectorConnections
from gateway.transports.http.client.connection import HttpClientConnection

DISTRUST_SECONDS = 60.0
"""Number of seconds during which each exchange uses its own connection after an endpoint has sent bytes without a
request. On a shared connection, a second reply to one request could arrive after the next request, and would then count
as the reply to the next request."""

WATCH_SECONDS = 1.0
"""The interval between checks of new and ending connections, in seconds."""


class HttpPool:
    """The connections to one endpoint.

    The pool prefers the most recently used connection, so superfluous connections stay idle. The pool closes idle
    connections after `idle_seconds`."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._connections: ConnectorConnections[HttpClientConnection] = ConnectorConnections()
        self._idle: list[HttpClientConnection] = []  # the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._distrusted_until = -math.inf
        self.is_cautious = False
        """True if the pool distrusted the endpoint at the last check of `keeps`."""
        self.on_disconnect: Callable[[], None] | None = None
        """The function to call when the last open connection has closed."""

    @property
    def is_closed(self) -> bool:
        """True if no more connections can be opened."""
        return self._connections.is_closed

    @property
    def keeps(self) -> bool:
        """True if connections stay open after an exchange; False while the pool distrusts the endpoint."""
        return not self.is_cautious or self._is_trusted_again()

    def take(self) -> HttpClientConnection | None:
        """Return a quiet idle connection; None if the pool has none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def close(self) -> None:
        """Close every connection, including connections that are still being opened."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        await self._connections.close()

    # Callbacks of the connections.

    def opened(self, connection: HttpClientConnection) -> None:
        """See `HttpConnectionObserver.opened`."""
        self._connections.opened(connection)
        if self._watching is None:
            self._watch(connection.loop)

    def ending(self, connection: HttpClientConnection) -> None:
        """See `HttpConnectionObserver.ending`."""
        if self._watching is None:
            self._watch(connection.loop)

    def freed(self, connection: HttpClientConnection) -> None:
        """See `HttpConnectionObserver.freed`."""
        if self.is_cautious and not self.keeps:
            connection.abort()
            return
        loop = connection.loop
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_seconds, self._close_old)

    def distrust(self) -> None:
        """See `HttpConnectionObserver.distrust`. For DISTRUST_SECONDS, each connection has only one exchange."""
        self._distrusted_until = asyncio.get_running_loop().time() + DISTRUST_SECONDS
        self.is_cautious = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def lost(self, connection: HttpClientConnection) -> None:
        """See `HttpConnectionObserver.lost`. A closed connection stays in the idle list until `take` or the timer
        removes it."""
        self._connections.lost(connection)
        if self.on_disconnect is not None and not self._connections:
            self.on_disconnect()

    def _is_trusted_again(self) -> bool:
        if asyncio.get_running_loop().time() < self._distrusted_until:
            return False
        self.is_cautious = False
        return True

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a check of all connections. A shared timer costs less than one timer per connection."""
        self._watching = loop.call_later(WATCH_SECONDS, self._look_after, loop)

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching = None
        is_ending = False
        for connection in list(self._connections):
            goes_on = True  # check a connection again if its check failed
            with log_and_continue("checking a connection to an endpoint"):
                goes_on = connection.look_after()
            is_ending |= goes_on
        if is_ending:
            self._watch(loop)

    def _close_old(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        newest_closed = loop.time() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= newest_closed:
            with log_and_continue("closing an idle connection to an endpoint"):
                self._idle.pop(0).abort()
        if self._idle:
            self._timer = loop.call_at(self._idle[0].idle_since + self._idle_seconds, self._close_old)
