import gzip
import zlib

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.transports.grpc.inflating import Compressed, inflate
from gateway.transports.memory import PROCESS_MEMORY

LIMITS = Limits(message=1_000_000)
TEXT = bytes(range(256)) * 1000

GOOD = {
    "gzip": (b"gzip", gzip.compress(TEXT), TEXT),
    "deflate": (b"deflate", zlib.compress(TEXT), TEXT),
    "nothing": (b"gzip", gzip.compress(b""), b""),
    "exactly the limit": (b"gzip", gzip.compress(bytes(1_000_000)), bytes(1_000_000)),
    "more than is inflated in place": (b"gzip", gzip.compress(TEXT * 3, 0), TEXT * 3),
}
BAD = {
    "an encoding that is not known": (b"snappy", b"x", "reply is compressed with grpc-encoding 'snappy'"),
    "none": (b"", b"x", "reply is compressed with grpc-encoding ''"),
    "another": (b"gzip", zlib.compress(TEXT), "reply: the message is not gzip data"),
    "half": (b"gzip", gzip.compress(TEXT)[:-5], "reply: the message ends before its gzip data does"),
    "more behind it": (
        b"deflate",
        zlib.compress(TEXT) + b"more",
        "reply: bytes behind the end of the message's deflate data",
    ),
    "a bomb": (
        b"gzip",
        gzip.compress(bytes(50_000_000)),
        r"reply: the message of \d+ compressed bytes inflates to more than 1000000 bytes, .* limits\.message, ",
    ),
}


@pytest.mark.parametrize(("encoding", "data", "message"), GOOD.values(), ids=GOOD)
async def test_a_message_is_inflated(encoding: bytes, data: bytes, message: bytes) -> None:
    assert await inflate(Compressed(data), encoding, LIMITS) == message


@pytest.mark.parametrize(("encoding", "data", "why"), BAD.values(), ids=BAD)
async def test_what_is_none_is_refused(encoding: bytes, data: bytes, why: str) -> None:
    with pytest.raises(TransportError, match=why) as caught:
        await inflate(Compressed(data), encoding, LIMITS)
    assert (caught.value.status, caught.value.reason) == (Status.INTERNAL, Reason.INVALID_OUTPUT)


@pytest.mark.parametrize("size", [400_000, 900_000])
async def test_what_there_is_no_memory_for_is_refused(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_MEMORY, "limit", 0)
    with pytest.raises(TransportError, match=r"limits\.memory") as caught:
        await inflate(Compressed(gzip.compress(bytes(size))), b"gzip", LIMITS)
    assert (caught.value.status, caught.value.reason) == (Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
    assert caught.value.sent
