import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.transports.grpc import header_blocks

# RFC 7541 appendices C.2, C.3, C.4 and C.6, as far as they need no dynamic table
BLOCKS = {
    "400a637573746f6d2d6b65790d637573746f6d2d686561646572": [(b"custom-key", b"custom-header")],
    "040c2f73616d706c652f70617468": [(b":path", b"/sample/path")],
    "100870617373776f726406736563726574": [(b"password", b"secret")],
    "82": [(b":method", b"GET")],
    "828684410f7777772e6578616d706c652e636f6d": [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
    ],
    "828684418cf1e3c2e5f23a6ba0ab90f4ff": [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
    ],
    "488264025885aec3771a4b": [(b":status", b"302"), (b"cache-control", b"private")],
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
def test_a_block_is_its_fields(block: str, fields: list[header_blocks.Field]) -> None:
    assert header_blocks.read(bytes.fromhex(block), 1000) == fields


@pytest.mark.parametrize("block", WRONG.values(), ids=WRONG)
def test_what_is_no_block_is_refused(block: str) -> None:
    with pytest.raises(DecodeError, match=r"a header block|Huffman"):
        header_blocks.read(bytes.fromhex(block), 2**20)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 255, 16_510, 16_511, 100_000])
def test_what_is_written_is_read(size: int) -> None:
    fields = [(b"name", b"x" * size), (b"x" * size, b"")]
    assert header_blocks.read(header_blocks.write(fields), 2**20) == fields


def test_written_fields_are_never_indexed() -> None:
    assert header_blocks.write([(b"te", b"trailers"), (b"a", b"")]) == b"\x10\x02te\x08trailers\x10\x01a\x00"


def test_fields_are_counted_as_the_specification_does() -> None:
    """RFC 9113 section 6.5.2: 32 bytes for each beside its name and value."""
    block = header_blocks.write([(b"name", b"value")] * 10)
    assert len(header_blocks.read(block, 10 * (4 + 5 + 32))) == 10
    with pytest.raises(GatewayError) as caught:
        header_blocks.read(block, 10 * (4 + 5 + 32) - 1)
    assert caught.value.reason is Reason.HEADERS_TOO_LARGE


def test_many_fields_of_one_octet_are_bounded() -> None:
    with pytest.raises(GatewayError):
        header_blocks.read(b"\x88" * 10_000, 10_000)


@given(st.binary(max_size=60))
def test_any_octets_are_a_block_or_refused(block: bytes) -> None:
    try:
        header_blocks.read(block, 1000)
    except (DecodeError, GatewayError):
        return
