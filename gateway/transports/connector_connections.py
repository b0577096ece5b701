"""The open connections of one connector, and a way to close all of them. The connectors of all transports use this
module."""

import asyncio
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, cast

from gateway.core.address import Address
from gateway.core.surviving import log_and_continue
from gateway.transports.tls import Secured, connect


class Abortable(Protocol):
    """A connection that the connector can close immediately."""

    def abort(self) -> None:
        """Close the connection without sending the remaining data."""


C = TypeVar("C", bound=Abortable)


class ConnectorConnections(Generic[C]):
    """The set of a connector's open connections.

    Each connection calls `opened` when its socket is connected, and `lost` when the socket is closed.

    If a connector opens a connection without `open`, the connector must call `lost` when the attempt fails or is
    cancelled. The connection might already have called `opened`, and uvloop closes the socket of a cancelled attempt
    without notifying the connection."""

    def __init__(self) -> None:
        self.is_closed = False
        self._open: set[C] = set()
        self._emptied = asyncio.Event()

    def __contains__(self, connection: C) -> bool:
        return connection in self._open

    def __iter__(self) -> Iterator[C]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, connection: C, place: Address, secured: Secured | None) -> None:
        """Connect `connection` to a TCP address or a unix socket. Use TLS if `secured` is set.

        Raises the same errors as `tls.connect`."""
        loop, protocol = asyncio.get_running_loop(), cast(asyncio.BaseProtocol, connection)
        try:
            if place.path:
                await loop.create_unix_connection(lambda: protocol, place.path)
            elif secured is not None:
                await connect(protocol, place.host, place.port, secured)
            else:
                await loop.create_connection(lambda: protocol, place.host, place.port)
        except BaseException:
            self.lost(connection)
            raise

    def opened(self, connection: C) -> None:
        """Add a connection. If `abort_all` was called, abort the connection instead."""
        self._open.add(connection)
        if self.is_closed:
            connection.abort()

    def lost(self, connection: C) -> None:
        """Remove a connection whose socket is closed. Do nothing if the connection is not in the set."""
        self._open.discard(connection)
        if self.is_closed and not self._open:
            self._emptied.set()

    def abort_all(self) -> None:
        """Abort every connection, including connections that are still being opened or are opened later."""
        self.is_closed = True
        for connection in list(self._open):
            with log_and_continue("closing a connection to an endpoint"):
                connection.abort()

    async def close(self) -> None:
        """Abort every connection, and wait until all sockets are closed."""
        self.abort_all()
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()
