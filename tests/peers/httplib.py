"""An HTTP server with the habits of cpp-httplib 0.9, which UM-Bridge's C++ server stands on.

At most 8 threads, one per *connection*, so that idle kept-alive connections shut everyone else out; connections kept
for 5 s and 5 requests; header and body written apart without TCP_NODELAY, which costs a delayed ACK on every kept
connection. Written from observations of the original's wire, and independent of the gateway.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader

THREADS = 8
KEEP_ALIVE_REQUESTS = 5
BACKLOG = 5


@dataclass(frozen=True)
class Received:
    """One request as it arrived; header names in lower case."""

    connection: int
    version: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def head(self, *more: tuple[str, str]) -> bytes:
        kind = (("Content-Type", "application/json"),) if self.body else ()
        headers = (*self.headers, ("Content-Length", str(len(self.body))), *kind, *more)
        lines = [f"HTTP/1.1 {self.status} {REASONS[self.status]}", *(f"{name}: {value}" for name, value in headers)]
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1", "replace")


class Server:
    """The sockets and threads; `answer` runs on the thread of its connection."""

    def __init__(self, answer: Callable[[Received], Reply], keep_alive: float = 5) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self._answer = answer
        self._keep_alive = keep_alive
        self._guard = threading.Lock()
        self._stopping = False
        self._open: set[socket.socket] = set()
        self._waiting: queue.SimpleQueue[tuple[int, socket.socket] | None] = queue.SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads += [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    @property
    def open_connections(self) -> int:
        with self._guard:
            return len(self._open)

    def stop(self) -> None:
        """Close everything and join every thread; what `answer` still computes is waited for."""
        with self._guard:
            self._stopping = True
            connections = list(self._open)
        for connection in (self._listener, *connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for _ in range(THREADS):
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            with self._guard:
                if self._stopping:
                    connection.close()
                    return
                self.connections += 1
                self._open.add(connection)
                self._waiting.put((self.connections, connection))

    def _work(self) -> None:
        while (taken := self._waiting.get()) is not None:
            number, connection = taken
            try:
                with connection, connection.makefile("rb") as stream:
                    self._converse(number, connection, stream)
            except (OSError, ValueError, EOFError):
                pass  # the client went away, is too slow, or does not speak HTTP: the original just closes
            finally:
                with self._guard:
                    self._open.discard(connection)

    def _converse(self, number: int, connection: socket.socket, stream: BufferedReader) -> None:
        for left in reversed(range(KEEP_ALIVE_REQUESTS)):
            connection.settimeout(self._keep_alive)
            request = read_request(number, connection, stream)
            if request is None:
                return
            with self._guard:
                self.requests.append(request)
            reply = self._answer(request)
            close = not left or wants_close(request)
            kept = ("Connection", "close") if close else ("Keep-Alive", f"timeout=5, max={KEEP_ALIVE_REQUESTS}")
            connection.settimeout(5)  # cpp-httplib's write timeout
            connection.sendall(reply.head(kept))
            if reply.body:
                connection.sendall(reply.body)
            if close:
                return


def wants_close(request: Received) -> bool:
    option = request.headers.get("connection", "").lower()
    unbounded = request.method == "POST" and "content-length" not in request.headers
    chunked = "transfer-encoding" in request.headers
    return (
        option == "close" or (request.version == "HTTP/1.0" and option != "keep-alive") or (unbounded and not chunked)
    )


def read_request(number: int, connection: socket.socket, stream: BufferedReader) -> Received | None:
    line = stream.readline(8192)
    if not line:
        return None
    method, target, version = line.decode("latin-1").split()
    headers = {}
    while (line := stream.readline(8192)) not in (b"\r\n", b"\n"):
        name, separator, value = line.decode("latin-1").partition(":")
        if not separator:
            raise EOFError("the head of a request is incomplete")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = read_body(connection, stream, headers) if method == "POST" else b""
    return Received(number, version, method, target, headers, body)


def read_body(connection: socket.socket, stream: BufferedReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join(read_chunks(stream))
    if "content-length" not in headers:
        # The body ends with the connection; the original waits for that for up to a year.
        connection.settimeout(None)
        return stream.read()
    size = int(headers["content-length"])
    body = stream.read(size)
    if len(body) < size:
        raise EOFError("the body of a request is incomplete")
    return body


def read_chunks(stream: BufferedReader) -> Iterator[bytes]:
    while size := int(stream.readline(8192).split(b";")[0], 16):
        yield stream.read(size)
        stream.readline(8192)
    while stream.readline(8192) not in (b"\r\n", b"\n", b""):
        pass
