"""The connections of one connector that have a socket, and how closing the connector waits for their end."""

import asyncio
from typing import Generic, Protocol, TypeVar


class Abortable(Protocol):
    """A connection that can be closed at once."""

    def abort(self) -> None:
        """Close without sending what is still to be sent."""


C = TypeVar("C", bound=Abortable)


class OpenConnections(Generic[C]):
    """A connection tells `opened` when it has a socket and `lost` when it has none any more."""

    def __init__(self) -> None:
        self.is_closed = False
        self._open: set[C] = set()
        self._emptied = asyncio.Event()

    def __contains__(self, connection: C) -> bool:
        return connection in self._open

    def opened(self, connection: C) -> None:
        """It has a socket. One that comes after `abort_all` is aborted."""
        self._open.add(connection)
        self._emptied.clear()
        if self.is_closed:
            connection.abort()

    def lost(self, connection: C) -> None:
        """It has no socket any more."""
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()

    def abort_all(self) -> None:
        """Abort all of them, and from now on those that are still being opened."""
        self.is_closed = True
        for connection in list(self._open):
            connection.abort()

    async def close(self) -> None:
        """`abort_all`, then wait until none has a socket."""
        self.abort_all()
        if self._open:
            await self._emptied.wait()
