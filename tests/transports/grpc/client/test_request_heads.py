import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.http2.hpack import Field, read
from gateway.core.messages import NO_HEADERS, Headers, Metadata
from gateway.transports.grpc.client.heads import RequestHeadWriter

BEGINNING = (
    b"\x83\x86"  # :method POST, :scheme http
    b"\x10\x05:path\x0d/toy.Toy/Echo"
    b"\x10\x0a:authority\x08toy:8001"
    b"\x10\x02te\x08trailers"
    b"\x10\x0ccontent-type\x10application/grpc"
    b"\x10\x0auser-agent\x15grpc-python-modelglot"
    b"\x10\x14grpc-accept-encoding\x08identity"
)


def write(*headers: Field, timeout: float | None = None) -> bytes:
    return RequestHeadWriter("toy:8001").write("/toy.Toy/Echo", Headers(headers), timeout)


def test_a_head_has_what_grpc_over_http2_asks_for() -> None:
    assert write() == BEGINNING


def test_metadata_follow_and_binary_ones_are_base64_without_padding() -> None:
    heads, metadata = RequestHeadWriter("toy:8001"), Metadata([(b"Some", b"text"), (b"some-bin", b"\x00\xff")])
    block = heads.write("/toy.Toy/Echo", metadata, 1.5)
    assert block == BEGINNING + b"\x10\x04some\x04text\x10\x08some-bin\x03AP8\x10\x0cgrpc-timeout\x081500000u"


def test_own_headers_take_the_place_of_those_of_the_message() -> None:
    own = ((b"host", b"iris.example.com"), (b"x-tenant", b"a"))
    heads = RequestHeadWriter("toy:8001", headers=own)
    metadata = Metadata([(b"x-tenant", b"b"), (b"X-Tenant", b"d"), (b"x-other", b"c")])
    found = read(heads.write("/toy.Toy/Echo", metadata, None), 2**16)
    fields = [field for field in found if not field[0].startswith(b"grpc-")]
    assert fields[3] == (b":authority", b"iris.example.com")
    assert [each for each in fields if each[0].startswith(b"x-")] == [(b"x-tenant", b"a"), (b"x-other", b"c")]
    assert not any(name == b"host" for name, _ in found)


def test_binary_values_that_another_transport_brought_are_base64_already() -> None:
    for text in (b"AP8=", b"AP8"):
        assert write((b"some-bin", text)) == BEGINNING + b"\x10\x08some-bin\x03AP8"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (b"some-bin", b"!", "its value is not base64; encode it in base64, or use a name without -bin"),
        (b"some-bin", b"\0\xff", "its value is not base64; encode it in base64, or use a name without -bin"),
        (b"some", b"a\tb", "its value is not printable ASCII; change it"),
        (b"some", b"a\r\nb: c", "its value is not printable ASCII; change it"),
        (b"some", "é".encode(), "its value is not printable ASCII; change it"),
    ],
)
def test_values_that_have_no_form_in_grpc_are_refused_by_their_header(name: bytes, text: bytes, why: str) -> None:
    with pytest.raises(GatewayError) as refused:
        write((name, text))
    assert refused.value.reason is Reason.INVALID_INPUT
    assert refused.value.message == f"header {name.decode()!r} does not fit gRPC: {why}"


def test_values_have_no_blanks_around_them() -> None:
    """RFC 9113 section 8.2.1: one that had would be malformed."""
    assert write((b"some", b" two words ")) == BEGINNING + b"\x10\x04some\x09two words"


def test_each_call_has_its_own_timeout() -> None:
    heads = RequestHeadWriter("toy:8001")
    blocks = [heads.write("/a/b", NO_HEADERS, timeout) for timeout in (1, None, 2)]
    assert [dict(read(block, 1000)).get(b"grpc-timeout") for block in blocks] == [b"1000000u", None, b"2000000u"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (1e-9, b"1u"),
        (0.25, b"250000u"),
        (0.9999999, b"999999u"),
        (29.987, b"30000000u"),
        (99.901, b"100000m"),
        (100.0, b"100000m"),
        (99_999.0, b"99999000m"),
        (100_000.0, b"100000S"),
        (1e8, b"1666666M"),
        (1e10, b"2777777H"),
        (1e300, b"99999999H"),
    ],
)
def test_a_timeout_has_at_most_eight_digits_and_is_longer_by_a_tenth_of_a_second_at_most(
    seconds: float, told: bytes
) -> None:
    assert dict(read(write(timeout=seconds), 1000))[b"grpc-timeout"] == told
