"""Requests for every transport as bytes, and connections that send them and read complete replies."""

from __future__ import annotations

import gzip
import json
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from gateway.assembly import registry
from gateway.core.datatypes import Datatype
from gateway.core.operations import Operation
from gateway.core.protocol import StreamBinding, Target
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import fields
from tests.limits import GENEROUS

INFER = b"/inference.GRPCInferenceService/ModelInfer"


class Connection:
    """A connection. `call` sends one request and returns the complete reply."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, GENEROUS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ahead = b""
        self.open()

    def open(self) -> None:
        """Send the first bytes of a client."""

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def call(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.reply()

    def reply(self) -> bytes:
        raise NotImplementedError

    def exactly(self, size: int) -> bytes:
        pieces, found = [self._ahead], len(self._ahead)
        while found < size:
            pieces.append(self.socket.recv(2**20))
            if not pieces[-1]:
                raise ConnectionError(f"closed after {found} of {size} bytes")
            found += len(pieces[-1])
        whole = b"".join(pieces)
        self._ahead = whole[size:]
        return whole[:size]


class Http(Connection):
    def reply(self) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.exactly(1)
        length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + self.exactly(sum(length))


class Mip(Connection):
    def reply(self) -> bytes:
        head = self.exactly(8)
        return head + self.exactly(int.from_bytes(head[4:]))


class Brpc(Connection):
    def reply(self) -> bytes:
        head = self.exactly(12)
        return head + self.exactly(int.from_bytes(head[4:8]))


class Grpc(Connection):
    """Sends messages to INFER one after the other. `call` returns the joined frames of the stream."""

    PATH = INFER
    CODING = b""

    def open(self) -> None:
        self.stream = -1
        self.socket.sendall(http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=2**30) + http2.window_update(0, 2**30))

    def call(self, request: bytes) -> bytes:
        self.stream += 2
        self.socket.sendall(self.asking(request, self.stream))
        return self.reply()

    def asking(self, message: bytes, stream: int) -> bytes:
        """Return all frames of a call."""
        coding = [(b"grpc-encoding", self.CODING)] if self.CODING else []
        body = struct.pack(">?L", bool(self.CODING), len(message)) + message
        pieces = [body[at : at + 2**14] for at in range(0, len(body), 2**14)]
        data = [
            http2.frame(http2.DATA, http2.END_STREAM if at == len(pieces) - 1 else 0, stream, piece)
            for at, piece in enumerate(pieces)
        ]
        return http2.head(*fields(self.PATH, *coding), stream=stream) + b"".join(data)

    def reply(self) -> bytes:
        found = bytearray()
        while True:
            kind, flags, stream, payload = self.frame()
            if kind == http2.SETTINGS and not flags & http2.ACK:
                self.socket.sendall(http2.frame(http2.SETTINGS, http2.ACK, 0, b""))
            if kind == http2.PING and not flags & http2.ACK:
                self.socket.sendall(http2.frame(http2.PING, http2.ACK, 0, payload))
            if stream == self.stream and kind in (http2.DATA, http2.HEADERS):
                found += payload
                if flags & http2.END_STREAM:
                    return bytes(found)
            if (stream == self.stream and kind == http2.RST_STREAM) or kind == http2.GOAWAY:
                raise ConnectionError(f"frame {kind} {payload!r}")

    def frame(self) -> http2.Frame:
        head = self.exactly(9)
        return head[3], head[4], int.from_bytes(head[5:]), self.exactly(int.from_bytes(head[:3]))


class GrpcGzip(Grpc):
    CODING = b"gzip"


def tensor(data: bytes) -> Tensor:
    return Tensor("x", Datatype.UINT8, (1, len(data)), data)


def message(protocol: str, model: str, *inputs: Tensor) -> bytes:
    """Return the bytes of an inference in a protocol without HTTP."""
    form = registry.protocols()[protocol]
    request = Request(Operation.INFER, model, inputs=inputs)
    asked = form.encode_request(request, Target())
    if isinstance(form.binding, StreamBinding) and form.binding.framing.retag is not None:
        asked = form.binding.framing.retag(asked, 7, None)
    return b"".join(map(bytes, asked.parts))


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def infer(model: str, data: bytes, datatype: str = "UINT8", shape: list[int] | None = None) -> bytes:
    """Return a V2 REST inference with a binary tensor."""
    given = {
        "name": "x", "datatype": datatype, "shape": shape or [1, len(data)],
        "parameters": {"binary_data_size": len(data)},
    }  # fmt: skip
    head = json.dumps({"inputs": [given]}).encode()
    return post(f"/v2/models/{model}/infer", head + data, f"Inference-Header-Content-Length: {len(head)}")


@dataclass(frozen=True)
class Way:
    """A way to send requests to the gateway: the listener, the kind of connection, and the request."""

    listener: str
    connect: Callable[[tuple[str, int]], Connection]
    request: Callable[[str, bytes], bytes]
    """Returns a request for a model's name and a tensor's bytes."""


def _npy(data: bytes) -> Tensor:
    return Tensor("x", Datatype.UINT8, (1, len(data)), data, content_type="npy")


def until_closed(connection: socket.socket) -> bytes:
    """Return what arrives until the gateway closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


def at_once(count: int, call: Callable[[], object]) -> None:
    """Make that many calls, each in a thread of its own."""
    with ThreadPoolExecutor(count) as threads:
        for each in [threads.submit(call) for _ in range(count)]:
            each.result()


WAYS = {
    "http": Way("http", Http, infer),
    "grpc-gzip": Way("grpc", GrpcGzip, lambda model, data: gzip.compress(message("v2-grpc", model, tensor(data)), 1)),
    "mip": Way("mip_dead", Mip, lambda model, data: message("mip", model, _npy(data))),
    "brpc": Way("brpc", Brpc, lambda model, data: message("grps-brpc", model, tensor(data))),
}
