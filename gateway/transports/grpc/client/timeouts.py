"""How long an endpoint may keep the gateway waiting."""

from gateway.core.frozen import frozen
from gateway.transports.timeouts import CONNECT_SECONDS


@frozen
class EndpointTimeouts:
    """Seconds. None of them bounds the wait for an answer: that is the business of deadlines and policies."""

    connect: float = CONNECT_SECONDS
    """For its settings, which are the first that it says; and for its name to be resolved."""
    between: float = 1.0
    """Between two attempts at the addresses that have no connection, while there are others."""
    silence: float = 310.0
    """Until it is asked whether it is there, while calls are running. gRPC servers by default drop clients that ask
    more often than every five minutes, or while no call runs."""
    answer: float = 60.0
    """To that question."""
    close: float = 1.0
    """For it to take the last frame."""


DEFAULT_TIMEOUTS = EndpointTimeouts()
