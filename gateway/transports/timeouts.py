"""How long a client may keep a connection waiting."""

from gateway.core.frozen import frozen


@frozen
class Timeouts:
    """Seconds. None of them bounds the wait for an answer: that is the business of deadlines and policies."""

    head: float = 20.0
    """From the first byte of a message to the end of its head."""
    body: float = 30.0
    """Between two pieces of the rest."""
    message: float = 900.0
    """From the end of a message's head to the end of the rest."""
    rate: float = 4096.0
    """Bytes a second, not seconds: what the rest must come at, on average and after the first `body` seconds."""
    idle: float = 75.0
    """Before the first message; and between two, but for clients that may have many requests in flight. They keep their
    connection for good: brpc's server never closes an idle one, and its client fails calls for 3 s after such a
    close."""
    write: float = 30.0
    """Without the client reading a byte of its reply."""
    grace: float = 1.0
    """For a request that is on its way to an idle connection when the listener closes."""
    linger: float = 2.0
    """For the client to read an error and close, after the gateway gave up reading."""


DEFAULT_TIMEOUTS = Timeouts()

CONNECT_SECONDS = 5.0
"""For a connection to an endpoint: its name resolved, its socket and TLS opened."""


def connect_seconds(limit: float, deadline: float | None, now: float) -> float:
    """How long a call with `deadline` may wait for a connection: `limit`, and at most half of the time that it has, so
    that another endpoint can be asked in the rest."""
    return limit if deadline is None else min(limit, max(deadline - now, 0.0) / 2)
