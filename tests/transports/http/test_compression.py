import gzip
import zlib

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.types import Buffer
from gateway.transports.http.compression import IN_THREAD, Inflater, deflate, inflate, inflate_in_thread, inflate_small

# What `gzip.compress(b"hello", mtime=0)` and `zlib.compress(b"hello")` gave once.
GZIP = bytes.fromhex("1f8b08000000000002ffcb48cdc9c9070086a6103605000000")
ZLIB = bytes.fromhex("789ccb48cdc9c90700062c0215")
RAW_DEFLATE = bytes.fromhex("cb48cdc9c90700")
MIB = 2**20


def inflate_byte_by_byte(coding: str, body: bytes) -> Buffer:
    inflater = Inflater(coding, MIB)
    for byte in body:
        inflater.feed(bytes([byte]))
    return inflater.finish()


@pytest.mark.parametrize(("coding", "body"), [("gzip", GZIP), ("x-gzip", GZIP), ("deflate", ZLIB)])
def test_inflates_whole_and_byte_by_byte(coding: str, body: bytes) -> None:
    assert inflate(body, coding, 5) == b"hello"
    assert inflate(memoryview(bytearray(body)), coding, 5) == b"hello"
    assert inflate_byte_by_byte(coding, body) == b"hello"


@pytest.mark.parametrize(
    ("coding", "body", "message"),
    [
        ("gzip", b"", "ends before its gzip data"),
        ("gzip", GZIP[:-1], "ends before its gzip data"),
        ("gzip", b"hello", "not gzip data"),
        ("gzip", ZLIB, "not gzip data"),
        ("gzip", GZIP[:-5] + b"\0" + GZIP[-4:], "not gzip data"),
        ("gzip", GZIP + b"x", "behind the end"),
        ("gzip", GZIP + GZIP, "behind the end"),
        ("deflate", ZLIB + b"\0", "behind the end"),
        ("deflate", RAW_DEFLATE, "not deflate data"),
        ("deflate", GZIP, "not deflate data"),
    ],
)
def test_refuses_what_is_not_the_coding(coding: str, body: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        inflate(body, coding, MIB)
    with pytest.raises(DecodeError, match=message):
        inflate_byte_by_byte(coding, body)


def test_a_bomb_is_refused_at_the_limit_and_not_inflated() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    inflater = Inflater("gzip", MIB)
    with pytest.raises(GatewayError, match=r"inflates beyond limits\.message, 1048576 bytes") as caught:
        inflater.feed(bomb)
    assert caught.value.reason is Reason.TOO_LARGE
    assert inflate(gzip.compress(bytes(MIB)), "gzip", MIB) == bytes(MIB)


async def test_what_inflates_far_is_left_to_a_thread() -> None:
    body = gzip.compress(bytes(IN_THREAD + 1))
    assert inflate_small(body, "gzip", MIB) is None
    assert inflate_small(bytes(IN_THREAD + 1), "gzip", MIB) is None
    assert await inflate_in_thread(body, "gzip", MIB) == bytes(IN_THREAD + 1)
    assert inflate_small(gzip.compress(bytes(IN_THREAD)), "gzip", MIB) == bytearray(IN_THREAD)
    with pytest.raises(GatewayError, match=r"limits\.message, 100 bytes"):
        inflate_small(body, "gzip", 100)


def test_deflates_parts_as_one_body() -> None:
    parts = (b"one ", memoryview(b"two "), bytearray(b"three"))
    assert gzip.decompress(deflate(parts, "gzip")) == b"one two three"
    assert zlib.decompress(deflate(parts, "deflate")) == b"one two three"
    assert gzip.decompress(deflate((), "gzip")) == b""
