"""What the cache says of a head is what the parser says of it, whatever ids it has, and whatever came before."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from gateway.core.patterns import PathTable
from gateway.core.protocol import Limits
from gateway.transports.http.server import head_cache
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.head_cache import HeadCache
from gateway.transports.http.server.request_head import HeadReader, RequestHead
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
    cache = HeadCache(TABLE, SMALL)
    for start, lines in heads * 2:
        raw = whole([start, *lines])
        expected, found = parsed(raw, SMALL), cache.find(raw + b"abc", 0)
        if found is None:
            # Not those whose ids it cannot leave out, nor those with a fault.
            assert expected is None or sum(b"raceparent" in each or b"equest-I" in each.title() for each in lines) > 1
            continue
        head, dispatch, size, size_of_all = found
        assert expected is not None
        assert said(head) == said(expected)
        assert size == len(raw)
        assert size_of_all == len(raw) + (expected.length or 0)
        assert dispatch.message(head, b"abc", "", 0.0).headers is head.headers


@pytest.mark.parametrize("line", [b"traceparent: 00-%d", b"X-Request-Id: %d"])
def test_heads_that_differ_in_their_ids_are_parsed_once(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(HeadReader):
        made = 0

        def __init__(self, limit: int) -> None:
            super().__init__(limit)
            Counted.made += 1

    monkeypatch.setattr(head_cache, "HeadReader", Counted)
    cache = HeadCache(TABLE, SMALL)
    for number in range(5):
        found = cache.find(whole([STARTS[0], LINES[0], line % number, LINES[1]]), 0)
        assert found is not None
        name, _, _ = line.lower().partition(b":")
        assert found[0].headers.first[name].endswith(b"%d" % number)
    assert Counted.made == 1


def test_a_head_with_ids_is_as_large_as_it_came() -> None:
    """The limit counts the lines that are left out."""
    cache = HeadCache(TABLE, SMALL)
    assert cache.find(whole([STARTS[0], LINES[0], b"x-request-id: a"]), 0) is not None
    assert cache.find(whole([STARTS[0], LINES[0], b"x-request-id: " + b"a" * SMALL.headers]), 0) is None


def test_the_heads_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_cache, "_MAX_HEADS", 3)
    cache = HeadCache(TABLE, SMALL)
    for number in range(10):
        assert cache.find(whole([STARTS[0], LINES[0], b"x-number: %d" % number]), 0) is not None
    assert len(cache) == 3


def test_heads_of_different_paths_share_equal_headers_alone() -> None:
    cache = HeadCache(TABLE, SMALL)
    starts, hosts = (STARTS[0], b"POST /echo?again HTTP/1.1"), (b"Host: one", b"Host: other")
    found = [cache.find(whole([start, host]), 0) for start in starts for host in hosts]
    one, other, again, other_again = (each[0].headers for each in found if each is not None)
    assert again is one
    assert other_again is other
    assert one.first != other.first
