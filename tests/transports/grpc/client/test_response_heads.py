import pytest

from gateway.core.errors import DecodeError
from gateway.core.http2.hpack import Field, HeadersTooLargeError, write
from gateway.core.messages import Headers
from gateway.transports.grpc.client import heads
from gateway.transports.grpc.client.heads import ResponseHead

OK: Field = (b":status", b"200")
GRPC: Field = (b"content-type", b"application/grpc")
GZIP: Field = (b"grpc-encoding", b"gzip")
ACCEPTED: Field = (b"grpc-accept-encoding", b"identity, deflate, gzip")


def metadata(*fields: Field) -> ResponseHead:
    return ResponseHead(metadata=Headers(fields))


HEADS: dict[str, tuple[tuple[Field, ...], ResponseHead]] = {
    "nothing": ((), ResponseHead()),
    "a head": ((OK, GRPC, GZIP, ACCEPTED), ResponseHead(200, b"application/grpc", b"gzip")),
    "trailers": (((b"grpc-status", b"0"),), ResponseHead(status=0)),
    "a text": (((b"grpc-status", b"5"), (b"grpc-message", b"no model")), ResponseHead(status=5, text=b"no model")),
    "an encoded text": (
        ((b"grpc-status", b"3"), (b"grpc-message", b"50%25 of %C3%A9%0A%zz%")),
        ResponseHead(status=3, text=b"50% of \xc3\xa9\n%zz%"),
    ),
    "metadata": (
        ((b"some", b"1"), (b"some", b"2"), (b"grpc-status-details-bin", b"CAM")),
        metadata((b"some", b"1"), (b"some", b"2"), (b"grpc-status-details-bin", b"\x08\x03")),
    ),
    "padded and unpadded binary metadata": (
        ((b"a-bin", b"AP8="), (b"a-bin", b"AP8")),
        metadata((b"a-bin", b"\x00\xff"), (b"a-bin", b"\x00\xff")),
    ),
    "joined binary metadata": (
        ((b"a-bin", b"AA, AQ==,"), (b"b", b"1,2")),
        metadata((b"a-bin", b"\x00"), (b"a-bin", b"\x01"), (b"a-bin", b""), (b"b", b"1,2")),
    ),
    "a status that gRPC lacks": (((b"grpc-status", b"17"),), ResponseHead(status=2)),
    "a status that is no number": (((b"grpc-status", b"OK"),), ResponseHead(status=2)),
    "a status that only looks like one": (((b"grpc-status", "٣".encode()),), ResponseHead(status=2)),
    "a negative status": (((b"grpc-status", b"-1"),), ResponseHead(status=2)),
}


@pytest.mark.parametrize(("fields", "head"), HEADS.values(), ids=HEADS)
def test_a_block_is_a_head(fields: tuple[Field, ...], head: ResponseHead) -> None:
    assert heads.read_response(write(fields), 10_000) == head


@pytest.mark.parametrize(
    "fields",
    [
        ((b":status", b"OK"),),
        ((b":status", b"99999"),),
        ((b"a-bin", b"!"),),
        ((b"a-bin", b"AAAAA"),),
        (OK, (b"Some", b"1")),
        (OK, (b"", b"1")),
        (OK, (b"some", b"1\r\nother: 2")),
        (OK, (b"some", b"1\0")),
        (OK, (b"connection", b"close")),
        (GRPC, OK),
        (OK, OK),
        (OK, (b":path", b"/")),
    ],
)
def test_what_is_no_head_is_refused(fields: tuple[Field, ...]) -> None:
    with pytest.raises(DecodeError):
        heads.read_response(write(fields), 10_000)


@pytest.mark.parametrize("size", [10, 2000])
def test_a_block_is_read_the_same_again_and_the_limit_holds(size: int) -> None:
    block = write(((b"some", b"x" * size),))
    for _ in range(2):
        assert heads.read_response(block, size + 36).metadata == Headers(((b"some", b"x" * size),))
        with pytest.raises(HeadersTooLargeError):
            heads.read_response(block, size + 35)
