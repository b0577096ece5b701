"""Servers that a gateway asks, and that answer as no server should."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.transports.grpc import http2

Script = Callable[[socket.socket], None]
"""What is done with each connection."""


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The address of a server that plays `script` on each connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, EOFError):
                script(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def http_request(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head and the body of the next one."""
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
    """The stream of the next call, and its DATA."""
    found = b""
    while True:
        head = exactly(connection, 9)
        payload = exactly(connection, int.from_bytes(head[:3]))
        if head[3] == http2.DATA:
            found += payload
        if head[3] in (http2.DATA, http2.HEADERS) and head[4] & http2.END_STREAM:
            return int.from_bytes(head[5:]), found


def silent(connection: socket.socket) -> None:
    """Reads until the other side closes."""
    while connection.recv(65536):
        pass
