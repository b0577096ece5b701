"""Measures how long the messages of one client or server block the event loop for all others."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from contextlib import closing, suppress

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from tests.attacks.attacked import MIB, Attacked
from tests.attacks.clients import Brpc, GrpcGzip, Http, Mip, infer, message, post
from tests.attacks.stalls import STALL, Attack, Figure, once, stalls
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields

SIZE = 60 * MIB


def flood(listener: str, piece: bytes, seconds: float, rate: float = 64 * MIB, begin: bytes = b"") -> Attack:
    """`piece` again and again on one connection, at so many bytes a second at most; replies are read and dropped."""

    def attack(gateway: Attacked) -> str:
        block = piece * max(1, 32768 // len(piece))
        with closing(socket.create_connection(gateway.address(listener), 30)) as sending:
            reading = threading.Thread(target=drop, args=(sending,))
            reading.start()
            begun, sent = time.perf_counter(), 0
            with suppress(OSError):
                sending.settimeout(seconds)
                sending.sendall(begin)
                while (passed := time.perf_counter() - begun) < seconds:
                    if sent > rate * passed:
                        time.sleep(0.002)
                        continue
                    sending.sendall(block)
                    sent += len(block)
            with suppress(OSError):
                sending.shutdown(socket.SHUT_RDWR)
            reading.join()
        return f"; {sent / len(piece) / seconds:.0f} a second"

    return attack


def drop(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(2**20):
            pass


def strings(count: int, string: bytes = b'""') -> bytes:
    """V2 REST with so many of the same string."""
    head = b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[%d],"data":[' % count
    return head + (string + b",") * (count - 1) + string + b"]}]}"


def gzipped(body: bytes) -> bytes:
    return post("/v2/models/identity/infer", gzip.compress(body, 6), "Content-Encoding: gzip")


def elements(count: int) -> bytes:
    """BYTES elements of 0 and 1 bytes in turn, which have no common length."""
    return b"\0\0\0\0\1\0\0\0x" * (count // 2)


def mip_packet(payload: bytes) -> bytes:
    return bytes([0, 2, 0, 0]) + len(payload).to_bytes(4) + payload


def numbers(count: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).standard_normal(count)


def batch(rows: int, form: int, content: bytes) -> bytes:
    """A packet of so many examples, each the same."""
    return mip_packet(struct.pack("!2BH", 1, 0, rows) + (struct.pack("!2L", form, len(content)) + content) * rows)


def vectors(count: int) -> bytes:
    text = ",".join(map(repr, numbers(count).tolist())).encode()
    return b'{"name":"identity","input":[[%b]],"config":{}}' % text


def v2_json(count: int) -> bytes:
    text = ",".join(map(repr, numbers(count).tolist())).encode()
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[%d],"data":[%b]}]}' % (count, text)
    return post("/v2/models/identity/infer", body)


SHORT_FIELDS = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n%b\r\n" % b"".join(
    b"h%d: %d\r\n" % (at, at) for at in range(800)
)


def short_streams(gateway: Attacked) -> str:
    """Calls with 800 short fields each, which no method serves: 600 as fast as they are read."""
    begin = OPENING + http2.frame(http2.SETTINGS, http2.ACK, 0, b"")
    with closing(socket.create_connection(gateway.address("grpc"), 30)) as sending:
        reading = threading.Thread(target=drop, args=(sending,))
        reading.start()
        with suppress(OSError):
            sending.sendall(begin)
            for number in range(600):
                short = ((b"h%d" % at, b"%d" % (at + number)) for at in range(800))
                sending.sendall(http2.head(*fields(b"/a/b", *short), stream=2 * number + 1, end=True))
            sending.shutdown(socket.SHUT_WR)
        reading.join()
    return "; 600 calls"


FEW = 2_000_000
SMALL_ATTACKS: dict[str, Attack] = {
    "pipelined 404s": flood("http", b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 2),
    "pipelined health": flood("http", b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n", 2),
    "chunks of one byte": flood(
        "http",
        b"1\r\nx\r\n",
        3,
        24 * MIB,
        b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    "empty brpc frames": flood("brpc", b"PRPC" + bytes(8), 2),
    "pings of MIP": flood("mip", bytes([0, 1, 0, 0, 0, 0, 0, 0]), 2),
    "gzip of strings": once(Http, "http", lambda: gzipped(strings(FEW))),
    "empty TLVs": once(Mip, "mip", lambda: mip_packet(struct.pack("!2BH", 1, 0, 65535) + bytes(6 * MIB))),
    "BYTES of 0 and 1": once(Http, "http", lambda: infer("identity", elements(FEW), "BYTES", [FEW])),
}
MANY = 12_000_000
LARGE_ATTACKS: dict[str, Attack] = {
    "gzip of strings": once(Http, "http", lambda: gzipped(strings(15_000_000))),
    "gzip of too many strings": once(Http, "http", lambda: gzipped(strings(21_000_000))),
    "gzip of values": once(Http, "http", lambda: gzipped(b'{"inputs":[' + b"0," * (SIZE // 2) + b"0]}")),
    "gzip of brackets": once(Http, "http", lambda: gzipped(b'{"inputs":[{"data":' + b"[" * SIZE)),
    "gzip of rows": once(
        Http,
        "http",
        lambda: gzipped(b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[%b[]]}]}' % (b"[]," * FEW)),
    ),
    "strings": once(Http, "http", lambda: post("/v2/models/identity/infer", strings(MANY, b'"a"'))),
    "escaped strings": once(Http, "http", lambda: post("/v2/models/identity/infer", strings(FEW, b'"\\u00e9"'))),
    "one string": once(Http, "http", lambda: post("/v2/models/identity/infer", strings(1, b'"%b"' % (b"a" * SIZE)))),
    "empty TLVs": once(Mip, "mip", lambda: mip_packet(struct.pack("!2BH", 1, 0, 65535) + bytes(SIZE))),
    "rows of JSON": once(Mip, "mip", lambda: batch(65535, 2, b"[1.5]")),
    "rows of text": once(Mip, "mip", lambda: batch(65535, 1, b"a")),
    "JSON lists in a TLV": once(Mip, "mip", lambda: batch(1, 2, b"[" + b"[]," * (SIZE // 3 - 1) + b"[]]")),
    "BYTES of 0 and 1": once(Http, "http", lambda: infer("identity", elements(MANY), "BYTES", [MANY])),
    "JSON numbers": once(Http, "http", lambda: v2_json(3_000_000)),
    "UM-Bridge numbers": once(Http, "http", lambda: post("/Evaluate", vectors(3_000_000))),
    "FP32 as JSON": once(
        Http, "http", lambda: infer("identity", numbers(MANY).astype("<f4").tobytes(), "FP32", [MANY])
    ),
    "octets as JSON": once(Http, "http", lambda: infer("identity", bytes(SIZE))),
    "BYTES as JSON": once(Http, "http", lambda: infer("identity", b"\1\0\0\0x" * MANY, "BYTES", [MANY])),
    "numbers over brpc": once(Brpc, "brpc", lambda: message("grps-brpc", "identity", numbers_of(Datatype.FP32))),
    "integers over brpc": once(Brpc, "brpc", lambda: message("grps-brpc", "identity", numbers_of(Datatype.INT32, 7))),
    "strings over brpc": once(Brpc, "brpc", lambda: message("grps-brpc", "identity", letters(8_000_000))),
    "numbers over GraphPipe": once(
        Http, "http", lambda: post("/graphpipe/identity", message("graphpipe", "identity", numbers_of(Datatype.FP32)))
    ),
    "strings over GraphPipe": once(
        Http, "http", lambda: post("/graphpipe/identity", message("graphpipe", "identity", letters(4_000_000)))
    ),
    "numbers over gRPC": once(
        GrpcGzip, "grpc", lambda: gzip.compress(message("v2-grpc", "identity", numbers_of(Datatype.FP32)), 1)
    ),
    "BYTES over gRPC": once(
        GrpcGzip,
        "grpc",
        lambda: gzip.compress(message("v2-grpc", "identity", Tensor("x", Datatype.BYTES, (MANY,), elements(MANY))), 1),
    ),
}


def numbers_of(datatype: Datatype, size: int = 15) -> Tensor:
    """So many million elements that are zero."""
    count = size * 10**6
    return Tensor("x", datatype, (count,), bytes(count * datatype.dtype.itemsize))


def letters(count: int) -> Tensor:
    return Tensor("x", Datatype.BYTES, (count,), b"\1\0\0\0x" * count)


@pytest.mark.parametrize("name", SMALL_ATTACKS)
def test_clients_do_not_stop_the_loop(shared: Attacked, name: str, figure: Figure) -> None:
    assert stalls(shared, SMALL_ATTACKS[name], figure) < STALL


SHORT = 0.05
TURNS: dict[str, Attack] = {"pipelined over HTTP/1": flood("http", SHORT_FIELDS, 2), "streams of HTTP/2": short_streams}


@pytest.mark.parametrize("name", TURNS)
def test_heads_of_many_fields_are_read_in_short_turns(shared: Attacked, name: str, figure: Figure) -> None:
    """A head takes 2 ms, so a turn is a few of these, however many are there."""
    assert stalls(shared, TURNS[name], figure, SHORT) < SHORT


@pytest.mark.alone
@pytest.mark.parametrize("name", LARGE_ATTACKS)
def test_large_messages_do_not_stop_the_loop(shared: Attacked, name: str, figure: Figure) -> None:
    assert stalls(shared, LARGE_ATTACKS[name], figure) < STALL
