"""The connections to one endpoint, and which of them wait for their next exchange."""

import asyncio
import math

from gateway.transports.connector_connections import OpenConnections
from gateway.transports.http.client.connection import Connection

DISTRUST_SECONDS = 60.0
"""How long an endpoint that sent what nobody had asked for gets a connection for each exchange. HTTP/1.1 tells whose a
reply is by its place on the connection alone: one that comes after the next request was sent is taken for its reply."""


class Pool:
    """The connection used last is used next, so that those beyond the need grow old; idle ones are closed after
    `idle_seconds`. `keeps` tells whether connections are to be used again."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._connections: OpenConnections[Connection] = OpenConnections()
        self._idle: list[Connection] = []  # the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._distrusted_until = -math.inf

    @property
    def is_closed(self) -> bool:
        """Whether no connection may be opened any more."""
        return self._connections.is_closed

    @property
    def keeps(self) -> bool:
        """Whether a connection may carry more than one exchange now."""
        return self._distrusted_until == -math.inf or self._is_trusted_again()

    def take(self) -> Connection | None:
        """An idle connection that its peer has left open and silent."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    async def close(self) -> None:
        """Close every connection, and those that are still to be opened."""
        if self._timer is not None:
            self._timer.cancel()
        await self._connections.close()

    # What the connections call.

    def opened(self, connection: Connection) -> None:
        """It has a transport."""
        self._connections.opened(connection)

    def freed(self, connection: Connection) -> None:
        """It can carry another exchange."""
        if not self.keeps:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_seconds, self._close_old)

    def distrust(self) -> None:
        """The endpoint sent what nobody had asked for: use no connection again for a while."""
        self._distrusted_until = asyncio.get_running_loop().time() + DISTRUST_SECONDS
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def lost(self, connection: Connection) -> None:
        """It has no transport any more. Where it is idle, it is dropped when it is its turn, or too old."""
        self._connections.lost(connection)

    def _is_trusted_again(self) -> bool:
        if asyncio.get_running_loop().time() < self._distrusted_until:
            return False
        self._distrusted_until = -math.inf
        return True

    def _close_old(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        newest_closed = loop.time() - self._idle_seconds
        while self._idle and self._idle[0].idle_since <= newest_closed:
            self._idle.pop(0).abort()
        if self._idle:
            self._timer = loop.call_at(self._idle[0].idle_since + self._idle_seconds, self._close_old)
