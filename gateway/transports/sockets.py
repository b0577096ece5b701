"""What the transports that open sockets themselves have in common."""

import asyncio
import os
import re
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterator

from gateway.core.errors import Reason, Status, TransportError

BACKLOG = 2048
"""Connections that the kernel completes while the loop is busy; Linux caps it at net.core.somaxconn."""

# A host that vanishes without a word is noticed after two minutes: 60 s of silence, then six probes 10 s apart. macOS
# has no TCP_KEEPIDLE.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
        if hasattr(socket, name)
    ),
]


def keep_probing(sock: socket.socket | TransportSocket) -> None:
    """Have the kernel notice that the peer has vanished; accepted sockets inherit it from the one that listens.
    TCP_NODELAY is the loops' own default."""
    if sock.family == socket.AF_UNIX:
        return
    # uvloop's socket makes a copy of itself for each option: 3 us
    borrowed = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    for option in _KEEPALIVE:
        borrowed.setsockopt(*option)
    borrowed.detach()


def has_unread(sock: socket.socket | TransportSocket) -> bool:
    """Whether the peer has sent something that the loop has not read yet, or has closed."""
    borrowed = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    try:
        borrowed.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    finally:
        borrowed.detach()
    return True


async def stop_accepting(server: asyncio.Server, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    """Close the server's sockets, after accepting what stands in their queues: to its client such a connection is made,
    and the kernel would reset it. When this returns, `protocol` has been called for every accepted connection, and each
    is made."""
    loop = asyncio.get_running_loop()
    # asyncio hands over what it has accepted in its next turns, and fails to if the server is closed by then. uvloop
    # has no such readers, and hands over in the next turn, whatever becomes of the server.
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    await _turns()
    copies = [socket.socket(each.family, each.type, 0, os.dup(each.fileno())) for each in server.sockets]
    server.close()
    accepted: list[socket.socket] = []
    for copy in copies:
        with copy:
            copy.setblocking(False)
            accepted += _queued(copy)
    for connection in accepted:
        await loop.connect_accepted_socket(protocol, connection)
    await _turns()


async def _turns() -> None:
    """Let the loop do everything else that it has to do by now, and what follows from that."""
    for _ in range(3):
        await asyncio.sleep(0)


def _queued(listening: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            connection, _ = listening.accept()
        except ConnectionAbortedError:  # it left while it waited
            continue
        except OSError:  # there are no more, or too many open files
            return
        connection.setblocking(False)
        yield connection


def unreachable(text: str) -> TransportError:
    """What to raise where no connection can be made."""
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False)


def not_connected(error: OSError, host: str, seconds: float) -> TransportError:
    """What to raise for `error`, which came of connecting to `host` within `seconds`."""
    if isinstance(error, TimeoutError):
        return unreachable(f"no connection within {seconds:g} s")
    if isinstance(error, socket.gaierror):
        return unreachable(f"host name {host!r} not resolved: {error.strerror}")
    return unreachable(_why(error))


def _why(error: OSError) -> str:
    """The system's words, without the loop's: `connection refused`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    # A name with several addresses (localhost) may fail with all their texts in one, and no number.
    numbers = [error.errno] if error.errno else re.findall(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(numbers[0])).lower() if numbers else str(error)
