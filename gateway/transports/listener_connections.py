"""The open connections of one listener. The module admits connections, and ends them.

    serving ──announce_end──→ ending ──drain──→ draining ──all closed, or time over──→ no connections

While `ending`, the gateway serves all requests. If the protocol supports it, replies announce that the connection will
close. While `draining`, the listener accepts no connections, and each connection closes after its last reply. Idle
connections stay open for `Timeouts.grace`. If they closed immediately, a request that the client has already sent would
be lost.
"""

import asyncio
import logging
import sys
import typing
from collections.abc import Callable
from enum import Enum
from typing import Self
from weakref import WeakSet

from gateway.core.address import client_of
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.log_limit import LogLimit
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.surviving import log_and_continue
from gateway.transports.shedding import Shedding

if sys.platform != "win32":  # only the client runs on Windows
    import resource

log = logging.getLogger(__name__)

DEFAULT_LIMIT = 10_000
DEFAULT_HANDSHAKES = 500
"""The maximum number of parallel TLS handshakes.

In total, these handshakes take 50 MiB of memory. They end within a second, unless their clients stall."""
LOST_SECONDS = 1.0
"""Number of seconds that the gateway waits for the event loop to report the end of terminated connections. uvloop does
not report the end if a client closes its connection in the same turn in which a signal arrives."""
_MIN_RESERVED = 64
_RESERVED_SHARE = 10


def raise_descriptor_limit() -> None:
    """Raise the process's limit for open files to the maximum that the operating system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # On macOS, `hard` exceeds the kernel's limit
        log.warning("the limit of open files stays at %d", soft)


def descriptors() -> int:
    """Return the maximum number of open files and sockets of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def reserve(available: int) -> int:
    """Return how many of the `available` descriptors to reserve for backends, the health and status ports, and
    files."""
    return max(_MIN_RESERVED, available // _RESERVED_SHARE)


class ClientConnections:
    """Counts the open connections of each client. A client can have at most `limit` connections. If `limit` is None,
    nothing is counted. Clients without an address are never counted. When a client's last connection closes, the
    client's entry is removed."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def is_full(self, client: str) -> bool:
        """Return whether `client` has reached its limit."""
        return self.limit is not None and self._open.get(client, 0) >= self.limit

    def add(self, client: str) -> None:
        """Add one connection to the count."""
        if client and self.limit is not None:
            self._open[client] = self._open.get(client, 0) + 1

    def remove(self, client: str) -> None:
        """Remove one connection from the count. Connections that were opened while no limit was set are ignored."""
        left = self._open.pop(client, 0) - 1
        if left > 0:
            self._open[client] = left


class Handshakes:
    """Limits the number of parallel TLS handshakes to `limit`.

    All other handshakes wait for their turn, in the order of their arrival. A handshake takes about 100 KiB of memory.
    The handshake is cancelled `Timeouts.handshake` seconds after the client connects."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.under_way = 0
        self._waiting: dict[Callable[[], None], None] = {}

    def enter(self, begin: Callable[[], None]) -> None:
        """Call `begin` when the handshake's turn comes, either now or after other handshakes have ended.

        After the handshake, the caller must call `end`."""
        self._waiting[begin] = None
        self._begin_waiting()

    def leave(self, begin: Callable[[], None]) -> None:
        """Remove `begin` before its turn, because the caller no longer needs it."""
        self._waiting.pop(begin, None)

    def end(self) -> None:
        """Handle the end of a handshake that had its turn."""
        self.under_way -= 1
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting and self.under_way < self.limit:
            begin = next(iter(self._waiting))
            del self._waiting[begin]
            self.under_way += 1
            begin()


PORT_CONNECTIONS = 64
"""Maximum number of open connections on each health, status and scaler port. Above this limit, a new connection
replaces the oldest connection that waits for its client, so every probe is accepted."""


class ConnectionLimit:
    """The limits for client connections that several listeners share: `limit` in total, and `per_client` for each
    client. If `makes_room` is True, a new connection above the limit replaces the oldest connection, if any, that waits
    for its client."""

    def __init__(self, limit: int, per_client: int | None = None, *, makes_room: bool = False) -> None:
        self.limit = limit
        self.makes_room = makes_room
        self.clients = ClientConnections(per_client)
        self.shedding: Shedding | None = None
        """Rejects work while the process is overloaded. Set this field before you create listeners."""
        self.handshakes = Handshakes(DEFAULT_HANDSHAKES)
        self.open = 0
        self.being_refused = 0
        """The number of rejected connections that stay open until their clients have read the error."""

    def fit(self, configured: int) -> None:
        """Set the limit to `configured`.

        If the operating system allows fewer descriptors, set a lower limit, and log a warning."""
        available = descriptors()
        self.limit = min(configured, max(1, available - reserve(available)))
        if self.limit < configured:
            log.warning(
                "limits.connections is %d, but the process can open only %d files, so it accepts %d connections; "
                "raise its limit",
                configured,
                available,
                self.limit,
            )

    @property
    def max_being_refused(self) -> int:
        """The maximum number of rejected connections that can stay open, which is a quarter of the reserved
        descriptors."""
        return reserve(descriptors()) // 4


PROCESS_CONNECTIONS = ConnectionLimit(DEFAULT_LIMIT)
"""The limit for all listeners of this process. The configuration key `limits.connections` sets it."""


class Admission(Enum):
    """A decision about a new connection."""

    ACCEPTED = "it is served"
    REFUSED = "its client gets an error reply"
    DROPPED = "the gateway closes it without a reply: too many refused connections are still open"


class AcceptedConnection(typing.Protocol):
    """The interface through which ListenerConnections uses a connection."""

    @property
    def unanswered(self) -> int:
        """The number of requests that have begun to arrive and whose replies have not been completely passed to the
        operating system."""

    @property
    def awaits_client(self) -> bool:
        """True if the gateway waits for the client to send or read."""

    def drain(self) -> None:
        """Close the connection after its last reply."""

    def terminate(self) -> None:
        """End all requests in flight. Close the connection immediately, or after the client has received the error."""


class ListenerConnections:
    """The open connections of the listener `name`.

    The listener can have at most `limit` connections in total, and `per_client` connections for each client (None means
    no limit of this kind). `shared_limit` limits the connections of this listener and other listeners together."""

    def __init__(
        self,
        name: str = "",
        limit: int | None = None,
        shared_limit: ConnectionLimit = PROCESS_CONNECTIONS,
        per_client: int | None = None,
    ) -> None:
        self.refused = 0
        """The number of connections that have been rejected or dropped since the start."""
        self.unrecognised = 0
        """The number of connections to a shared address whose clients used an unknown protocol."""
        self.ending = False
        """True if replies announce that their connections will close."""
        self.draining = False
        """True if each connection closes after its last reply."""
        self._name = name
        self._limit = limit
        self._shared_limit = shared_limit
        self._clients = ClientConnections(per_client)
        self._open: dict[AcceptedConnection, GatewayError | None] = {}
        """The open connections. For a rejected connection, the value is the reason."""
        self._accepted: dict[AcceptedConnection, str] = {}
        """The accepted connections. If any per-client limit is set, the value is the connection's client."""
        self._created: WeakSet[object] = WeakSet()
        """The connections that the event loop has created but not announced (`connection_made`) yet."""
        self._limited_log = LogLimit(log, lines=1)
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def accepted(self) -> int:
        """The number of accepted connections that are open. Any thread can read this property."""
        return len(self._accepted)

    @property
    def unanswered(self) -> int:
        """The number of requests in flight on all connections. Any thread can read this property."""
        return sum(each.unanswered for each in tuple(self._accepted))

    def add_created(self, connection: object) -> None:
        """Add a connection that the event loop is about to announce. `renew` then includes this connection."""
        self._created.add(connection)

    def renew(self, settings: ListenerSettings) -> tuple[object, ...]:
        """Change the listener's name and limits.

        Return the open connections, including connections that open in the next turn of the loop. If a limit becomes
        lower, excess connections stay open."""
        limits = settings.limits
        self._name, self._limit, self._clients.limit = settings.name, limits.connections, limits.connections_per_client
        return (*self._open, *self._created)

    @classmethod
    def of(cls, settings: ListenerSettings, shared_limit: ConnectionLimit = PROCESS_CONNECTIONS) -> Self:
        """Return the ListenerConnections for a listener with these settings."""
        limits = settings.limits
        return cls(settings.name, limits.connections, shared_limit, limits.connections_per_client)

    def are_bounded(self, limits: Limits) -> bool:
        """Return whether the limits restrict the requests or the age of connections, or whether the listener sheds
        load."""
        return limits.ends_connections or self.shedding is not None

    @property
    def handshakes(self) -> Handshakes:
        """The TLS handshakes of all listeners."""
        return self._shared_limit.handshakes

    @property
    def shedding(self) -> Shedding | None:
        """The load shedding of the process; None if it is not configured."""
        return self._shared_limit.shedding

    def admit(self, connection: AcceptedConnection, peer: str = "") -> Admission:
        """Count a new connection from `peer` (`host:port`, empty on unix sockets), and decide whether to accept it.
        Regardless of the decision, the caller must call `discard` when the connection is closed. For a connection that
        was handed over, return the previous decision."""
        if connection in self._open:
            return self._admitted(connection)
        self._created.discard(connection)
        shared, client = self._shared_limit, ""
        if shared.clients.limit is not None or self._clients.limit is not None:
            client = client_of(peer)
        refused = self._open[connection] = self._refused(client)
        if refused is None:
            shared.open += 1
            self._accepted[connection] = client
            shared.clients.add(client)
            self._clients.add(client)
            if self.draining:
                connection.drain()
            return Admission.ACCEPTED
        self.refused += 1
        shared.being_refused += 1
        return Admission.REFUSED if shared.being_refused <= shared.max_being_refused else Admission.DROPPED

    def hand_over(self, before: AcceptedConnection, after: AcceptedConnection) -> None:
        """Replace the connection `before` with `after`. The decision about `before` stays valid."""
        self._open[after] = self._open.pop(before)
        if before in self._accepted:
            self._accepted[after] = self._accepted.pop(before)

    def _admitted(self, connection: AcceptedConnection) -> Admission:
        if self._open[connection] is not None:
            return Admission.REFUSED
        if self.draining:
            connection.drain()
        return Admission.ACCEPTED

    def why_refused(self, connection: AcceptedConnection) -> GatewayError:
        """Return the error for the client of a rejected connection."""
        refused = self._open[connection]
        assert refused is not None
        return refused

    def _refused(self, client: str) -> GatewayError | None:
        """Return the error with which to reject a new connection from `client`; None to accept the connection."""
        shared = self._shared_limit
        if self._limit is not None and len(self._accepted) >= self._limit:
            return self._too_many(f"limits.connections of the listener ({self._limit})")
        if shared.open >= shared.limit and not (shared.makes_room and self._has_made_room()):
            return self._too_many(f"limits.connections ({shared.limit})")
        if self._clients.is_full(client):
            return self._too_many_of(client, f"limits.connections_per_client of the listener ({self._clients.limit})")
        if shared.clients.is_full(client):
            return self._too_many_of(client, f"limits.connections_per_client ({shared.clients.limit})")
        return None if shared.shedding is None else shared.shedding.connection_refusal()

    def _has_made_room(self) -> bool:
        """Close the oldest connection that waits for its client. Return whether a connection was closed."""
        oldest = next((each for each in self._accepted if each.awaits_client), None)
        if oldest is None:
            return False
        text = "listener %r closes connections that wait for their clients to send or read: %d are open"
        self._limited_log.write("room", logging.WARNING, text, self._name, len(self._accepted))
        self.discard(oldest)
        oldest.terminate()
        return True

    def _too_many(self, limit: str) -> GatewayError:
        text = "listener %r refuses connections: %d are open; %s allows no more"
        self._limited_log.write(self._name, logging.WARNING, text, self._name, len(self._accepted), limit)
        return refusal(Reason.NOT_READY, "the gateway has too many connections open; try again later")

    def _too_many_of(self, client: str, limit: str) -> GatewayError:
        text = "listener %r refuses connections of client %s: %s allows no more"
        self._limited_log.write("client", logging.WARNING, text, self._name, client, limit)
        return refusal(Reason.NOT_READY, "this client has too many connections open; close some, or try again later")

    def log_mistake(self, kind: str, peer: str, why: str) -> None:
        """Log a client's TLS mistake, at most one line per minute for each `kind`."""
        self._limited_log.write(kind, logging.WARNING, "listener %r: TLS with %s failed: %s", self._name, peer, why)

    def log_unrecognised(self, peer: str, why: str) -> None:
        """Log that a client of a shared address uses an unknown protocol, at most one line per minute."""
        text = "listener %r refuses a connection of %s: %s"
        self._limited_log.write("unrecognised", logging.WARNING, text, self._name, peer or "a unix socket", why)

    def discard(self, connection: AcceptedConnection) -> None:
        """Remove a closed connection."""
        if connection not in self._open:
            return
        del self._open[connection]
        client = self._accepted.pop(connection, None)
        if client is not None:
            self._shared_limit.open -= 1
            self._shared_limit.clients.remove(client)
            self._clients.remove(client)
        else:
            self._shared_limit.being_refused -= 1
        if not self._open:
            self._emptied.set()

    def begin_draining(self) -> None:
        """Close all connections after their last replies, including connections that are accepted later."""
        self.ending = self.draining = True
        for connection in list(self._open):
            with log_and_continue("draining a client's connection"):
                connection.drain()

    async def end(self, seconds: float) -> int:
        """Wait up to `seconds` for all connections to close, and then terminate the rest. Return the number of
        unanswered requests."""
        try:
            async with asyncio.timeout(seconds):
                await self._until_empty()
        except TimeoutError:
            pass
        unanswered = sum(connection.unanswered for connection in self._open)
        for connection in list(self._open):
            with log_and_continue("closing a client's connection"):
                connection.terminate()
        try:
            async with asyncio.timeout(LOST_SECONDS):
                await self._until_empty()
        except TimeoutError:
            for connection in list(self._open):
                self.discard(connection)
        await asyncio.sleep(0)  # exchanges that were cancelled with their connections can end
        return unanswered

    async def _until_empty(self) -> None:
        while self._open:
            self._emptied.clear()
            await self._emptied.wait()
