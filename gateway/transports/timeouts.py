"""Time limits of connections: those of clients, and connecting to endpoints.

Further limits towards endpoints are in `http/client/connector.py` and `grpc/client/timeouts.py`.
"""

from gateway.core.frozen import frozen


@frozen
class Timeouts:
    """How long a client may keep a connection waiting, in seconds, on every transport (HTTP, gRPC, TCP). No YAML key
    sets these; how many bytes a client may send is `Limits` in `gateway/core/protocol.py`. None of these bounds the
    wait for a reply; deadlines and policies do."""

    head: float = 20.0
    """From the first byte of a message to the end of its head."""
    body: float = 30.0
    """Between two pieces of the rest of the message."""
    message: float = 900.0
    """From the end of a message's head to its end; and for the client to read a reply."""
    rate: float = 4096.0
    """Bytes per second (not seconds): the average at which the rest must arrive, after the first `body` seconds, and at
    which the client must read a reply, after the first `write` seconds."""
    handshake: float = 10.0
    """For the whole TLS handshake, from the moment when the client connects."""
    first_byte: float = 75.0
    """Between the moment when the client connects and its first byte."""
    idle: float = 75.0
    """Between two messages. A client that multiplexes requests keeps its idle connection
    for ever once it has sent one: brpc's server never closes an idle connection, and its client fails calls for 3 s
    after such a close."""
    write: float = 30.0
    """While the client reads no byte of its reply."""
    grace: float = 1.0
    """An idle connection stays open for so long when the listener drains: a request may be on its way."""
    linger: float = 2.0
    """For the client to read the last reply and close."""


DEFAULT_TIMEOUTS = Timeouts()
PORT_TIMEOUTS = Timeouts(first_byte=5.0, head=5.0, body=5.0)
"""At the ports beside the listeners, whose clients are probes, monitoring and people."""

CONNECT_SECONDS = 5.0
"""For connecting to an endpoint: resolving its name, the TCP connection, and TLS."""


def connect_seconds(limit: float, deadline: float | None, now: float) -> float:
    """How long a call with `deadline` may wait for a connection: `limit`, but at most half of the time that is left, so
    that another endpoint can be tried in the rest."""
    return limit if deadline is None else min(limit, max(deadline - now, 0.0) / 2)
