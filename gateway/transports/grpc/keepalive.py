"""How a host that vanished without a word is noticed."""

import socket

KEEPALIVE_SECONDS = 310.0
"""Of silence while calls are running, until the endpoint is asked. gRPC servers by default drop clients that ask more
often than every five minutes, or while no call runs."""
PING_SECONDS = 60.0
"""For its answer."""

# TCP asks, too, while nothing is under way: after 60 s + 6 x 10 s. macOS has no TCP_KEEPIDLE.
_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
        if hasattr(socket, name)
    ),
]


def keep_alive(connected: socket.socket) -> None:
    """Let TCP ask. TCP_NODELAY is the loops' own default."""
    if connected.family == socket.AF_UNIX:
        return
    borrowed = socket.socket(connected.family, socket.SOCK_STREAM, 0, connected.fileno())
    for option in _OPTIONS:
        borrowed.setsockopt(*option)
    borrowed.detach()
