"""A GraphPipe server with the habits of the Go one (`Serve` of graphpipe-go), which no package index has.

Written from observations of the original's wire, and independent of the gateway; flatbuffers are read and written by
its own few lines, back to front and without a look at what they point to, as the original does. Its habits:

- every path and method is one handler, but for /control/, where `shutdown` needs no credentials
- GET is answered with indented JSON; HEAD, a short body or offsets that lead nowhere with a closed connection
- whatever is not an inference is a request for metadata, whose types are always 8 and whose shapes are [rank]
- names of inputs are input0, .. and nothing else; names of outputs are ignored
- an error is a 400 and a text; strings have no NUL behind them
- replies are sized up to 2048 bytes, chunked beyond

    with serve(lambda inputs, config: [2 * each for each in inputs]) as server:
        call(server.url)
        assert server.requests == ["POST /"]
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from math import prod
from typing import Any

import numpy as np

from tests.in_thread import QuietHandler, in_thread

Array = np.ndarray[Any, Any]
Apply = Callable[[list[Array], str], list[Array]]

DTYPES = {
    1: "u1", 2: "i1", 3: "<u2", 4: "<i2", 5: "<u4", 6: "<i4", 7: "<u8", 8: "<i8", 9: "<f2", 10: "<f4", 11: "<f8"
}  # fmt: skip
NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.items()}
FLOAT16, STRING = 9, 12
SIZED = 2048


class Refused(Exception):  # noqa: N818 - what the original calls an error is a reply
    """A 400; the text is the body."""


class Panic(Exception):  # noqa: N818 - the original's word
    """The connection is closed without a reply."""


# --- Reading ---


@dataclass(frozen=True)
class Table:
    data: bytes
    at: int

    def field(self, index: int) -> int:
        """Where the field lies, 0 if it is absent."""
        vtable = self.at - self.unpack("i", self.at)
        slot = 4 + 2 * index
        if slot >= self.unpack("H", vtable):
            return 0
        offset = self.unpack("H", vtable + slot)
        return self.at + offset if offset else 0

    def unpack(self, form: str, at: int) -> int:
        try:
            number: int = struct.unpack_from(f"<{form}", self.data, at)[0]
        except struct.error as error:
            raise Panic("index out of range") from error
        return number

    def follow(self, at: int) -> int:
        return at + self.unpack("I", at)

    def byte(self, index: int) -> int:
        at = self.field(index)
        return self.data[at] if at else 0

    def table(self, index: int) -> Table:
        return Table(self.data, self.follow(self.field(index)))

    def vector(self, index: int) -> tuple[int, int]:
        at = self.field(index)
        if not at:
            return 0, 0
        start = self.follow(at)
        return start + 4, self.unpack("I", start)

    def octets(self, at: int) -> bytes:
        return self.data[at + 4 : at + 4 + self.unpack("I", at)]

    def string(self, index: int) -> bytes:
        at = self.field(index)
        return self.octets(self.follow(at)) if at else b""

    def strings(self, index: int) -> list[bytes]:
        start, count = self.vector(index)
        return [self.octets(self.follow(start + 4 * each)) for each in range(count)]

    def tables(self, index: int) -> list[Table]:
        start, count = self.vector(index)
        return [Table(self.data, self.follow(start + 4 * each)) for each in range(count)]

    def shape(self, index: int) -> tuple[int, ...]:
        start, count = self.vector(index)
        return tuple(self.unpack("q", start + 8 * each) for each in range(count))


def read_tensor(table: Table) -> Array:
    kind, shape = table.byte(0), table.shape(1)
    if kind in (0, FLOAT16):
        raise Refused(f"Invalid type: {kind}")
    if kind != STRING and kind not in DTYPES:
        raise Panic("index out of range")
    if kind == STRING:
        array: Array = np.empty(len(strings := table.strings(3)), object)
        array[:] = strings
    else:
        start, size = table.vector(2)
        array = np.frombuffer(table.data[start : start + size], DTYPES[kind])
    if not shape:
        raise Refused(f"Incorrect number of elements in ({array.size}) != (0)")
    if 0 in shape:
        raise Panic("index out of range")
    if array.size != prod(shape):
        raise Refused("Invalid type: 0")
    return array.reshape(shape)


# --- Writing, back to front: what is written first lies last ---


class Builder:
    def __init__(self) -> None:
        self.out = b""

    def place(self, raw: bytes, alignment: int = 4) -> int:
        """Put `raw` in front, aligned from the end of the message; its place, counted from there."""
        self.out = raw + bytes(-(len(self.out) + len(raw)) % alignment) + self.out
        return len(self.out)

    def offset(self, target: int, place: int) -> bytes:
        return struct.pack("<I", place - target)

    def octets(self, raw: bytes) -> int:
        """A vector of bytes: strings too, without the NUL."""
        return self.place(struct.pack("<I", len(raw)) + raw)

    def string(self, text: str) -> int:
        raw = text.encode()
        return self.place(struct.pack("<I", len(raw)) + raw + bytes(4 - len(raw) % 4))

    def longs(self, numbers: Sequence[int]) -> int:
        self.place(b"", 8)
        return self.place(struct.pack(f"<I{len(numbers)}q", len(numbers), *numbers))

    def offsets(self, targets: Sequence[int]) -> int:
        size = 4 + 4 * len(targets)
        self.place(b"")
        end = len(self.out) + size
        links = (self.offset(target, end - 4 - 4 * at) for at, target in enumerate(targets))
        return self.place(struct.pack("<I", len(targets)) + b"".join(links))

    def table(self, **fields: int) -> int:
        """A table of offsets, `f0`, `f1`, ..; `byte0` and so on is a number of one byte."""
        named = {int(name[-1]): (name.startswith("b"), number) for name, number in fields.items()}
        self.place(b"")
        end = len(self.out) + 4 + 4 * len(named)
        inline, places = b"", [0] * (max(named, default=-1) + 1)
        for at, (index, (is_byte, number)) in enumerate(named.items()):
            places[index] = 4 + 4 * at
            inline += bytes((number, 0, 0, 0)) if is_byte else self.offset(number, end - 4 - 4 * at)
        vtable = struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), 4 + len(inline), *places)
        vtable += bytes(-len(vtable) % 4)
        place = self.place(struct.pack("<i", len(vtable)) + inline)
        self.place(vtable)
        return place

    def finish(self, root: int) -> bytes:
        self.place(b"")
        return self.offset(root, len(self.out) + 4) + self.out


def write_tensor(builder: Builder, array: Array) -> int:
    shape = builder.longs(array.shape)
    if array.dtype.kind == "O":
        strings = [builder.octets(bytes(each)) for each in array.reshape(-1)]
        return builder.table(byte0=STRING, f1=shape, f3=builder.offsets(strings))
    data = builder.octets(np.ascontiguousarray(array).tobytes())
    return builder.table(byte0=NUMBERS[array.dtype], f1=shape, f2=data)


def write_results(arrays: Sequence[Array]) -> bytes:
    builder = Builder()
    tensors = [write_tensor(builder, array) for array in arrays]
    return builder.finish(builder.table(f0=builder.offsets(tensors)))


@dataclass(frozen=True)
class Model:
    apply: Apply
    inputs: int
    outputs: int
    rank: int = 2

    def answer(self, body: bytes) -> bytes:
        if len(body) < 4:
            raise Panic("index out of range")
        root = Table(body, 0).follow(0)
        request = Table(body, root)
        if request.byte(0) != 1:
            return self.metadata()
        return write_results(self.infer(request.table(1)))

    def infer(self, request: Table) -> list[Array]:
        names = [name.decode() for name in request.strings(1)]
        tables = request.tables(2)
        if not tables:
            raise Refused("wrong number of inputs supplied")
        if len(tables) > self.inputs:
            raise Panic("index out of range")
        inputs: dict[str, Array] = {}
        for at, table in enumerate(tables):
            default = f"input{at}"
            name = (names[at] if names else "") or default
            if name not in [f"input{each}" for each in range(self.inputs)]:
                raise Refused(f"Unexpected input for '{name}' was sent")
            inputs[name] = read_tensor(table)
        if len(inputs) != self.inputs:
            raise Refused(f"{len(inputs)} inputs sent but {self.inputs} are required")
        if b"" in request.strings(3):
            raise Refused("Could not init output names")
        return self.apply([inputs[name] for name in sorted(inputs)], request.string(0).decode())

    def metadata(self) -> bytes:
        builder = Builder()

        def vector(prefix: str, count: int) -> int:
            tables = []
            for at in range(count):
                name, text, shape = builder.string(f"{prefix}{at}"), builder.string(""), builder.longs([self.rank])
                tables.append(builder.table(f0=name, f1=text, f2=shape, byte3=8))
            return builder.offsets(tables)

        texts = [builder.string(text) for text in ("simple", "1.0.0", "graphpipe-go", "a test")]
        inputs, outputs = vector("input", self.inputs), vector("output", self.outputs)
        fields = {f"f{at}": place for at, place in enumerate((*texts, inputs, outputs))}
        return builder.finish(builder.table(**fields))

    def document(self) -> bytes:
        def tensors(prefix: str, count: int) -> list[dict[str, object]]:
            names = [f"{prefix}{at}" for at in range(count)]
            return [{"Name": name, "Description": "", "Shape": [self.rank], "Type": 8} for name in names]

        told = {"Name": "simple", "Version": "1.0.0", "Server": "graphpipe-go", "Description": "a test"}
        return json.dumps(
            {**told, "Inputs": tensors("input", self.inputs), "Outputs": tensors("output", self.outputs)}, indent=2
        ).encode()


class Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def handle_any(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        model = self.server.model
        try:
            if self.path.startswith("/control/"):
                self.reply(200, b"ok", "text/plain; charset=utf-8")
            elif self.command == "GET":
                self.reply(200, model.document(), "application/json")
            else:
                self.reply(200, model.answer(body), "application/octet-stream")
        except Refused as refused:
            self.reply(400, f"{refused}\n".encode(), "text/plain; charset=utf-8")
        except (Panic, ValueError, IndexError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = handle_any

    def reply(self, status: int, body: bytes, kind: str) -> None:
        if self.command == "HEAD":
            raise Panic("nothing was to be written")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if len(body) <= SIZED:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), SIZED):
            piece = body[at : at + SIZED]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    """`url`, and what came: `requests`, as `POST /path`."""

    daemon_threads = True

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = model
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


def twice(inputs: list[Array], config: str) -> list[Array]:
    return [each + each for each in inputs]


@contextmanager
def serve(apply: Apply = twice, *, inputs: int = 1, outputs: int = 1) -> Iterator[Server]:
    """Serve on a free loopback port."""
    server = Server(Model(apply, inputs, outputs))
    with in_thread(server):
        yield server
