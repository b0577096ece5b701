"""Time limits of connections to gRPC endpoints."""

from gateway.core.frozen import frozen
from gateway.transports.timeouts import CONNECT_SECONDS


@frozen
class EndpointTimeouts:
    """Times in seconds. None of them bounds the wait for a reply; deadlines and policies do."""

    connect: float = CONNECT_SECONDS
    """For the endpoint's name to be resolved, and for its first frame, which is SETTINGS."""
    between: float = 1.0
    """Between two attempts to connect to addresses without a connection, while other addresses have one."""
    silence: float = 310.0
    """Without a frame from the endpoint, while calls run, until a PING is sent. By default gRPC servers end connections
    that send PING more often than every five minutes, or while no call runs."""
    answer: float = 60.0
    """For the reply to that PING."""
    close: float = 1.0
    """For the last frame to be sent."""


DEFAULT_TIMEOUTS = EndpointTimeouts()
