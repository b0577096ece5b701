"""HTTP of the grps peers on http.server: any method, chunked bodies both ways; what is answered is the servers' own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.in_thread import QuietHandler


@dataclass(frozen=True)
class Call:
    """One request as it arrived; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    """Which one of the server's connections, from 1."""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def kind(self) -> str | None:
        return self.headers.get("content-type")

    def asks(self, key: str) -> bool:
        return self.query.get(key, "").lower() == "true"


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes | Iterator[bytes]
    """An iterator is sent chunked: a chunk for each."""
    kind: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


Answer = Callable[[Call], Reply]


class Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    number = 0

    def setup(self) -> None:
        self.number = self.server.connected()
        super().setup()

    def handle_any(self) -> None:
        limit = self.server.body_limit
        size = int(self.headers.get("Content-Length", 0))
        if limit is not None and size > limit:
            self.close_connection = True
            self.write(Reply(413, b""))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = b"".join(self.chunks()) if "transfer-encoding" in headers else self.rfile.read(size)
        call = Call(self.command, self.path, headers, body, self.number)
        self.server.requests.append(call)
        self.write(self.server.answer(call))

    # The base class looks for its handlers by these names.
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline() not in (b"\r\n", b""):
            pass

    def write(self, reply: Reply) -> None:
        self.send_response(reply.status)
        if reply.kind is not None:
            self.send_header("Content-Type", reply.kind)
        for name, value in reply.headers:
            self.send_header(name, value)
        if self.server.close_each or self.close_connection:
            self.send_header("Connection", "close")
        if isinstance(reply.body, bytes):
            self.send_header("Content-Length", str(len(reply.body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.command != "HEAD":
            self.write_body(reply.body)

    def write_body(self, body: bytes | Iterator[bytes]) -> None:
        if isinstance(body, bytes):
            self.wfile.write(body)
            return
        for piece in body:
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    """`url`, `address`, and what came: `requests`, `connections`."""

    daemon_threads = True

    def __init__(self, answer: Answer, port: int = 0, *, close_each: bool, body_limit: int | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.close_each = close_each
        self.body_limit = body_limit
        self.requests: list[Call] = []
        self.connections = 0
        self._guard = threading.Lock()
        self.port = int(self.server_address[1])
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"

    def connected(self) -> int:
        with self._guard:
            self.connections += 1
            return self.connections

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away."""


# --- Customized paths: the request and the reply are the model's own ---


def customized(call: Call) -> Reply:
    """Gives the body back under its own content type; with streaming, in server-sent events, one for each line.

    The model `fail` loses its error on the way, `crash` is a text: so with the Python server.
    """
    model = call.query.get("model", "")
    if model.startswith("fail"):
        return Reply(200, b"")
    if model.startswith("crash"):
        return Reply(500, b"the model broke", "text/plain")
    if call.asks("streaming"):
        return Reply(200, (b"data: %b\n\n" % line for line in call.body.split(b"\n")), "text/event-stream")
    return Reply(200, call.body, call.kind)


def monitor(call: Call) -> Reply | None:
    """The metrics page and what it draws; None for every other path."""
    if call.path == "/":
        return Reply(200, b"<html><head><title>grps</title></head><body></body></html>", "text/html; charset=utf-8")
    if call.path == "/grps/v1/monitor/series":
        return Reply(200, b'{"label": "trend", "data": [[0, 0], [1, 0.5]]}', "application/json")
    return None
