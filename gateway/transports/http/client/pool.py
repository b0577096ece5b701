"""The connections to one endpoint, and which of them are idle."""

import asyncio
import math

from gateway.core.surviving import log_and_continue
from gateway.transports.connector_connections import ConnectorConnections
from gateway.transports.http.client.connection import HttpClientConnection

DISTRUST_SECONDS = 60.0
"""After an endpoint sent bytes that answer no request, each exchange gets a connection of its own for so long. A second
reply to one request that arrives after the next request was sent would be taken for the reply to that one."""

WATCH_SECONDS = 1.0
"""How often the new connections and those that are ending are looked at."""


class HttpPool:
    """The connection that was used last is used next, so that superfluous ones stay idle; they are closed after
    `idle_seconds`."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._connections: ConnectorConnections[HttpClientConnection] = ConnectorConnections()
        self._idle: list[HttpClientConnection] = []  # the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._distrusted_until = -math.inf
        self.is_cautious = False
        """Whether the endpoint was distrusted when `keeps` last looked."""

    @property
    def is_closed(self) -> bool:
        """Whether no connection may be opened any more."""
        return self._connections.is_closed

    @property
    def keeps(self) -> bool:
        """Whether connections are kept after their exchange; not while the endpoint is distrusted."""
        return not self.is_cautious or self._is_trusted_again()

    def take(self) -> HttpClientConnection | None:
        """An idle connection that its peer has left open and silent; None if there is none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def close(self) -> None:
        """Close every connection, also those that are still being opened."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        await self._connections.close()

    # What the connections call.

    def opened(self, connection: HttpClientConnection) -> None:
        """As in HttpConnectionObserver."""
        self._connections.opened(connection)
        if self._watching is None:
            self._watch(connection.loop)

    def ending(self, connection: HttpClientConnection) -> None:
        """As in HttpConnectionObserver."""
        if self._watching is None:
            self._watch(connection.loop)

    def freed(self, connection: HttpClientConnection) -> None:
        """As in HttpConnectionObserver."""
        if self.is_cautious and not self.keeps:
            connection.abort()
            return
        loop = connection.loop
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_seconds, self._close_old)

    def distrust(self) -> None:
        """As in HttpConnectionObserver: use no connection twice for DISTRUST_SECONDS."""
        self._distrusted_until = asyncio.get_running_loop().time() + DISTRUST_SECONDS
        self.is_cautious = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def lost(self, connection: HttpClientConnection) -> None:
        """As in HttpConnectionObserver. A closed one stays in the idle list until `take` or the timer finds it."""
        self._connections.lost(connection)

    def _is_trusted_again(self) -> bool:
        if asyncio.get_running_loop().time() < self._distrusted_until:
            return False
        self.is_cautious = False
        return True

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after all connections in a while: one timer for all of them is cheaper than one for each."""
        self._watching = loop.call_later(WATCH_SECONDS, self._look_after, loop)

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching = None
        is_ending = False
        for connection in list(self._connections):
            goes_on = True  # one whose look failed is looked at again
            with log_and_continue("the look at a connection to an endpoint"):
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
