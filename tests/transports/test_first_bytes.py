"""The first bytes of connections: which transport they tell, whatever else shares the address."""

import itertools

import pytest

from gateway.assembly.registry import protocols
from gateway.core.errors import DecodeError
from gateway.core.protocol import StreamBinding
from gateway.transports.shared_listener import Opening, recognised

HTTP = Opening()
GRPC = Opening(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
BRPC = Opening(b"PRPC")
MIP = Opening(b"\0")
ALL = (HTTP, GRPC, BRPC, MIP)

LITERALS = {
    b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n": HTTP,
    b"POST /v2/models/m/infer HTTP/1.1\r\n": HTTP,
    b"PUT /x HTTP/1.1\r\n": HTTP,
    b"PATCH /x HTTP/1.1\r\n": HTTP,
    b"PROPFIND / HTTP/1.1\r\n": HTTP,
    b"PRI /x HTTP/1.1\r\n": HTTP,
    b"PRI * HTTP/1.1\r\nHost: a\r\n": HTTP,
    b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n": HTTP,
    b"PR / HTTP/1.1\r\n": HTTP,
    b"\r\nGET / HTTP/1.1\r\n": HTTP,
    b"options * HTTP/1.1\r\n": HTTP,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0": GRPC,
    b"PRPC\0\0\0\x20\0\0\0\x10": BRPC,
    bytes.fromhex("0001000000000000"): MIP,
    bytes.fromhex("00020000000000120100000100000002"): MIP,
}
"""What clients send first, and what it tells."""


def grown(data: bytes, openings: tuple[Opening, ...]) -> Opening:
    """What is recognised where `data` comes byte by byte: once it is, more bytes change nothing."""
    found = None
    for end in range(len(data) + 1):
        at = recognised(data[:end], openings)
        assert found is None or at == found
        found = at
    assert found is not None
    return openings[found]


@pytest.mark.parametrize("data", LITERALS)
def test_each_beginning_tells_one_transport_byte_by_byte_in_any_order(data: bytes) -> None:
    for openings in itertools.permutations(ALL):
        assert grown(data, openings) is LITERALS[data]


@pytest.mark.parametrize("data", LITERALS)
def test_a_transport_that_is_not_there_is_not_told(data: bytes) -> None:
    """Text is HTTP's to refuse, which says so in words; what is not text is nobody's."""
    without = tuple(each for each in ALL if each is not LITERALS[data])
    if LITERALS[data] in (GRPC, BRPC):
        assert grown(data, without) is HTTP
    else:
        with pytest.raises(DecodeError, match="unknown to the protocols of this port"):
            grown(data, without)


def test_every_first_byte_has_one_meaning() -> None:
    found: dict[Opening | None, bytes] = {}
    for number in range(256):
        try:
            at = recognised(bytes([number]), ALL)
        except DecodeError:
            continue
        what = None if at is None else ALL[at]
        found[what] = found.get(what, b"") + bytes([number])
    assert found == {
        None: b"P",
        MIP: b"\0",
        HTTP: b"\n\r!#$%&'*+-.0123456789ABCDEFGHIJKLMNOQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~",
    }


def test_nothing_tells_nothing() -> None:
    assert recognised(b"", ALL) is None


def test_a_tls_handshake_is_none_of_them() -> None:
    with pytest.raises(DecodeError):
        recognised(b"\x16\x03\x01\x02\x00\x01", ALL)


def test_byte_streams_begin_as_the_specifications_say() -> None:
    magics = {
        name: each.binding.framing.magic
        for name, each in protocols().items()
        if isinstance(each.binding, StreamBinding)
    }
    assert magics == {"mip": b"\0", "grps-brpc": b"PRPC"}
