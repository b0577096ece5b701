"""How a host that vanished without a word is noticed while nothing is under way."""

import socket

# After 60 s + 6 x 10 s. macOS has no TCP_KEEPIDLE.
_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
        if hasattr(socket, name)
    ),
]


def keep_alive(connected: socket.socket) -> None:
    """Let TCP ask whether the other side is there. TCP_NODELAY is the loops' own default."""
    if connected.family == socket.AF_UNIX:
        return
    borrowed = socket.socket(connected.family, socket.SOCK_STREAM, 0, connected.fileno())
    for option in _OPTIONS:
        borrowed.setsockopt(*option)
    borrowed.detach()
