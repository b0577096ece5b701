"""The connections of one listener, and how they end together.

    serving --announce_end--> ending --drain--> draining --all closed, or time over--> none left

While `ending`, everything is answered, and replies say that the connection closes where the protocol has a word for it.
While `draining`, no connection is accepted any more, and each ends after its last reply. An idle one stays for
`Timeouts.grace`: a client may have sent a request on it that has not arrived yet, and closing at once would lose that.
"""

import asyncio
from typing import Protocol


class Connection(Protocol):
    """What is kept of a connection here."""

    @property
    def unanswered(self) -> int:
        """Requests that have begun to arrive and whose replies are not handed to the system in full."""

    def drain(self) -> None:
        """The connection is `draining` from now on."""

    def give_up(self) -> None:
        """End whatever is in flight, and close: at once, or as soon as the client has been told."""


class Connections:
    """The open connections of one listener."""

    def __init__(self) -> None:
        self.ending = False
        """Whether clients are to be told that their connections will close."""
        self.draining = False
        """Whether each connection closes after its last reply."""
        self._open: set[Connection] = set()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """It has been made."""
        self._open.add(connection)
        if self.draining:
            connection.drain()

    def discard(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()

    def begin_draining(self) -> None:
        """Let each connection, also one that is still to be made, end after its last reply."""
        self.ending = self.draining = True
        for connection in list(self._open):
            connection.drain()

    async def end(self, seconds: float) -> int:
        """Wait for all to end, for at most `seconds`, then close the rest. Returns the number of requests given up."""
        try:
            async with asyncio.timeout(seconds):
                await self._until_empty()
        except TimeoutError:
            pass
        given_up = sum(connection.unanswered for connection in self._open)
        for connection in list(self._open):
            connection.give_up()
        await self._until_empty()
        await asyncio.sleep(0)  # exchanges that were cancelled with their connections have a turn to end
        return given_up

    async def _until_empty(self) -> None:
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()
