"""What is found of a head is what the parser says of it, whatever came before."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from gateway.core.patterns import PathTable
from gateway.core.protocol import Limits
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.request_head import HeadReader, RequestHead
from gateway.transports.http.server.whole_heads import WholeHeads
from tests.transports.http.server.toy_listener import SMALL, TOY

TABLE = PathTable([(TOY, "")])
TRACE = b"traceparent: 00-%032x-%016x-01"
LINES = [
    b"Host: localhost",
    b"Content-Length: 3",
    b"Connection: close",
    b"Accept: */*",
    b" folded",
    TRACE % (1, 2),
    TRACE % (3, 4),
    b"Traceparent: 00-x",
    b"x-request-id: a1",
    b"X-Request-ID: b2",
    b"X-Request-Id:c3",
    b"x-request-id: d 4",
    b"x-request-id: ",
    b"x-request-id: e\x00",
    b"x-request-ids: f",
]
STARTS = [b"POST /echo HTTP/1.1", b"POST /echo HTTP/1.0", b"GET /nowhere HTTP/1.1", b"traceparent: 00-y"]


def whole(lines: Sequence[bytes]) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


def parsed(raw: bytes, limits: Limits) -> RequestHead | None:
    """What the parser says; None if the head is refused."""
    reader = HeadReader(limits.headers)
    try:
        assert reader.feed(raw, 0) == len(raw)
        head = RequestHead(reader)
        head.check()
    except GatewayError:
        return None
    return None if Dispatch(head, TABLE).refused is not None else head


def said(head: RequestHead) -> object:
    attributes = {name: getattr(head, name) for name in RequestHead.__slots__ if name not in ("headers", "fields")}
    return attributes, sorted(head.headers.raw), head.headers.first


HEADS = st.tuples(st.sampled_from(STARTS), st.lists(st.sampled_from(LINES), max_size=6))


@given(st.lists(HEADS, min_size=1, max_size=4))
@example([(STARTS[0], [LINES[0], b"x-request-id: a1", b"X-Request-Id:c3"])])
@example([(STARTS[0], [LINES[0], TRACE % (1, 2), b" folded"])])
@example([(STARTS[0], [TRACE % (1, 2), b" folded", LINES[0]])])
def test_a_head_that_is_found_says_what_the_parser_says(heads: list[tuple[bytes, list[bytes]]]) -> None:
    reading = WholeHeads(TABLE, SMALL)
    for start, lines in [each for each in heads for _ in range(2)] + heads:
        raw = whole([start, *lines])
        expected, found = parsed(raw, SMALL), reading.find(raw + b"abc", 0)
        if found is None:
            assert expected is None
            continue
        head, dispatch, size, size_of_all = found
        assert expected is not None
        assert said(head) == said(expected)
        assert size == len(raw)
        assert size_of_all == len(raw) + (expected.length or 0)
        assert dispatch.message(head, b"abc", "", 0.0).headers is head.headers


@pytest.mark.parametrize("end", [b"", b" folded", b"\tfolded"])
@pytest.mark.parametrize("name", [b"Content-Length", b"CONTENT-LENGTH", b"traceparent", b"X-Request-Id"])
def test_another_value_in_a_head_of_a_known_shape_means_what_the_parser_says(name: bytes, end: bytes) -> None:
    lines = [b"Host: localhost", name + b": 3", *([end] if end else []), b"Accept: */*"]
    for first in (b"3", b"0", b"16384"):
        heads = WholeHeads(TABLE, SMALL)
        heads.find(whole([STARTS[0], lines[0], name + b": " + first, *lines[2:]]), 0)
        for value in VALUES:
            raw = whole([STARTS[0], lines[0], name + b": " + value, *lines[2:]])
            expected, found = parsed(raw, SMALL), heads.find(raw, 0)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert said(found[0]) == said(expected)
                assert found[2] == len(raw)
                assert found[3] in (0, len(raw) + (expected.length or 0))


VALUES = [
    *(b"0", b"4", b"0004", b"+4", b"-4", b"4 ", b" 4", b"1_0", b"4,4", b"\xb2", b"a", b"a b", b"a\0", b""),
    *(b"%d" % (SMALL.message + more) for more in (0, 1)),
    *(b"16383", b"16384", b"65536", b"65537", b"9" * 15, b"9" * 16, b"9" * 20, b"9" * 500),
]


def test_only_a_simple_request_is_taken_at_once_whatever_came_before() -> None:
    heads, sizes = WholeHeads(TABLE, Limits(message=20_000)), []
    for length in (3, 16_383, 16_384, 20_001, 3):
        raw = whole([STARTS[0], LINES[0], b"Content-Length: %d" % length])
        found = heads.find(raw, 0)
        assert found is not None
        sizes.append(found[3] - len(raw) if found[3] else 0)
    assert sizes == [3, 16_383, 0, 0, 3]


def test_a_head_that_comes_again_is_that_of_the_new_request() -> None:
    heads = WholeHeads(TABLE, SMALL)
    raw, other = whole([STARTS[0], LINES[0], LINES[1]]), whole([STARTS[0], LINES[0], LINES[4]])
    for data, at in ((raw + b"abc", 0), (raw + b"abc" + raw + b"abd", len(raw) + 3), (other, 0), (raw, 0)):
        found = heads.find(data, at)
        expected = parsed(other if data is other else raw, SMALL)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert said(found[0]) == said(expected)
    assert heads.find(raw[:-1], 0) is None


def test_a_longer_head_is_received_by_its_parts() -> None:
    assert WholeHeads(TABLE, SMALL).find(whole([STARTS[0], LINES[0], b"x-request-id: " + b"a" * 2000]), 0) is None
