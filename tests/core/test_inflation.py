import gzip
import struct
import zlib
from random import Random

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.inflation import inflated, max_inflated_size
from gateway.core.protocol import Limits

# What `gzip.compress(b"hello", mtime=0)` and `zlib.compress(b"hello")` gave once.
GZIP = bytes.fromhex("1f8b08000000000002ffcb48cdc9c9070086a6103605000000")
ZLIB = bytes.fromhex("789ccb48cdc9c90700062c0215")
RAW_DEFLATE = bytes.fromhex("cb48cdc9c90700")
MIB = 2**20


FIRST_PIECE = gzip.compress(Random(1).randbytes(16 * 2**10 - 23))
"""16 KiB, which are inflated at once."""
assert len(FIRST_PIECE) == 16 * 2**10


def inflate(data: bytes, coding: str, limits: Limits) -> bytes:
    return b"".join(inflated(data, coding, limits, "the body"))


@pytest.mark.parametrize(("coding", "data"), [("gzip", GZIP), ("deflate", ZLIB), ("zlib", ZLIB)])
def test_what_is_compressed_is_inflated(coding: str, data: bytes) -> None:
    assert inflate(data, coding, Limits(message=5)) == b"hello"
    text = Random(1).randbytes(100_000)
    assert inflate(gzip.compress(text), "gzip", Limits()) == text


@pytest.mark.parametrize(
    ("coding", "data", "message"),
    [
        ("gzip", b"", "the body ends before its gzip data"),
        ("gzip", GZIP[:-1], "ends before its gzip data"),
        ("gzip", b"hello", "not gzip data"),
        ("gzip", ZLIB, "not gzip data"),
        ("gzip", GZIP[:-5] + b"\0" + GZIP[-4:], "not gzip data"),
        ("gzip", GZIP + b"x", "behind the end"),
        ("gzip", GZIP + GZIP, "behind the end"),
        ("gzip", FIRST_PIECE + b"x", "behind the end"),
        ("deflate", ZLIB + b"\0", "behind the end"),
        ("deflate", RAW_DEFLATE, "not deflate data"),
        ("deflate", GZIP, "not deflate data"),
    ],
)
def test_what_is_not_in_the_coding_is_refused(coding: str, data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        inflate(data, coding, Limits())


def test_the_most_is_the_ratio_or_a_mebibyte_within_the_limit_of_messages() -> None:
    assert max_inflated_size(1, Limits()) == MIB
    assert max_inflated_size(MIB // 10, Limits(inflation=100)) == MIB // 10 * 100
    assert max_inflated_size(MIB // 10, Limits(inflation=1000)) == 64 * MIB
    assert max_inflated_size(10, Limits(message=1000)) == 1000


def test_a_bomb_is_refused_and_told_which_key_allows_it() -> None:
    zeros = b"[" + b"0," * MIB + b"0]"  # a tensor, as JSON
    data = gzip.compress(zeros)
    with pytest.raises(GatewayError) as caught:
        inflate(data, "gzip", Limits(inflation=100))
    assert caught.value.reason is Reason.TOO_LARGE
    assert caught.value.message == (
        f"the body of {len(data)} compressed bytes inflates to more than 1048576 bytes, the most that is allowed: "
        "limits.message, 67108864 bytes, and limits.inflation, 100 times its size (or 1 MiB, if that is more); "
        "send less, or raise a limit"
    )
    assert inflate(data, "gzip", Limits()) == zeros
    assert inflate(gzip.compress(bytes(MIB)), "gzip", Limits(inflation=100)) == bytes(MIB)
    with pytest.raises(GatewayError, match=r"more than 999 bytes.*limits\.message, 999 bytes"):
        inflate(zlib.compress(bytes(1000)), "zlib", Limits(message=999))


@pytest.mark.long
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("level", [1, 6, 9])
def test_a_tensor_of_equal_numbers_is_no_bomb(coding: str, level: int) -> None:
    """They compress up to 1,032 times, which is all that deflate can."""
    tensor = struct.pack("<d", 1.5) * (8 * MIB)
    packer = zlib.compressobj(level, wbits=31 if coding == "gzip" else 15)
    data = packer.compress(tensor) + packer.flush()
    pieces = list(inflated(data, coding, Limits(), "the body"))
    assert b"".join(pieces) == tensor
    assert max(map(len, pieces)) <= MIB
