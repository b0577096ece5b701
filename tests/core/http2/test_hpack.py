import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.http2 import hpack
from gateway.core.http2.hpack import Decoder, HeadersTooLargeError

GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
PRIVATE, LOCATION = (b"cache-control", b"private"), (b"location", b"https://www.example.com")
DATE = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")

# RFC 7541 appendices C.2, C.3, C.4 and C.6, as far as they need no dynamic table
BLOCKS = {
    "400a637573746f6d2d6b65790d637573746f6d2d686561646572": [(b"custom-key", b"custom-header")],
    "040c2f73616d706c652f70617468": [(b":path", b"/sample/path")],
    "100870617373776f726406736563726574": [(b"password", b"secret")],
    "82": [(b":method", b"GET")],
    "828684410f7777772e6578616d706c652e636f6d": GET,
    "828684418cf1e3c2e5f23a6ba0ab90f4ff": GET,
    "488264025885aec3771a4b": [(b":status", b"302"), PRIVATE],
    "": [],
    "20": [],  # a table of size 0, which servers must tell after the client's settings
    "2088": [(b":status", b"200")],
    "bd": [(b"www-authenticate", b"")],
    "0f10106170706c69636174696f6e2f67727063": [(b"content-type", b"application/grpc")],
}
WRONG = {
    "an entry 0": "80",
    "an entry of the dynamic table": "be",
    "its name": "7e0161",
    "a dynamic table": "21",
    "a large one": "3fe11f",
    "an integer that does not end": "ffffffffffffffffff",
    "an integer that is cut off": "ff",
    "a name that is cut off": "400a6375",
    "no name": "40",
    "no value": "400161",
    "a value that is cut off": "40016103",
    "a string of 268 MB": "407fffffff7f",
    "bad Huffman coding": "408107",
}


@pytest.mark.parametrize(("block", "fields"), BLOCKS.items())
def test_a_block_is_its_fields(block: str, fields: list[hpack.Field]) -> None:
    assert hpack.read(bytes.fromhex(block), 1000) == fields


@pytest.mark.parametrize("block", WRONG.values(), ids=WRONG)
def test_what_is_no_block_is_refused(block: str) -> None:
    with pytest.raises(DecodeError, match=r"a header block|Huffman"):
        hpack.read(bytes.fromhex(block), 2**20)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 255, 16_510, 16_511, 100_000])
def test_what_is_written_is_read(size: int) -> None:
    fields = [(b"name", b"x" * size), (b"x" * size, b"")]
    assert hpack.read(hpack.write(fields), 2**20) == fields


def test_written_fields_are_never_indexed() -> None:
    assert hpack.write([(b"te", b"trailers"), (b"a", b"")]) == b"\x10\x02te\x08trailers\x10\x01a\x00"


def test_fields_are_counted_as_the_specification_does() -> None:
    """RFC 9113 section 6.5.2: 32 bytes for each beside its name and value."""
    block = hpack.write([(b"name", b"value")] * 10)
    assert len(hpack.read(block, 10 * (4 + 5 + 32))) == 10
    with pytest.raises(HeadersTooLargeError):
        hpack.read(block, 10 * (4 + 5 + 32) - 1)


def test_many_fields_of_one_octet_are_bounded() -> None:
    with pytest.raises(HeadersTooLargeError):
        hpack.read(b"\x88" * 10_000, 10_000)


@given(st.binary(max_size=60))
def test_any_octets_are_a_block_or_refused(block: bytes) -> None:
    try:
        hpack.read(block, 1000)
    except (DecodeError, HeadersTooLargeError):
        return


# RFC 7541 appendices C.4 and C.5: blocks of one connection, and the size of its table.
CONVERSATIONS = {
    "requests": (
        4096,
        {
            "828684418cf1e3c2e5f23a6ba0ab90f4ff": GET,
            "828684be5886a8eb10649cbf": [*GET, (b"cache-control", b"no-cache")],
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf": [
                (b":method", b"GET"),
                (b":scheme", b"https"),
                (b":path", b"/index.html"),
                (b":authority", b"www.example.com"),
                (b"custom-key", b"custom-value"),
            ],
        },
    ),
    "replies, with evictions": (
        256,
        {
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
            "6e1768747470733a2f2f7777772e6578616d706c652e636f6d": [(b":status", b"302"), PRIVATE, DATE, LOCATION],
            "4803333037c1c0bf": [(b":status", b"307"), PRIVATE, DATE, LOCATION],
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970": [
                (b":status", b"200"),
                PRIVATE,
                (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
                LOCATION,
                (b"content-encoding", b"gzip"),
            ],
        },
    ),
}


@pytest.mark.parametrize(("size", "blocks"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_blocks_that_build_a_table_are_read_in_their_order(size: int, blocks: dict[str, list[hpack.Field]]) -> None:
    decoder = Decoder(10_000, size)
    assert [decoder.read(bytes.fromhex(block)) for block in blocks] == list(blocks.values())


def test_a_table_is_emptied_by_its_size_and_by_what_it_has_no_room_for() -> None:
    entry = b"\x40\x01a\x01b"
    for emptying in (b"\x20\x3f\xe1\x1f", b"\x40\x01a\x7f\xa0\x1f" + bytes(0x7F + 0x20 + (0x1F << 7))):
        decoder = Decoder(100_000)
        assert decoder.read(entry + b"\xbe") == [(b"a", b"b")] * 2
        decoder.read(emptying)
        with pytest.raises(DecodeError, match="refers to entry 62, there are 61"):
            decoder.read(b"\xbe")


def test_a_table_is_no_larger_than_was_allowed() -> None:
    decoder = Decoder(10_000)
    decoder.allow(0)
    assert [decoder.is_stateless, decoder.read(b"\x20"), decoder.is_stateless] == [False, [], True]
    with pytest.raises(DecodeError, match="sets a dynamic table of 30 bytes, 0 are allowed"):
        decoder.read(b"\x3e")


def test_a_block_that_is_too_large_has_a_most_of_fields_while_there_is_a_table() -> None:
    with pytest.raises(HeadersTooLargeError):
        Decoder(100).read(b"\x88" * 4096)
    with pytest.raises(DecodeError, match="a header block of more than 4096 fields"):
        Decoder(100).read(b"\x88" * 4097)


def test_a_block_that_is_too_large_keeps_the_table_right() -> None:
    decoder = Decoder(100)
    with pytest.raises(HeadersTooLargeError):
        decoder.read(b"\x40\x01a\x7f\x00" + bytes(127) + b"\x40\x01c\x01d")
    assert decoder.read(b"\xbe") == [(b"c", b"d")]
