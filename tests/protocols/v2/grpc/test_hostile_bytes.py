"""Damaged and hostile messages end in an error, in bounded memory."""

import random
import tracemalloc
from contextlib import suppress

import pytest

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.operations import Operation
from gateway.core.types import Request
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.wire import LISTENER, RECORDED, TRITON, field, infer, large, message, reply

BODIES = sorted(
    {
        bytes.fromhex(each)
        for recorded in RECORDED.values()
        for conversation in recorded.values()
        for each in (*conversation["requests"], *conversation["replies"])
    }
)


ASKED = (
    (Request(Operation.INFER, "m"), TRITON),
    (Request(Operation.STREAM, "m"), TRITON),
    (Request(Operation.METADATA, "m"), TRITON),
)


def read(body: bytes) -> None:
    """Read `body` on both sides; only DecodeError and GatewayError may be raised."""
    with suppress(DecodeError, GatewayError):
        decoded(message(body), V2_GRPC, LISTENER)
    for request, target in ASKED:
        with suppress(DecodeError, GatewayError):
            V2_GRPC.decode_response(reply(body), request, target)


def test_cut_at_every_length() -> None:
    for body in BODIES:
        for end in range(len(body)):
            read(body[:end])


@pytest.mark.parametrize(("padding", "times"), [(b"", 20), (b"\x7a\x80\x80\x10" + bytes(2**18), 2)])
def test_bits_flipped_at_random(padding: bytes, times: int) -> None:
    """The padding, an unknown field, makes the message so large that it is cut instead of parsed whole."""
    source = random.Random(7)
    for body in BODIES * times:
        damaged = bytearray(body)
        for _ in range(source.randint(1, 3) if body else 0):
            damaged[source.randrange(len(body))] ^= 1 << source.randrange(8)
        read(bytes(damaged) + padding)


def repeated(piece: bytes) -> bytes:
    return piece * (4 * 2**20 // len(piece))


@pytest.mark.parametrize(
    "body",
    [
        repeated(field(5, b"")),
        repeated(field(7, b"")),
        repeated(field(6, b"")),
        repeated(field(4, b"")),
        repeated(field(4, field(1, "key") + field(2, field(2, 1)))),
        repeated(field(15, b"")),
        repeated(field(5, field(5, b""))),
        large("BYTES", 1, repeated(field(8, b""))),
        large("INT64", 1, repeated(field(3, b""))),
        large("INT64", 4 * 2**20, repeated(field(3, 1))),
        large("INT8", 1, b"\x12\x80\x80\x80\x02" + bytes(4 * 2**20)),
        b"\x2a\x80\x80\x80\x02" + repeated(field(5, b"")),
        b"\x2a\x85\x80\x80\x02\x1a\x80\x80\x80\x02" + bytes(4 * 2**20),
    ],
)
def test_hostile_bytes_are_refused_in_bounded_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            infer(body)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()
