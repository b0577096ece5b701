"""Time limits for client connections, and for connections to endpoints. The code performs no I/O."""

from gateway.core.frozen import frozen


@frozen
class Timeouts:
    """Time limits for clients on all transports (HTTP, gRPC, TCP), in seconds. These limits have no configuration keys.
    `Limits` in `gateway/core/protocol.py` contains the maximum sizes. The time limits do not apply to the wait for a
    reply, which deadlines and policies limit."""

    head: float = 20.0
    """The maximum time from the first byte of a message to the end of its head."""
    body: float = 30.0
    """The maximum time between two pieces of the rest of a message."""
    message: float = 900.0
    """The maximum time from the end of a message's head to the end of the message. The same limit applies to the time
    in which the client reads a reply."""
    rate: float = 4096.0
    """The minimum average rate in bytes per second. The rest of a message must arrive at this rate after the first
    `body` seconds. The client must read a reply at this rate after the first `write` seconds."""
    handshake: float = 10.0
    """The maximum time from the start of a connection to the end of its TLS handshake."""
    first_byte: float = 75.0
    """The maximum time from the start of a connection to the client's first byte."""
    idle: float = 75.0
    """The maximum time between two messages.

    If a client multiplexes requests, its connection can be idle without a limit after the first request. brpc requires
    this: brpc servers never close an idle connection, and brpc clients fail calls for 3 s after a connection closes."""
    write: float = 30.0
    """The maximum time in which the client reads no byte of its reply."""
    grace: float = 1.0
    """The time for which an idle connection stays open while the listener drains, because a request might be in
    transit."""
    linger: float = 2.0
    """The maximum time for the client to read the last reply and close the connection."""


DEFAULT_TIMEOUTS = Timeouts()
PORT_TIMEOUTS = Timeouts(first_byte=5.0, head=5.0, body=5.0)
"""The timeouts of the health, status and scaler ports, whose clients are probes, monitoring systems and people."""

CONNECT_SECONDS = 5.0
"""The maximum time to connect to an endpoint, in seconds. It includes name resolution, the TCP connection, and TLS."""


@frozen
class HttpEndpointTimeouts:
    """Time limits for connections to HTTP endpoints, in seconds."""

    connect: float = CONNECT_SECONDS
    """Maximum time to open a connection, which includes name resolution, TCP and TLS."""
    idle: float = 4.0
    """Time until the connector closes an idle connection. uvicorn (MLServer, KServe) and the C++ UM-Bridge server close
    idle connections after 5 s, so this time must be shorter."""


@frozen
class GrpcEndpointTimeouts:
    """Time limits for connections to gRPC endpoints, in seconds. The time limits do not apply to the wait for a reply,
    which deadlines and policies limit."""

    connect: float = CONNECT_SECONDS
    """Maximum time to resolve the endpoint's name, and to receive its first frame, SETTINGS."""
    between: float = 1.0
    """Time between two attempts to connect to addresses without a connection while other addresses have a
    connection."""
    silence: float = 310.0
    """Time without a frame from the endpoint after which the gateway sends a PING, if calls are in flight. By default,
    gRPC servers close connections on which PINGs arrive more often than every five minutes, or while no call is in
    flight."""
    answer: float = 60.0
    """Maximum time until the reply to the PING."""
    close: float = 1.0
    """Maximum time to send the last frame."""


HTTP_TIMEOUTS, GRPC_TIMEOUTS = HttpEndpointTimeouts(), GrpcEndpointTimeouts()


def connect_seconds(limit: float, deadline: float | None, now: float) -> float:
    """Return the maximum time, in seconds, that a call with `deadline` can wait for a connection. The result is
    `limit`, but at most half of the remaining time, because the rest is reserved for another endpoint."""
    return limit if deadline is None else min(limit, max(deadline - now, 0.0) / 2)


class ReplyProgress:
    """The client's progress in reading a reply, of which `unread` bytes are left at the time `now`. Further replies can
    increase the number of unread bytes. Times are in seconds, on any clock."""

    __slots__ = ("_begun", "_moved", "_taken", "_unread")

    def __init__(self, unread: int, now: float) -> None:
        self._begun = self._moved = now
        self._unread = unread
        self._taken = 0

    def is_too_slow(self, unread: int, now: float, timeouts: Timeouts) -> bool:
        """Return whether the client, with `unread` bytes left, is too slow. A client is too slow if it has read nothing
        for `Timeouts.write` seconds, or takes more than `Timeouts.message` seconds in total. After `Timeouts.write`
        seconds, its average rate must also be at least `Timeouts.rate`."""
        if unread < self._unread:
            self._taken += self._unread - unread
            self._moved = now
        self._unread = unread
        waited = now - self._begun
        allowed = min(timeouts.message, timeouts.write + self._taken / timeouts.rate)
        return now - self._moved > timeouts.write or waited > allowed

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, during which the client could not read anything."""
        self._begun += seconds
        self._moved += seconds
