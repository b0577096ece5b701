"""Servers that are wrong in one way: relays in front of a reference server that change what comes back."""

import json
import select
import socket
import socketserver
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from typing import Any

import grpc

from tests.in_thread import QuietHandler, in_thread
from tests.limits import GENEROUS

Change = Callable[[str, bytes, int, bytes], tuple[int, bytes] | tuple[int, bytes, dict[str, str]]]
"""Takes the path, the request's body, and the status and the body of an HTTP reply. Returns the status, the body and
the headers of the reply in its place."""
ChangeMessage = Callable[[str, bytes, bytes], bytes]
"""Of a message: method, request and reply to reply. Raises RpcFailure for another status."""
ChangeBytes = Callable[[bytes, bytes], bytes]
"""Of a byte stream: all that was sent so far, and a reply, to reply; empty closes the connection. Raises Last to close
it after bytes."""

CODES = {each.name: each for each in grpc.StatusCode}


class RpcFailure(Exception):  # noqa: N818 - a reply
    """A status other than OK, by its name."""


class Last(Exception):  # noqa: N818 - a reply
    """Bytes after which the connection is closed."""


def unchanged(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
    """The reply as it is."""
    return status, body


def replies(path: str, status: int, body: bytes) -> Change:
    """One reply to all requests for a path."""
    return lambda asked, sent, was, received: (status, body) if asked.endswith(path) else (was, received)


def replaced(path: str, old: bytes, new: bytes) -> Change:
    """Other bytes in the replies to a path."""
    return lambda asked, sent, status, body: (status, body.replace(old, new) if asked.endswith(path) else body)


def in_turn(*changes: Change) -> Change:
    """Several changes of status and body."""

    def change(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        for each in changes:
            status, body, *_ = each(path, sent, status, body)
        return status, body

    return change


def as_text(path: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """The reply as text/plain."""
    return status, body, {"Content-Type": "text/plain"}


def members(path: str, **changed: Any) -> Change:
    """Other values for members of the JSON replies to a path."""

    def change(asked: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if not asked.endswith(path) or status != 200:
            return status, body
        return status, json.dumps({**json.loads(body), **changed}).encode()

    return change


def mapped(path: str, function: Callable[[Any], Any]) -> Change:
    """The JSON replies to a path as a function makes them."""

    def change(asked: str, sent: bytes, status: int, body: bytes) -> tuple[int, bytes]:
        if not asked.endswith(path) or status != 200:
            return status, body
        return status, json.dumps(function(json.loads(body))).encode()

    return change


def errors(status: int, body: bytes) -> Change:
    """One reply for everything that the server refuses."""
    return lambda path, sent, was, received: (was, received) if was == 200 else (status, body)


def lenient(body: bytes) -> Change:
    """What is refused is accepted."""
    return errors(200, body)


@contextmanager
def over_http(upstream: str, change: Change, keep_alive: bool = True) -> Iterator[str]:
    """The address of a relay over HTTP."""

    class Relay(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _relay(self) -> None:
            sent = self._body()
            connection = HTTPConnection(upstream, timeout=GENEROUS)
            headers = {key: value for key, value in self.headers.items() if key.lower() != "transfer-encoding"}
            connection.request(self.command, self.path, sent or None, headers)
            reply = connection.getresponse()
            status, body, *others = change(self.path, sent, reply.status, reply.read())
            own = {name.title(): value for name, value in reply.getheaders()} | (others[0] if others else {})
            self.send_response(status)
            for name, value in own.items():
                if name not in ("Content-Length", "Transfer-Encoding", "Connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            if not keep_alive:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            connection.close()

        do_GET = do_POST = _relay

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Relay)) as address:
        yield address


@contextmanager
def over_tcp(upstream: str, change: ChangeBytes) -> Iterator[str]:
    """The address of a relay of byte streams."""
    host, _, port = upstream.removeprefix("tcp://").rpartition(":")

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            sent = b""
            with socket.create_connection((host, int(port)), 10) as back:
                while True:
                    ready, _, _ = select.select([self.request, back], [], [], 10)
                    if self.request in ready:
                        data = self.request.recv(1 << 20)
                        sent += data
                        if data:
                            back.sendall(data)
                        else:
                            back.shutdown(socket.SHUT_WR)
                            ready = [back]
                    if back in ready:
                        data = back.recv(1 << 20)
                        try:
                            data = change(sent, data) if data else b""
                        except Last as last:
                            self.request.sendall(last.args[0])
                            return
                        if not data:
                            return
                        self.request.sendall(data)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay)
    server.daemon_threads = True
    with in_thread(server) as address:
        yield address


@contextmanager
def over_grpc(upstream: str, change: ChangeMessage, stream: Sequence[bytes] | None = None) -> Iterator[str]:
    """The address of a relay over gRPC, for calls with one request and one reply. Streams have the replies `stream`;
    without it, they are not there."""
    channel = grpc.insecure_channel(upstream)

    class Relay(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            if details.method.endswith(("ModelStreamInfer", "PredictStreaming", "ServerReflectionInfo")):
                return None if stream is None else grpc.stream_stream_rpc_method_handler(lambda *_: iter(stream))
            return grpc.unary_unary_rpc_method_handler(lambda sent, context: relayed(details.method, sent, context))

    def relayed(method: str, sent: bytes, context: Any) -> bytes:
        refused = None
        try:
            reply = channel.unary_unary(method)(sent, timeout=GENEROUS)
        except grpc.RpcError as error:
            refused, reply = error, b""
        try:
            changed = change(method, sent, reply)
        except RpcFailure as failure:
            context.abort(CODES[str(failure)], "broken")
        if refused is not None:
            context.abort(refused.code(), refused.details())
        return changed

    server = grpc.server(ThreadPoolExecutor(4), (Relay(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        channel.close()
