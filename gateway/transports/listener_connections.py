"""The connections of one listener, and how they end together.

    serving --announce_end--> ending --drain--> draining --all closed, or time over--> none left

While `ending`, everything is answered, and replies say that the connection closes where the protocol has a word for it.
While `draining`, no connection is accepted any more, and each ends after its last reply. An idle one stays for
`Timeouts.grace`: a client may have sent a request on it that has not arrived yet, and closing at once would lose that.
"""

import asyncio
import logging
import resource
import typing
from enum import Enum

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.log_limit import LogLimit

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 10_000
_LEAST_RESERVE = 64
_RESERVE_SHARE = 10


def raise_descriptor_limit() -> None:
    """Let the process open as many descriptors as the system lets it ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS: more than the kernel has
        log.warning("the limit of open files stays at %d", soft)


def descriptors() -> int:
    """How many the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def reserve(available: int) -> int:
    """How many descriptors of those are not for clients: backends, health and status ports, files need some."""
    return max(_LEAST_RESERVE, available // _RESERVE_SHARE)


class Room:
    """How many connections of clients the process may have, whichever listeners they are of. `limit` is set by the
    configuration."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.leaving = 0
        """Connections that were refused, and are open until their clients have read why."""

    def fit(self, configured: int) -> None:
        """Set the limit to `configured`, or to what the system's limit of descriptors leaves; the log tells."""
        available = descriptors()
        fitting = max(1, available - reserve(available))
        self.limit = min(configured, fitting)
        if self.limit < configured:
            log.warning(
                "limits.connections is %d, but the process may open %d files: %d connections are accepted",
                configured,
                available,
                self.limit,
            )

    @property
    def most_leaving(self) -> int:
        """Of the reserve, which refused connections live on."""
        return reserve(descriptors()) // 4


PROCESS = Room(DEFAULT_LIMIT)


class Admission(Enum):
    """What becomes of a new connection."""

    TAKEN = "it is served"
    REFUSED = "its client is told why not"
    DROPPED = "it is closed at once: so many are being told already"


class Connection(typing.Protocol):
    """What is kept of a connection here."""

    @property
    def unanswered(self) -> int:
        """Requests that have begun to arrive and whose replies are not handed to the system in full."""

    def drain(self) -> None:
        """The connection is `draining` from now on."""

    def give_up(self) -> None:
        """End whatever is in flight, and close: at once, or as soon as the client has been told."""


class Connections:
    """The open connections of the listener `name`, of which there may be `limit` at once (None: any number), and with
    those of other listeners as many as `room` has."""

    def __init__(self, name: str = "", limit: int | None = None, room: Room = PROCESS) -> None:
        self.refused = 0
        """Connections that were not taken."""
        self._name = name
        self._limit = limit
        self._room = room
        self._taken: set[Connection] = set()
        self._limited = LogLimit(log, lines=1)
        self.ending = False
        """Whether clients are to be told that their connections will close."""
        self.draining = False
        """Whether each connection closes after its last reply."""
        self._open: set[Connection] = set()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> Admission:
        """It has been made. `discard` follows, whatever becomes of it."""
        room = self._room
        self._open.add(connection)
        if room.open < room.limit and (self._limit is None or len(self._taken) < self._limit):
            room.open += 1
            self._taken.add(connection)
            if self.draining:
                connection.drain()
            return Admission.TAKEN
        self.refused += 1
        room.leaving += 1
        text = "listener %r refuses connections: %d are open; %s allows no more"
        self._limited.write(self._name, logging.WARNING, text, self._name, len(self._taken), self._which_limit())
        return Admission.REFUSED if room.leaving <= room.most_leaving else Admission.DROPPED

    def why_refused(self) -> GatewayError:
        """What the client of a connection that was refused is told."""
        return refusal(Reason.NOT_READY, "the gateway has too many connections open; try again later")

    def _which_limit(self) -> str:
        if self._limit is not None and len(self._taken) >= self._limit:
            return f"limits.connections of the listener ({self._limit})"
        return f"limits.connections ({self._room.limit})"

    def discard(self, connection: Connection) -> None:
        """It is closed."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if connection in self._taken:
            self._taken.discard(connection)
            self._room.open -= 1
        else:
            self._room.leaving -= 1
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
