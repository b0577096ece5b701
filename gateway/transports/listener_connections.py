"""The open connections of one listener: how many are admitted, and how they all end.

    serving ──announce_end──→ ending ──drain──→ draining ──all closed, or time over──→ no connections

While `ending`, every request is answered, and replies announce that the connection will close where the protocol can
say so. While `draining`, the listener accepts no connection, and each connection closes after its last reply. An idle
connection stays open for `Timeouts.grace`: its client may have sent a request that has not arrived yet and that closing
at once would lose.
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
_MIN_RESERVED = 64
_RESERVED_SHARE = 10


def raise_descriptor_limit() -> None:
    """Raise the process' limit of open files to the highest that the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS: `hard` is more than its kernel has
        log.warning("the limit of open files stays at %d", soft)


def descriptors() -> int:
    """How many files and sockets the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def reserve(available: int) -> int:
    """How many of the `available` descriptors are kept for backends, the health and status ports, and files."""
    return max(_MIN_RESERVED, available // _RESERVED_SHARE)


class ConnectionLimit:
    """At most `limit` client connections, shared by several listeners."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.being_refused = 0
        """Refused connections that stay open until their clients have read the error."""

    def fit(self, configured: int) -> None:
        """Set the limit to `configured`, or to what the system's limit of descriptors allows, with a warning in the
        log."""
        available = descriptors()
        self.limit = min(configured, max(1, available - reserve(available)))
        if self.limit < configured:
            log.warning(
                "limits.connections is %d, but the process may open %d files: %d connections are accepted",
                configured,
                available,
                self.limit,
            )

    @property
    def max_being_refused(self) -> int:
        """How many refused connections may stay open at once: a quarter of the reserved descriptors."""
        return reserve(descriptors()) // 4


PROCESS_CONNECTIONS = ConnectionLimit(DEFAULT_LIMIT)
"""The limit of all listeners of this process; the configuration's `limits.connections` sets it."""


class Admission(Enum):
    """What happens to a new connection."""

    ACCEPTED = "it is served"
    REFUSED = "its client gets an error reply"
    DROPPED = "it is closed without a reply: too many refused connections are still open"


class AcceptedConnection(typing.Protocol):
    """What ListenerConnections needs of a connection."""

    @property
    def unanswered(self) -> int:
        """Requests that have begun to arrive and whose replies are not handed to the system in full."""

    def drain(self) -> None:
        """Close after the last reply."""

    def terminate(self) -> None:
        """End all requests in flight, and close: at once, or once the client has been told."""


class ListenerConnections:
    """The open connections of the listener `name`: at most `limit` of them (None: no limit of its own), and together
    with those of other listeners at most `shared_limit`."""

    def __init__(
        self, name: str = "", limit: int | None = None, shared_limit: ConnectionLimit = PROCESS_CONNECTIONS
    ) -> None:
        self.refused = 0
        """How many connections were refused or dropped since the start."""
        self.ending = False
        """Whether replies announce that their connection will close."""
        self.draining = False
        """Whether each connection closes after its last reply."""
        self._name = name
        self._limit = limit
        self._shared_limit = shared_limit
        self._open: set[AcceptedConnection] = set()
        self._accepted: set[AcceptedConnection] = set()
        self._limited_log = LogLimit(log, lines=1)
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def renew(self, name: str, limit: int | None) -> tuple[AcceptedConnection, ...]:
        """Change the listener's name and limit. Returns the open connections; those beyond a lower limit stay open."""
        self._name, self._limit = name, limit
        return tuple(self._open)

    def admit(self, connection: AcceptedConnection) -> Admission:
        """Count a new connection, and decide what happens to it. The caller calls `discard` once it is closed, whatever
        was decided."""
        shared = self._shared_limit
        self._open.add(connection)
        if shared.open < shared.limit and (self._limit is None or len(self._accepted) < self._limit):
            shared.open += 1
            self._accepted.add(connection)
            if self.draining:
                connection.drain()
            return Admission.ACCEPTED
        self.refused += 1
        shared.being_refused += 1
        text = "listener %r refuses connections: %d are open; %s allows no more"
        self._limited_log.write(
            self._name, logging.WARNING, text, self._name, len(self._accepted), self._reached_limit()
        )
        return Admission.REFUSED if shared.being_refused <= shared.max_being_refused else Admission.DROPPED

    def why_refused(self) -> GatewayError:
        """The error for the client of a refused connection."""
        return refusal(Reason.NOT_READY, "the gateway has too many connections open; try again later")

    def _reached_limit(self) -> str:
        if self._limit is not None and len(self._accepted) >= self._limit:
            return f"limits.connections of the listener ({self._limit})"
        return f"limits.connections ({self._shared_limit.limit})"

    def discard(self, connection: AcceptedConnection) -> None:
        """Forget a connection that is closed."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if connection in self._accepted:
            self._accepted.discard(connection)
            self._shared_limit.open -= 1
        else:
            self._shared_limit.being_refused -= 1
        if not self._open:
            self._emptied.set()

    def begin_draining(self) -> None:
        """Let every connection, also one that is accepted later, close after its last reply."""
        self.ending = self.draining = True
        for connection in list(self._open):
            connection.drain()

    async def end(self, seconds: float) -> int:
        """Wait at most `seconds` for all connections to close, then terminate the rest. Returns the number of requests
        that were not answered."""
        try:
            async with asyncio.timeout(seconds):
                await self._until_empty()
        except TimeoutError:
            pass
        unanswered = sum(connection.unanswered for connection in self._open)
        for connection in list(self._open):
            connection.terminate()
        await self._until_empty()
        await asyncio.sleep(0)  # exchanges that were cancelled with their connections run to their end
        return unanswered

    async def _until_empty(self) -> None:
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()
