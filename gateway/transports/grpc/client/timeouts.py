"""Time limits of connections to gRPC endpoints."""

from gateway.core.frozen import frozen
from gateway.transports.timeouts import CONNECT_SECONDS


@frozen
class EndpointTimeouts:
    """Times in seconds. Deadlines and policies limit the wait for a reply; these times do not."""

    connect: float = CONNECT_SECONDS
    """Maximum time to resolve the endpoint's name, and to receive its first frame, SETTINGS."""
    between: float = 1.0
    """Time between two attempts to connect to addresses without a connection, while other addresses have one."""
    silence: float = 310.0
    """Time without a frame from the endpoint, while calls run, until the gateway sends a PING. By default, gRPC servers
    close connections that send a PING more often than every five minutes, or while no call runs."""
    answer: float = 60.0
    """Maximum time until the reply to that PING."""
    close: float = 1.0
    """Maximum time to send the last frame."""


DEFAULT_TIMEOUTS = EndpointTimeouts()
