"""A server of literal bytes, for what no well-behaved server sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event
from typing import Any

from tests.in_thread import in_thread
from tests.paused_server import port_of
from tests.peers.httplib import read_request


@contextmanager
def literal_server(address: str, reply: Callable[[str], bytes | None]) -> Iterator[Event]:
    """Sends the bytes for the target of a request, and closes; None resets instead. Gives an event: whether the last
    connection that was accepted is closed."""
    closed = Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            closed.clear()
            request = read_request(0, self.connection, self.rfile)  # type: ignore[arg-type]
            data = b"" if request is None else reply(request.target)
            if data is None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.wfile.write(data)

    class Server(ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

        def shutdown_request(self, request: Any) -> None:
            # Without a shutdown of its own, which would come before a reset.
            self.close_request(request)
            closed.set()

    with in_thread(Server(("127.0.0.1", port_of(address)), Handler)):
        yield closed
