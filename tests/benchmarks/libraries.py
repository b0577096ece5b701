"""`python -m tests.benchmarks.libraries`: what the code that is written by hand costs, beside the library that would do
the same. CPU of one call in microseconds, both in turns in one process; the best of the rounds, which other processes
disturbed least. `docs/dependencies.md` has the figures of one run."""

from __future__ import annotations

import asyncio
import csv as python_csv
import io
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, make_dataclass
from email import message_from_bytes
from email.policy import HTTP
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import h2.config
import h2.connection
import h2.events
import h11
import hpack
import httptools
import httpx
import numpy as np
import orjson
import yaml

from gateway.config.document import compose
from gateway.core.frozen import field_names
from gateway.core.http2 import hpack as own_hpack
from gateway.core.http2.server import Http2Server, RequestReceived
from gateway.core.json import write_numbers
from gateway.core.messages import Message
from gateway.core.offload import LARGE, in_thread
from gateway.core.operations import Operation
from gateway.core.protocol import Limits
from gateway.core.requests import Request
from gateway.core.tensors import ParameterValue, tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import GrpsMessage, Payload
from gateway.protocols.json.media import csv, multipart
from gateway.protocols.mip import tensors
from gateway.protocols.v2 import V2_REST
from gateway.routing.queue import FairQueue
from gateway.transports.grpc.server import replies
from gateway.transports.grpc.server.heads import request_heads
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields
from tests.protocols.graphpipe.test_flatbuffers import Writer, root
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked
from tests.protocols.grps.protobuf.upb import GRPS
from tests.protocols.v2.rest.wire import LISTENER as V2_LISTENER
from tests.protocols.v2.rest.wire import infer_message
from tests.transports.grpc import toy as grpc_toy
from tests.transports.http.client import endpoint
from tests.transports.http.server import toy_listener as http_toy

ROUNDS = 7
SECONDS = 0.05
"""Of each side in a round."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    what: str
    here: Call
    library: str
    there: Call


def main() -> None:
    print(f"{'':58} {'here':>10} {'library':>10}")
    for row in rows():
        show(row.what, row.library, best(row.here, row.there))
    asyncio.run(show_calls())


def show(what: str, library: str, costs: tuple[float, float]) -> None:
    print(f"{what + ' / ' + library:58} {costs[0]:10.1f} {costs[1]:10.1f}", flush=True)


def best(here: Call, there: Call) -> tuple[float, float]:
    """Microseconds of CPU of one call of each."""
    calls = [max(1, int(SECONDS / spent(each, 3))) for each in (here, there)]
    taken = [(spent(here, calls[0]), spent(there, calls[1])) for _ in range(ROUNDS)]
    return 1e6 * min(each[0] for each in taken), 1e6 * min(each[1] for each in taken)


def spent(call: Call, calls: int) -> float:
    before = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - before) / calls


def rows() -> Iterator[Row]:
    yield from values()
    yield from protobuf()
    yield from documents()
    yield from flatbuffers()
    yield from arrays()
    yield from media()
    yield from http2_calls()
    yield from http1()
    text = (Path(__file__).parents[2] / "config" / "gateway.yaml").read_text()
    yield Row(
        "YAML: config/gateway.yaml",
        lambda: compose(text, {}),
        "yaml.compose",
        lambda: yaml.compose(text, yaml.CSafeLoader),
    )


def values() -> Iterator[Row]:
    """What is made for each request, beside a dataclass with the same fields."""
    plain = make_dataclass("Plain", [(name, object, None) for name in field_names(Request)], slots=True)
    none: dict[str, ParameterValue] = {}
    yield Row(
        "values: make a request",
        lambda: Request(Operation.INFER, "m", "1", None, (), (), none, "", None),
        "dataclass",
        lambda: plain(Operation.INFER, "m", "1", None, (), (), none, "", None),
    )


def protobuf() -> Iterator[Row]:
    numbers = np.random.default_rng(1)
    for size in (10, 1_000, 100_000):
        for name, array in (
            ("doubles", numbers.normal(size=size)),
            ("int32", numbers.integers(-(2**31), 2**31, size, np.int32)),
        ):
            body = b"".join(write_message(GrpsMessage("m", None, Payload.GTENSORS, (tensor("x", array),))))
            member = "flat_float64" if name == "doubles" else "flat_int32"
            yield Row(f"grps: read {size:,} {name}", reader(read_message, body), "upb alone", upb(body, member))


def reader(read: Callable[[bytes, int], object], body: bytes) -> Call:
    return lambda: read(body, 2**28)


def upb(body: bytes, member: str) -> Call:
    """What the shortest use of the library costs: no checks."""
    return lambda: np.asarray(getattr(GRPS.FromString(body).gtensors.tensors[0], member))


def documents() -> Iterator[Row]:
    for size in (10, 200, 1_000, 100_000):
        array = np.random.default_rng(1).normal(size=size)
        data = array.tolist()
        body = orjson.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [size], "data": data}]})
        yield Row(f"JSON: read {size:,} doubles", _read(body), "orjson, numpy", _read_by(orjson.loads, body))
        yield Row(f"JSON: read {size:,} doubles", _read(body), "json, numpy", _read_by(json.loads, body))
        yield Row(f"JSON: write {size:,} doubles", _write(array), "json", _write_by(array))


def _read(body: bytes) -> Call:
    message = infer_message(body)
    return lambda: V2_REST.decode_request(message, V2_LISTENER)


def _read_by(loads: Callable[[bytes], Any], body: bytes) -> Call:
    return lambda: np.array(loads(body)["inputs"][0]["data"])


def _write(array: np.ndarray[Any, Any]) -> Call:
    return lambda: write_numbers(array, "error", "x")


def _write_by(array: np.ndarray[Any, Any]) -> Call:
    return lambda: json.dumps(array.tolist())


def flatbuffers() -> Iterator[Row]:
    for size in (10, 100_000):
        sent = tensor("x", np.random.default_rng(1).normal(size=size))
        request = Request(Operation.INFER, "m", inputs=(sent,))
        body = bytes(GRAPHPIPE.encode_request(request, TARGET).body)
        yield Row(f"GraphPipe: write {size:,} doubles", _encode(request), "flatbuffers", _build(sent))
        yield Row(f"GraphPipe: read {size:,} doubles", _decode(body), "flatbuffers, unchecked", _look(body))


def _encode(request: Request) -> Call:
    return lambda: GRAPHPIPE.encode_request(request, TARGET)


def _decode(body: bytes) -> Call:
    return lambda: asked(body)


def _build(sent: Any) -> Call:
    def build() -> bytes:
        writer = Writer()
        infer = {1: writer.links([writer.string(b"x")]), 2: writer.links([writer.tensor(sent)])}
        return writer.finish(writer.table(2, {1: writer.table(4, infer, {})}, {0: schema.INFER_REQUEST}))

    return build


def _look(body: bytes) -> Call:
    def look() -> object:
        [only] = root(body).table(schema.Request.REQ).tables(schema.InferRequest.INPUT_TENSORS)
        table = only._table
        vector = table.Vector(table.Offset(schema.Tensor.DATA))
        return np.frombuffer(body, np.float64, table.VectorLen(table.Offset(schema.Tensor.DATA)) // 8, vector)

    return look


def arrays() -> Iterator[Row]:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(1).normal(size=10))
    octets = file.getvalue()
    yield Row(
        "npy: 10 doubles",
        lambda: tensors.decode_npy([octets], "input 0"),
        "np.load",
        lambda: np.load(io.BytesIO(octets)),
    )


def media() -> Iterator[Row]:
    """Tables and files in the media types of declared forms."""
    for count in (10, 1_000, 100_000):
        table = np.random.default_rng(1).normal(size=(count // 10, 10))
        body = "".join([",".join(map(repr, row)) + "\n" for row in table.tolist()]).encode()
        yield Row(f"CSV: {count:,} doubles", _csv(body), "csv, numpy", partial(_csv_by_csv, body))
    texts = "".join([f'"text, {at}",{at}\n' for at in range(500)]).encode()
    yield Row("CSV: 500 quoted texts, 500 numbers", _csv(texts), "csv, json", partial(_texts_by_csv, texts))
    parts = multipart.write([multipart.FormPart("text", b"a"), multipart.FormPart("file", b"\xff" * 100_000, "", "f")])
    body, kind = b"".join(parts), multipart.content_type(parts)
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    yield Row(
        "form data: a text, a file of 100,000 bytes",
        lambda: multipart.read(body, kind, parts=10),
        "email",
        lambda: [each.get_payload(decode=True) for each in message_from_bytes(head + body, policy=HTTP).iter_parts()],
    )


def _csv(body: bytes) -> Call:
    return lambda: csv.read(body, header=False, kind_of=lambda name: None, columns=1000, limit=2**26)


def _csv_by_csv(body: bytes) -> object:
    """The same text: without quotes, a table of numbers is the list of its rows."""
    rows = python_csv.reader(io.StringIO(body.decode()))
    return orjson.dumps(np.array([*rows], np.float64), option=orjson.OPT_SERIALIZE_NUMPY)


def _texts_by_csv(body: bytes) -> object:
    return orjson.dumps([[text, float(number)] for text, number in python_csv.reader(io.StringIO(body.decode()))])


def http2_calls() -> Iterator[Row]:
    yield Row(
        "HPACK: read a request's head",
        lambda: own_hpack.read(HEAD, 10_000),
        "hpack",
        lambda: hpack.Decoder().decode(HEAD, raw=True),
    )
    yield Row(
        "HPACK: write one",
        lambda: own_hpack.write(fields()),
        "hpack",
        lambda: hpack.Encoder().encode(fields(), huffman=False),
    )
    yield Row("HTTP/2: a unary call, the server's side", _unary(), "h2", _unary_by_h2())


HEAD = own_hpack.write(fields())
MESSAGE = b"x" * 100
WIDE_OPENING = OPENING + http2.window_update(0, 2**30)


def _unary() -> Call:
    """Calls on one connection, without sockets: the request's bytes in, the reply's bytes out."""
    connection = Http2Server(request_heads(10_000))
    connection.receive(memoryview(WIDE_OPENING), 0.0)
    connection.data_to_send()
    stream, trailers, now = 1, replies.trailers(Message()), 0.0

    def unary() -> object:
        nonlocal stream, now
        now += 1.0
        asked_for = http2.head(*fields(), stream=stream) + http2.data(MESSAGE, end=True, stream=stream)
        connection.receive(memoryview(asked_for), now)
        stream += 2
        while connection.events:
            event = connection.events.popleft()
            if isinstance(event, RequestReceived):
                connection.respond(
                    event.stream, own_hpack.write([http2.OK, http2.CONTENT_TYPE]), (bytes(5) + MESSAGE,), trailers
                )
        return connection.data_to_send()

    return unary


def _unary_by_h2() -> Call:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    connection.receive_data(WIDE_OPENING)
    connection.data_to_send()
    stream = 1

    def unary() -> object:
        nonlocal stream
        asked_for = http2.head(*fields(), stream=stream) + http2.data(MESSAGE, end=True, stream=stream)
        for event in connection.receive_data(asked_for):
            if isinstance(event, h2.events.DataReceived):
                connection.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                connection.send_headers(stream, [http2.OK, http2.CONTENT_TYPE])
                connection.send_data(stream, bytes(5) + MESSAGE)
                connection.send_headers(stream, [(b"grpc-status", b"0")], end_stream=True)
        stream += 2
        return connection.data_to_send()

    return unary


REQUEST = (
    b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: python-requests/2.32\r\n"
    b"Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n" + b"x" * 100
)


class Collected:
    """What httptools calls."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, text: bytes) -> None:
        self.headers.append((name, text))

    def on_body(self, body: bytes) -> None:
        self.body += body


def http1() -> Iterator[Row]:
    def by_h11() -> None:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(REQUEST)
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            pass

    yield Row(
        "HTTP/1.1: parse a request with httptools",
        lambda: httptools.HttpRequestParser(Collected()).feed_data(REQUEST),
        "h11",
        by_h11,
    )


def letters() -> bytes:
    """A request of V2 with 256 KiB of texts of one letter."""
    return _one_input("BYTES", ["a"] * (LARGE // 4))


def numbers() -> bytes:
    """A request of V2 with 256 KiB of numbers."""
    return _one_input("FP64", np.random.default_rng(1).normal(size=LARGE // 20).tolist())


def _one_input(datatype: str, data: list[Any]) -> bytes:
    return orjson.dumps({"inputs": [{"name": "x", "datatype": datatype, "shape": [len(data)], "data": data}]})


async def show_calls() -> None:
    """Whole calls over loopback to a listener in this process, whose cost is in both columns."""
    queue, line, turn = FairQueue[None]("any", 1_000), asyncio.Queue[object](), object()

    def wait_fairly() -> None:
        queue.join("client", "model")
        queue.next()

    def wait() -> None:
        line.put_nowait(turn)
        line.get_nowait()

    show("queue: wait and be next", "asyncio.Queue", best(wait_fairly, wait))
    shown = [1e6 * min(spent(_read(each), 3) for _ in range(ROUNDS)) for each in (letters(), numbers())]
    show("JSON of 256 KiB: read letters", "numbers", (shown[0], shown[1]))
    away = await best_of(lambda: in_thread(int), lambda: asyncio.sleep(0))
    show("a thread: there and back", "a turn of the loop", away)
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(grpc_toy.listening())
        connector = await stack.enter_async_context(grpc_toy.connected(listener.address))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(listener.address))
        unary = channel.unary_unary(grpc_toy.ECHO)
        show(
            "gRPC: a call to a server in this process",
            "grpc.aio",
            await best_of(lambda: connector.exchange(grpc_toy.ask(MESSAGE)), lambda: unary(MESSAGE)),
        )
        served = await stack.enter_async_context(http_toy.listening(limits=Limits(message=2**20)))
        port = int(served.address.rpartition(":")[2])
        posting = await stack.enter_async_context(endpoint.connecting(port))
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        message = Message("POST", "/echo", endpoint.JSON, (MESSAGE,))
        show(
            "HTTP: a call to a server in this process",
            "httpx",
            await best_of(
                lambda: posting.exchange(message), lambda: client.post(f"http://{served.address}/echo", content=MESSAGE)
            ),
        )


async def best_of(
    here: Callable[[], Awaitable[object]], there: Callable[[], Awaitable[object]], calls: int = 200
) -> tuple[float, float]:
    taken = [[await spent_on(each, calls) for each in (here, there)] for _ in range(ROUNDS)]
    return 1e6 * min(each[0] for each in taken), 1e6 * min(each[1] for each in taken)


async def spent_on(call: Callable[[], Awaitable[object]], calls: int) -> float:
    before = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - before) / calls


if __name__ == "__main__":
    main()
