"""Socket options, socket functions, and the files of unix sockets, for all transports."""

import asyncio
import ctypes
import errno
import os
import select
import socket
import stat
import struct
import sys
from array import array
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from gateway.core.address import Address

if sys.platform != "win32":  # only the client runs on Windows
    import fcntl
    import termios

BACKLOG = 2048
"""The number of connections that the kernel can complete before the gateway accepts them.

Linux limits this number to net.core.somaxconn."""

_SO_ATTACH_FILTER = 26

# If a host disappears without closing its connections, the gateway detects this after two minutes: 60 s of silence,
# then six probes 10 s apart. macOS has no TCP_KEEPIDLE.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
        if hasattr(socket, name)
    ),
]

_HAS_UNCONFIRMED = sys.platform == "linux"
_UNIX = getattr(socket, "AF_UNIX", None)
_DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
"""The flag for calls that do not wait. Windows does not have it, but the loop's sockets never block."""


def keep_probing(sock: socket.socket | TransportSocket) -> None:
    """Enable TCP keepalive, so the kernel detects a peer that has disappeared.

    Accepted sockets inherit keepalive from the listening socket. The function does not set TCP_NODELAY, because the
    event loops set it by default."""
    if sock.family == _UNIX:
        return
    # uvloop's socket object duplicates the descriptor for each option, which takes 3 us
    borrowed = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    for option in _KEEPALIVE:
        borrowed.setsockopt(*option)
    borrowed.detach()


def has_unread(sock: socket.socket | TransportSocket) -> bool:
    """Return whether the peer has closed the connection or has sent bytes that the loop has not read yet."""
    try:
        _peek(sock, 1)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def unread(sock: socket.socket | TransportSocket, size: int) -> bytes:
    """Return the first `size` bytes that the peer has sent and the loop has not read yet. The bytes stay unread."""
    try:
        return _peek(sock, size)
    except OSError:
        return b""


def _peek(sock: socket.socket | TransportSocket, size: int) -> bytes:
    borrowed = socket.socket(sock.family, socket.SOCK_STREAM, 0, sock.fileno())
    try:
        return borrowed.recv(size, socket.MSG_PEEK | _DONT_WAIT)
    finally:
        borrowed.detach()


class Polled(Protocol):
    """Checks whether a connection is quiet."""

    def poll(self, timeout: float, /) -> list[Any]:
        """Return an empty list while the peer has neither closed the connection nor sent unread data.

        If `timeout` is 0, the method does not wait."""


def listening_to(descriptor: int) -> Polled:
    """Return a poll object for the connection with this descriptor."""
    if not hasattr(select, "poll"):
        return _Selected(descriptor)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


class _Selected:
    """A poll object that uses `select`, because Windows provides only `select`."""

    __slots__ = ("_descriptors",)

    def __init__(self, descriptor: int) -> None:
        self._descriptors = [descriptor]

    def poll(self, timeout: float, /) -> list[Any]:
        return select.select(self._descriptors, [], [], timeout)[0]


class Unconfirmed:
    """The number of bytes sent over TCP that the peer's system has not acknowledged. A reply acknowledges all bytes
    that the peer received before sending it."""

    __slots__ = ("_answer", "_ask")

    def __init__(self, descriptor: int) -> None:
        self._answer = array("i", (0,))  # the ioctl writes into this array, which takes half as long as returning bytes
        self._ask = partial(fcntl.ioctl, descriptor, termios.TIOCOUTQ, self._answer) if _HAS_UNCONFIRMED else int

    def count(self) -> int:
        """Return the current number of bytes; 0 on systems that do not report this number."""
        self._ask()
        return self._answer[0]


async def bound_server(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Server:
    """Return a server that is bound to a TCP address, but does not accept connections yet.

    Raises:
        OSError: the address is in use, not allowed, or not an address of this machine.
    """
    server = await asyncio.get_running_loop().create_server(
        protocol, address.host, address.port, backlog=BACKLOG, reuse_port=address.shared, start_serving=False
    )
    for sock in server.sockets:
        keep_probing(sock)
    return server


async def stop_accepting(server: asyncio.Server, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    """Accept the connections that are waiting in the queues of the server's sockets, and then close the sockets.

    For its client, a waiting connection is already established, and closing the socket would reset it. When this
    function returns, `protocol` and `connection_made` have run for every accepted connection."""
    loop = asyncio.get_running_loop()
    copies = [socket.socket(each.family, each.type, 0, os.dup(each.fileno())) for each in server.sockets]
    for each in copies:
        _refuse_handshakes(each)
    # asyncio hands over accepted connections in later turns of the loop, but not after the server is closed. uvloop has
    # no readers to remove, and hands over connections in the next turn, even after the server is closed.
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    await _run_scheduled()
    server.close()
    accepted: list[socket.socket] = []
    for copy in copies:
        with copy:
            copy.setblocking(False)
            accepted += _accept_queued(copy)
    for connection in accepted:
        await loop.connect_accepted_socket(protocol, connection)
    await _run_scheduled()


def _refuse_handshakes(listening: socket.socket) -> None:
    """Make the kernel drop new SYNs (Linux). Otherwise, a connection that is established between the last `accept` and
    `close` would be reset. With the filter, the client repeats its SYN after a second, and is then refused. The kernel
    completes TCP handshakes in progress."""
    if sys.platform != "linux" or listening.family == _UNIX:
        return
    # Classic BPF. Offset 0 is the start of the TCP header, whose byte 13 contains the flags: SYN is 0x02, ACK is 0x10.
    program = (
        (0x30, 0, 0, 13),  # load byte 13
        (0x54, 0, 0, 0x12),  # and 0x12
        (0x15, 0, 1, 0x02),  # SYN alone?
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, 0x40000),  # accept
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    with suppress(OSError):  # without the filter, stopping works as on other systems
        listening.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code))
        )


async def _run_scheduled() -> None:
    """Run the callbacks that are scheduled now, and the callbacks that these callbacks schedule."""
    for _ in range(3):
        await asyncio.sleep(0)


def _accept_queued(listening: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            connection, _ = listening.accept()
        except ConnectionAbortedError:  # the client disconnected while it waited
            continue
        except OSError:  # no connection is left, or too many files are open
            return
        connection.setblocking(False)
        yield connection


# --- Unix sockets ---

UNIX_SOCKET_MODE = 0o660
"""The file's mode, which allows only the gateway's user and group to connect."""


class UnixSocket:
    """A socket that is bound to `path`, but does not listen yet, so clients cannot connect before the file's mode is
    set.

    Raises:
        OSError: `path` is a file other than a socket, a process listens on the socket, or the folder does not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        _clear(self._path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setblocking(False)
            self.socket.bind(path)
            self._path.chmod(UNIX_SOCKET_MODE)
        except OSError:
            self.socket.close()
            raise
        self._identity = _identity(self._path)

    def remove(self) -> None:
        """Remove the file, unless another process has replaced it."""
        with suppress(FileNotFoundError):
            if _identity(self._path) == self._identity:
                self._path.unlink()


def _clear(path: Path) -> None:
    """Remove a socket file that a killed process has left."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "the path exists, and is not a socket; choose another path")
    if _is_served(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink(missing_ok=True)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # the backlog of its process is full
            return True
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
