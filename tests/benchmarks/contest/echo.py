"""`python -m tests.benchmarks.contest.echo HTTP_PORT GRPC_PORT`: V2 servers, REST and gRPC, of models that give back
their input, written to cost as little as Python can: they look for the numbers and do not read them.

The name of a model says its size: `vector_10` takes and gives FP32 of `[1, 10]`. Models `traffic_...` give back the
tensors that they get, under the same names.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import cast

import uvloop

from gateway.protocols.v2.grpc import schema
from tests.benchmarks.contest.http2 import (
    CONTENT_TYPE,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    Connection,
    fields,
    frame,
    message,
    text,
)

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"([A-Z]+) (\S+) ")
_INFER = re.compile(rb"POST /v2/models/(vector_(\d+))/infer ")
_TRAFFIC = re.compile(rb"POST /v2/models/(traffic_\d+)/infer ")


class Rest(asyncio.Protocol):
    """One connection of HTTP/1.1."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._head = b""
        self._missing = -1  # bytes of the body; negative until the head is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            if self._parts:
                data = b"".join((*self._parts, data))
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found:
                self._parts = [data]
                return
            length = _LENGTH.search(head)
            self._head, self._missing, self._parts = head, int(length[1]) if length else 0, []
            data = rest
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing <= 0:
            body = b"".join(self._parts)
            self._parts, self._missing = [], -1
            self.transport.write(answer(self._head, body))


def answer(head: bytes, body: bytes) -> bytes:
    """The whole reply to a request."""
    if infer := _INFER.match(head):
        given = body.index(b'"data":') + 7
        numbers = body[given : body.index(b"]", given) + 1]
        reply = b'{"model_name":"%b","outputs":[{"name":"output0","datatype":"FP32","shape":[1,%b],"data":%b}]}' % (
            infer[1],
            infer[2],
            numbers,
        )
    elif infer := _TRAFFIC.match(head):
        # all tensors of the request, as they stand in it
        reply = b'{"model_name": "%b", %b' % (infer[1], body.replace(b'"inputs"', b'"outputs"', 1)[1:])
    else:
        target = _TARGET.match(head)
        reply = json.dumps(about(target[2].decode() if target else "")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(reply), reply)


def about(path: str) -> dict[str, object]:
    """Metadata; of readiness any document does."""
    words = path.strip("/").split("/")
    if len(words) == 3 and words[1] == "models":
        if words[2].startswith("traffic_"):
            return {"name": words[2], "versions": [], "platform": "echo", "inputs": [], "outputs": []}
        size = int(words[2].removeprefix("vector_"))
        tensor = {"datatype": "FP32", "shape": [-1, size]}
        return {
            "name": words[2],
            "versions": [],
            "platform": "echo",
            "inputs": [{"name": "input0", **tensor}],
            "outputs": [{"name": "output0", **tensor}],
        }
    return {"name": "echo", "version": "1", "extensions": []}


HEAD = b"\x88" + CONTENT_TYPE
TRAILERS = b"\x00" + text("grpc-status") + text("0")
UNIMPLEMENTED = b"\x00" + text("grpc-status") + text("12")


class Grpc(Connection):
    """One connection of HTTP/2."""

    def __init__(self) -> None:
        super().__init__(b"")
        self._preface = len(PREFACE)
        self._calls: dict[int, tuple[str, list[bytes]]] = {}

    def data_received(self, data: bytes) -> None:
        if self._preface:
            taken = min(self._preface, len(data))
            self._preface -= taken
            data = data[taken:]
        super().data_received(data)

    def headers(self, stream: int, block: bytes) -> None:
        self._calls[stream] = fields(block)[":path"], []

    def data(self, stream: int, payload: bytes) -> None:
        self._calls[stream][1].append(payload)

    def ended(self, stream: int) -> None:
        path, parts = self._calls.pop(stream)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if path == schema.MODEL_INFER:
            reply, trailers = echo(body), TRAILERS
        elif path in _REPLIES:
            reply, trailers = message(_REPLIES[path](body[5:])), TRAILERS
        else:
            reply, trailers = b"", UNIMPLEMENTED
        self.send(stream, HEAD, reply, frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers))

    def sent(self, stream: int) -> None:
        self.close_stream(stream)

    def broken(self, why: str) -> None:
        print(why, file=sys.stderr)


def echo(request: bytes) -> bytes:
    """A ModelInferResponse that gives back the tensors of a ModelInferRequest, both with gRPC's prefix.

    The fields of both have the same numbers, but for raw contents (7 in requests, 6 in responses) and the outputs that
    are asked for (6 in requests).
    """
    view = memoryview(request)
    parts: list[bytes | memoryview] = [b""]
    for number, start, begin, end in walk(request, 5):
        if number == 7:
            parts += (b"\x32", view[begin - _varint_size(end - begin) : end])
        elif number != 6:
            parts.append(view[start:end])
    parts[0] = b"\0" + sum(map(len, parts)).to_bytes(4)
    return b"".join(parts)


def walk(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message whose fields all have a length: number, and where it, its value and the next begin."""
    while at < len(data):
        start, tag = at, data[at]
        at += 1
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield tag >> 3, start, at, at + length
        at += length


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _metadata(body: bytes) -> bytes:
    name = schema.ModelMetadataRequest.FromString(body).name
    reply = schema.ModelMetadataResponse(name=name, platform="echo")
    if name.startswith("traffic_"):
        return bytes(reply.SerializeToString())
    for given, tensors in (("input0", reply.inputs), ("output0", reply.outputs)):
        tensors.add(name=given, datatype="FP32", shape=[-1, int(name.removeprefix("vector_"))])
    written: bytes = reply.SerializeToString()
    return written


_REPLIES: dict[str, Callable[[bytes], bytes]] = {
    schema.method_path("ServerLive"): lambda _: schema.ServerLiveResponse(live=True).SerializeToString(),
    schema.method_path("ServerReady"): lambda _: schema.ServerReadyResponse(ready=True).SerializeToString(),
    schema.method_path("ModelReady"): lambda _: schema.ModelReadyResponse(ready=True).SerializeToString(),
    schema.method_path("ServerMetadata"): lambda _: schema.ServerMetadataResponse(name="echo").SerializeToString(),
    schema.method_path("ModelMetadata"): _metadata,
}


async def main() -> None:
    loop = asyncio.get_running_loop()
    rest, grpc = map(int, sys.argv[1:])
    servers = [
        await loop.create_server(Rest, "127.0.0.1", rest, backlog=1024),
        await loop.create_server(Grpc, "127.0.0.1", grpc, backlog=1024),
    ]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    uvloop.run(main())
