"""Streamed bodies, cut into messages: whole, byte by byte, cut anywhere, and with a tail."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.protocol import MessageSplitter, Protocol, StreamFraming
from gateway.protocols.grps import GRPS_REST, PASSTHROUGH


def framing(protocol: Protocol) -> StreamFraming:
    assert protocol.http.stream_framing is not None
    return protocol.http.stream_framing


STREAM, PIECES = framing(GRPS_REST), framing(PASSTHROUGH)

PRETTY_PYTHON = b'{\n  "status": {\n    "code": 200,\n    "msg": "OK"\n  },\n  "str_data": "a } \\" \\\\"\n}'
PRETTY_CPP = b'{\n "status": {\n  "code": 200\n },\n "str_data": "{\\u007d"\n}\n'
COMPACT = b'{"gtensors":{"tensors":[{"flat_string":["[{","\xc3\xa9}"]}]}}'

OBJECTS = [
    [PRETTY_PYTHON, PRETTY_PYTHON],
    [PRETTY_CPP, PRETTY_CPP],
    [COMPACT, PRETTY_PYTHON, PRETTY_CPP, COMPACT],
    [b"{}", b"{}", b'{"\\\\":"\\\\"}'],
]


def cutter(limit: int = 2**20) -> MessageSplitter:
    return STREAM.cutter(limit)


def without_newlines(objects: list[bytes]) -> list[bytes]:
    return [each.rstrip(b"\n") for each in objects]


@pytest.mark.parametrize("objects", OBJECTS)
def test_objects_are_cut_by_their_nesting(objects: list[bytes]) -> None:
    body = b"".join(objects)
    whole = cutter()
    assert [*whole.feed(body), *whole.end()] == without_newlines(objects)

    bytewise = cutter()
    found = [message for at in range(len(body)) for message in bytewise.feed(body[at : at + 1])]
    assert [*found, *bytewise.end()] == without_newlines(objects)


@pytest.mark.parametrize("objects", OBJECTS)
@given(data=st.data())
def test_objects_go_on_in_the_next_chunk(objects: list[bytes], data: st.DataObject) -> None:
    body = b"".join(objects)
    ends = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=8)))
    each = cutter()
    found = []
    for start, end in pairwise([0, *ends, len(body)]):
        found += each.feed(body[start:end])
        found += each.boundary()
    assert [*found, *each.end()] == without_newlines(objects)


def test_whatever_else_a_chunk_holds_is_bytes() -> None:
    each = cutter()
    chunks = [b"\x00\xff", b"\n", b"b'\\x00'", PRETTY_CPP, b"\n", b"tail {", COMPACT + b"raw", b"  " + COMPACT]
    found = []
    for chunk in chunks:
        found += each.feed(chunk)
        found += each.boundary()
    assert found == [b"\x00\xff", b"\n", b"b'\\x00'", PRETTY_CPP[:-1], b"\n", b"tail {", COMPACT, b"raw", COMPACT]
    assert each.end() == []


def test_bytes_in_several_pieces_are_one_message_to_the_end_of_their_chunk() -> None:
    each = cutter()
    assert [each.feed(b"ra"), each.feed(COMPACT), each.boundary()] == [[], [], [b"ra" + COMPACT]]
    assert [each.feed(b"w"), each.feed(b"!"), each.end()] == [[], [], [b"w!"]]


def test_a_stream_that_ends_inside_an_object_is_none() -> None:
    each = cutter()
    assert each.feed(COMPACT + COMPACT[:-1]) == [COMPACT]
    assert each.boundary() == []
    with pytest.raises(DecodeError, match="ends inside a JSON object"):
        each.end()


@pytest.mark.parametrize("beginning", [b'{"a":"', b"raw", b" " * 100])
def test_a_message_stays_within_the_limit(beginning: bytes) -> None:
    each = cutter(1000)
    assert each.feed(COMPACT * 100) == [COMPACT] * 100
    assert each.feed(beginning) == []
    with pytest.raises(GatewayError, match=r"over 1000 bytes, limits\.message") as refused:
        each.feed(b"x" * 1000)
    assert refused.value.reason is Reason.TOO_LARGE


def test_nothing_is_put_between_messages() -> None:
    assert STREAM.wrap((b"a", b"b")) == (b"a", b"b")


def test_what_passes_through_is_not_cut() -> None:
    each = PIECES.cutter(10)
    assert [each.feed(b"data: "), each.feed(b""), each.boundary(), each.end()] == [[b"data: "], [], [], []]
    assert PIECES.wrap((b"a",)) == (b"a",)


def test_a_body_without_bytes_that_passes_through_is_one_piece() -> None:
    each = PIECES.cutter(10)
    assert [each.feed(b""), each.boundary(), each.end()] == [[], [], [b""]]
