"""Hostile servers, which answer calls of a gateway incorrectly. The tests provide their scripts."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.core.http2 import by_hand as http2

Script = Callable[[socket.socket], None]
"""The behavior on each connection."""


class Stage:
    """Servers by name. Each server runs its script on every connection. `addresses` contains their addresses."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._selector = selectors.DefaultSelector()
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._guard = threading.Lock()
        self._open: dict[str, set[socket.socket]] = {name: set() for name in scripts}
        self.addresses: dict[str, str] = {}
        for name, script in scripts.items():
            listening = socket.create_server(("127.0.0.1", 0), backlog=128)
            listening.setblocking(False)
            self._selector.register(listening, selectors.EVENT_READ, (name, script))
            self.addresses[name] = f"127.0.0.1:{listening.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def open(self, name: str) -> int:
        """Return the number of connections of this server."""
        with self._guard:
            return len(self._open[name])

    def close(self, name: str) -> None:
        """Close the connections of this server."""
        with self._guard:
            for connection in self._open[name]:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close everything."""
        self._end.close()
        self._accepting.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        for name in self._open:
            self.close(name)

    def _accept(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._ended:
                    return
                with suppress(OSError):
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                    connection.setblocking(True)
                    name, script = key.data
                    with self._guard:
                        self._open[name].add(connection)
                    threading.Thread(target=self._play, args=(name, script, connection), daemon=True).start()

    def _play(self, name: str, script: Script, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, EOFError):
                script(connection)
        finally:
            with self._guard:
                self._open[name].discard(connection)


@contextmanager
def stage(scripts: Mapping[str, Script]) -> Iterator[Stage]:
    """Yield servers that run until the context ends."""
    playing = Stage(scripts)
    try:
        yield playing
    finally:
        playing.end()


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Yield the address of a server that runs `script` on each connection."""
    with stage({"": script}) as playing:
        yield playing.addresses[""]


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def http_request(connection: socket.socket) -> tuple[bytes, bytes]:
    """Return the head and the body of the next request."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += exactly(connection, 1)
    length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, exactly(connection, sum(length))


def mip_request(connection: socket.socket) -> bytes:
    head = exactly(connection, 8)
    return head + exactly(connection, int.from_bytes(head[4:]))


def brpc_request(connection: socket.socket) -> bytes:
    head = exactly(connection, 12)
    return head + exactly(connection, int.from_bytes(head[4:8]))


def http2_opening(connection: socket.socket) -> None:
    exactly(connection, len(http2.PREFACE))
    connection.sendall(http2.settings() + http2.window_update(0, 2**30))


def http2_request(connection: socket.socket) -> tuple[int, bytes]:
    """Return the stream of the next call, and its DATA."""
    found = b""
    while True:
        head = exactly(connection, 9)
        payload = exactly(connection, int.from_bytes(head[:3]))
        if head[3] == http2.DATA:
            found += payload
        if head[3] in (http2.DATA, http2.HEADERS) and head[4] & http2.END_STREAM:
            return int.from_bytes(head[5:]), found


def silent(connection: socket.socket) -> None:
    """Read until the other side closes the connection."""
    while connection.recv(65536):
        pass
