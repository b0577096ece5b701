"""HTTP, raw connections and protobuf messages for the checks. This module uses the standard library, Google's protobuf
package and descriptors compiled by protoc, and shares no code with the gateway."""

import json
import selectors
import socket
from functools import cache
from http.client import HTTPConnection, HTTPSConnection
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Options, Transcript, deviate, fail, readable, require

MAX_BODY = 64 << 20
"""Maximum size of a reply body, in bytes."""


@frozen
class HttpReply:
    """A reply. The names in `headers` are lowercase."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON. The check fails if the body is not valid JSON, which does not allow NaN and
        Infinity."""
        try:
            return json.loads(self.body, parse_constant=_no_json)
        except ValueError as error:
            fail(f"status {self.status}: the body is not JSON: {error}")

    @property
    def document(self) -> Any:
        """Return the body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.body, parse_constant=_no_json)
        except ValueError:
            return None

    @property
    def object(self) -> dict[str, Any]:
        """Return the body as a JSON object."""
        document = self.json
        if not isinstance(document, dict):
            fail(f"status {self.status}: the body is not a JSON object")
        return document

    def check_is_error(self, what: str, expected: str) -> None:
        """Check that the status is 4xx or 5xx, and that the body is a JSON object with the string `error`."""
        require(400 <= self.status < 600, f"{what}: status {self.status}; expected {expected}")
        document = self.document
        if not isinstance(document, dict) or not isinstance(document.get("error"), str):
            found = sorted(document) if isinstance(document, dict) else "no JSON object"
            fail(f"{what}: status {self.status} with {found}; expected an object with the string `error`")


class HttpServer:
    """A client for the server under test, over HTTP/1.1. Each request uses its own connection, except in
    `kept_alive`."""

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"address {address!r} is not HOST:PORT or a URL like http://HOST:PORT/PATH")
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self.options = options
        self._transcript = transcript

    def reach(self) -> None:
        """Connect once, and close the connection. Raise OSError if the server is unreachable."""
        connection = self._connection()
        try:
            connection.connect()
        finally:
            connection.close()

    def close(self) -> None:
        pass

    def get(self, path: str) -> HttpReply:
        """Return the reply to a GET request."""
        return self.request("GET", path)

    def post(self, path: str, document: Any, **headers: str) -> HttpReply:
        """Return the reply to a POST request with a JSON body, or with unchanged bytes. Underscores in header names
        become hyphens."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        named = {"Content-Type": "application/json", **{key.replace("_", "-"): each for key, each in headers.items()}}
        return self.request("POST", path, body, named)

    def request(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> HttpReply:
        """Return the reply to one request on its own connection."""
        connection = self._connection()
        try:
            return self._exchanged(connection, method, path, body, dict(headers or {}))
        finally:
            connection.close()

    def chunked(self, path: str, body: bytes, content_type: str = "application/json") -> HttpReply:
        """Return the reply to a POST request with a body in two chunks, without a Content-Length."""
        connection, half = self._connection(), len(body) // 2
        headers = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        try:
            self._transcript.send(f"POST {self._prefix}{path} (chunked)", body)
            pieces = iter([piece for piece in (body[:half], body[half:]) if piece])
            connection.request("POST", self._prefix + path, pieces, headers, encode_chunked=True)
            return self._received(connection)
        finally:
            connection.close()

    def kept_alive(self, method: str, path: str, body: bytes | None = None) -> tuple[HttpReply, HttpReply | None]:
        """Send the same request twice on one connection, and return both replies. The second reply is None if the
        server announced, with `Connection: close`, that it would close the connection."""
        connection, headers = self._connection(), {} if body is None else {"Content-Type": "application/json"}
        try:
            first = self._exchanged(connection, method, path, body, headers)
            if connection.sock is None:  # http.client closed the connection, because the reply requested it
                return first, None
            connection.auto_open = 0
            return first, self._exchanged(connection, method, path, body, headers)
        finally:
            connection.close()

    def check_keeps_open(self, method: str, path: str, body: bytes | None = None) -> None:
        """Check that two equal requests on one connection both succeed."""
        first, second = self.kept_alive(method, path, body)
        if second is None:
            deviate("the server closes the connection after each reply")
        require((first.status, second.status) == (200, 200), f"the second request on a connection: {second.status}")

    def _exchanged(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> HttpReply:
        self._transcript.send(f"{method} {self._prefix}{path}", body or b"")
        connection.request(method, self._prefix + path, body, headers)
        return self._received(connection)

    def _received(self, connection: HTTPConnection) -> HttpReply:
        reply = connection.getresponse()
        body = reply.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            fail(f"a reply of more than {MAX_BODY} bytes")
        headers = {name.lower(): value for name, value in reply.getheaders()}
        self._transcript.receive(str(reply.status), body)
        return HttpReply(reply.status, headers, body)

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._tls else HTTPConnection
        return kind(self._host, self._port, timeout=self.options.timeout)


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def target(address: str, *schemes: str) -> str:
    """Return the address as `host:port` or `unix:///path`. The address can have one of the `schemes`.

    Raises:
        ValueError: the address has a different format.
    """
    scheme, separator, rest = address.rpartition("://")
    if scheme == "unix" and rest.startswith("/"):
        return address
    host, colon, port = rest.rpartition(":")
    if (separator and scheme not in schemes) or not host or not colon or not port.isdigit() or "/" in rest:
        prefixes = " or ".join(f"{each}://HOST:PORT" for each in schemes)
        raise ValueError(f"address {address!r} is not HOST:PORT, {prefixes} or unix:///PATH")
    return rest


def connect(place: str, timeout: float) -> socket.socket:
    """Return a connection to a `target`."""
    if place.startswith("unix://"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            connection.connect(place.removeprefix("unix://"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = place.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout)


class Bytes:
    """A connection for raw bytes. The transcript records its messages."""

    def __init__(self, place: str, timeout: float, transcript: Transcript) -> None:
        self._socket = connect(place, timeout)
        self._transcript = transcript
        self._received = b""

    def __enter__(self) -> "Bytes":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes, requests: int = 1) -> None:
        """Send raw bytes. `requests` is the number of requests in the bytes."""
        self._transcript.send("", data.hex() if len(data) < 200 else readable(data[:200]))
        self._transcript.requests += requests - 1
        self._socket.sendall(data)

    def send_in_pieces(self, data: bytes) -> None:
        """Send one message in three parts, each in its own packet."""
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transcript.send("in three pieces:", data.hex())
        for piece in (data[:3], data[3:13], data[13:]):
            self._socket.sendall(piece)

    def read(self, size: int) -> bytes:
        """Return the given number of bytes, or fewer if the server closes the connection first."""
        received = b""
        while len(received) < size and (piece := self._socket.recv(min(size - len(received), 1 << 20))):
            received += piece
        self._transcript.receive("", received.hex() if received else "(closed)")
        return received

    def finish(self, after: float = 0.0) -> None:
        """Announce that no more data follows, unless the server sends something within `after` seconds."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            if not selector.select(after):
                self._socket.shutdown(socket.SHUT_WR)


class SocketServer:
    """A server under test with connections for raw bytes."""

    schemes: tuple[str, ...] = ("tcp",)
    """The schemes that an address can use."""

    def __init__(self, address: str, options: Options, transcript: Transcript) -> None:
        self._place = target(address, *self.schemes)
        self.options = options
        self._transcript = transcript

    def reach(self) -> None:
        """Raise OSError if no server answers at the address."""
        connect(self._place, self.options.timeout).close()

    def close(self) -> None:
        """Do nothing, because connections close after each request."""

    def connection(self) -> Bytes:
        """Return a new connection."""
        return Bytes(self._place, self.options.timeout, self._transcript)


V2 = "protocols/v2/grpc/descriptors.binpb"
GRPS = "protocols/grps/descriptors.binpb"
TENSORFLOW = "protocols/tensorflow_serving/descriptors.binpb"
GRPC = "transports/grpc/descriptors.binpb"


@cache
def message(path: str, name: str) -> Any:
    """Return the class of the message with this full name, from a descriptor file in the package."""
    return message_factory.GetMessageClass(_pool(path).FindMessageTypeByName(name))


@cache
def _pool(path: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in FileDescriptorSet.FromString(files("gateway").joinpath(path).read_bytes()).file:
        pool.Add(each)
    return pool
