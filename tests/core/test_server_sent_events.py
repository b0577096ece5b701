"""Server-sent events, cut into pieces in every way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.server_sent_events import EventCutter, write_event

TRITON = (
    b'data: {"OUTPUT0":0,"model_name":"repeat","model_version":"1"}\n\n'
    b'data: {"OUTPUT0":1,"model_name":"repeat","model_version":"1"}\n\n'
    b'data: {"error":"refused after 2 responses"}\n\n'
)
"""Triton 2.51's stream in reply to `{"n":-2}`."""

STREAMS = {
    "triton": (
        TRITON,
        [
            b'{"OUTPUT0":0,"model_name":"repeat","model_version":"1"}',
            b'{"OUTPUT0":1,"model_name":"repeat","model_version":"1"}',
            b'{"error":"refused after 2 responses"}',
        ],
    ),
    "empty": (b"", []),
    "carriage returns and line feeds": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "carriage returns": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "mixed": (b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n", [b"1", b"2", b"3"]),
    "no blank": (b"data:1\n\ndata:  2\n\n", [b"1", b" 2"]),
    "several lines": (b'data: {"a":\ndata: 1}\n\n', [b'{"a":\n1}']),
    "comments": (b": ping\n\n:\ndata: 1\n: ping\ndata: 2\n\n: ping\n\n", [b"1\n2"]),
    "other fields": (b"event: token\nid: 7\nretry: 10\nnonsense\ndata: 1\n\n", [b"1"]),
    "events without data": (b"event: end\n\ndata: 1\n\n\n\ndata\n\n", [b"1"]),
    "byte order mark": (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
    "a colon in the data": (b'data: {"a":"b: c"}\n\n', [b'{"a":"b: c"}']),
    "letters of UTF-8": ("data: é\u2028\x0b\x0c\x85x\n\n".encode(), ["é\u2028\x0b\x0c\x85x".encode()]),
}


def cut(*pieces: bytes, limit: int = 1000) -> list[bytes]:
    cutter = EventCutter(limit)
    events = [event for piece in pieces for event in (*cutter.feed(piece), *cutter.boundary())]
    return [bytes(event) for event in (*events, *cutter.end())]


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_a_stream_whole_byte_by_byte_and_in_two_pieces(stream: bytes, events: list[bytes]) -> None:
    assert cut(stream) == events
    assert cut(*(stream[at : at + 1] for at in range(len(stream)))) == events
    assert all(cut(stream[:at], b"", stream[at:]) == events for at in range(len(stream)))


def test_an_event_is_given_at_its_last_byte() -> None:
    cutter = EventCutter(100)
    assert cutter.feed(b"data: 1\n") == []
    assert cutter.feed(b"\n") == [b"1"]
    assert cutter.feed(b"data: 2\r\n\r") == [b"2"]
    assert cutter.feed(b"\n") == []


def test_accepts_any_buffer_and_keeps_no_view_of_it() -> None:
    cutter, scratch = EventCutter(100), bytearray(b"data: 1")
    cutter.feed(memoryview(scratch))
    scratch[:] = b"XXXXXXX"
    assert cutter.feed(b"\n\n") == [b"1"]


@pytest.mark.parametrize("rest", [b"d", b"data: 1", b"data: 1\n", b"data: 1\r\n", b": comment"])
def test_a_stream_that_ends_inside_an_event_is_cut_short(rest: bytes) -> None:
    with pytest.raises(DecodeError, match="the stream ends inside an event"):
        cut(b"data: 0\n\n", rest)


FITS, TOO_LONG = b"x" * 20, b"x" * 21


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_an_event_beyond_the_limit_is_refused(piece: int) -> None:
    def pieces(stream: bytes) -> list[bytes]:
        return [stream[at : at + piece] for at in range(0, len(stream), piece)]

    assert cut(*pieces(b"data: %b\n\n" % FITS * 3), limit=20) == [FITS] * 3
    many = b"data: 1\n" * 21 + b"data: %b" % FITS
    for stream in (b"data: %b" % TOO_LONG, b"data: %b\n" % FITS * 2, many, b"data:\n" * 30):
        with pytest.raises(GatewayError, match=r"an event has more than 20 bytes \(limits.message\)") as refused:
            cut(*pieces(stream), limit=20)
        assert refused.value.reason is Reason.TOO_LARGE


lines = st.lists(st.binary(max_size=20).filter(lambda line: not set(line) & set(b"\r\n")), min_size=1, max_size=3)


@given(st.lists(lines, max_size=5), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_written_events_are_read_wherever_the_stream_is_split(
    events: list[list[bytes]], end: bytes, data: st.DataObject
) -> None:
    stream = b"".join(b"".join(b"data: %b%b" % (line, end) for line in event) + end for event in events)
    splits = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:stop] for start, stop in zip([0, *splits], [*splits, len(stream)], strict=True)]
    assert cut(*pieces) == [joined for event in events if (joined := b"\n".join(event))]


@given(st.lists(st.binary(max_size=100)))
def test_any_bytes_are_events_or_refused(pieces: list[bytes]) -> None:
    try:
        cut(*pieces, limit=50)
    except (DecodeError, GatewayError):
        return


def test_a_message_is_written_as_one_event() -> None:
    assert b"".join(write_event((b'{"a":', b"1}"))) == b'data: {"a":1}\n\n'
    assert write_event(()) == ()


def test_a_message_of_several_lines_is_one_event() -> None:
    message = (b'{\n"a": [\n', memoryview(b"\n1]}"))
    written = b"".join(write_event(message))
    assert written == b'data: {\ndata: "a": [\ndata: \ndata: 1]}\n\n'
    assert EventCutter(100).feed(written) == [b"".join(message)]


OPENAI = b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n'


def test_an_end_mark_ends_a_stream() -> None:
    for pieces in ([OPENAI], [OPENAI[at : at + 1] for at in range(len(OPENAI))], [OPENAI, b": bye\n\n"]):
        cutter = EventCutter(1000, b"[DONE]")
        events = [event for piece in pieces for event in cutter.feed(piece)]
        assert (events, cutter.end()) == ([b'{"choices":[{"text":"a"}]}', b'{"choices":[]}'], [])
    with pytest.raises(DecodeError, match=r"an event after \[DONE\], which ends the stream"):
        cutter.feed(b"data: 1\n\n")


def test_an_end_mark_that_is_not_expected_is_an_event() -> None:
    assert cut(b"data: [DONE]\n\ndata: 1\n\n") == [b"[DONE]", b"1"]
