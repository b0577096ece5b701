"""What the transports that open sockets themselves have in common."""

import asyncio
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import termios
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterator
from contextlib import suppress

BACKLOG = 2048
"""Connections that the kernel completes while the loop is busy; Linux caps it at net.core.somaxconn."""

# A host that vanishes without a word is noticed after two minutes: 60 s of silence, then six probes 10 s apart. macOS
# has no TCP_KEEPIDLE.
_SO_ATTACH_FILTER = 26

_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
        if hasattr(socket, name)
    ),
]

_TELLS_UNCONFIRMED = sys.platform == "linux"


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
    try:
        _peek(sock, 1)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def unread(sock: socket.socket | TransportSocket, size: int) -> bytes:
    """The first `size` bytes of what the peer has sent and the loop has not read yet."""
    try:
        return _peek(sock, size)
    except OSError:
        return b""


def _peek(sock: socket.socket | TransportSocket, size: int) -> bytes:
    borrowed = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    try:
        return borrowed.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    finally:
        borrowed.detach()


def listening_to(descriptor: int) -> select.poll:
    """Its `poll(0)` is empty as long as the peer has neither closed nor sent anything that nobody has read yet."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def unconfirmed(descriptor: int) -> int:
    """How many of the bytes that were sent over TCP the peer's system has not confirmed. A reply confirms all that its
    sender had received by then. 0 where the system does not tell."""
    if not _TELLS_UNCONFIRMED:
        return 0
    return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


async def stop_accepting(server: asyncio.Server, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    """Close the server's sockets, after accepting what stands in their queues: to its client such a connection is made,
    and the kernel would reset it. When this returns, `protocol` has been called for every accepted connection, and each
    is made."""
    loop = asyncio.get_running_loop()
    copies = [socket.socket(each.family, each.type, 0, os.dup(each.fileno())) for each in server.sockets]
    for each in copies:
        _refuse_handshakes(each)
    # asyncio hands over what it has accepted in its next turns, and fails to if the server is closed by then. uvloop
    # has no such readers, and hands over in the next turn, whatever becomes of the server.
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    await _turns()
    server.close()
    accepted: list[socket.socket] = []
    for copy in copies:
        with copy:
            copy.setblocking(False)
            accepted += _queued(copy)
    for connection in accepted:
        await loop.connect_accepted_socket(protocol, connection)
    await _turns()


def _refuse_handshakes(listening: socket.socket) -> None:
    """Have the kernel drop new SYNs (Linux): a connection that came about between the last `accept` and `close` would
    be reset. The client sends its SYN once more after a second, and is refused then; those that have been answered go
    on to be accepted."""
    if sys.platform != "linux" or listening.family == socket.AF_UNIX:
        return
    # Classic BPF, which sees a TCP segment from its header on; byte 13 has the flags, of which SYN is 0x02, ACK 0x10.
    program = (
        (0x30, 0, 0, 13),  # load byte 13
        (0x54, 0, 0, 0x12),  # and 0x12
        (0x15, 0, 1, 0x02),  # SYN alone?
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, 0x40000),  # accept
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    with suppress(OSError):  # without it stopping is as it is elsewhere
        listening.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code))
        )


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
