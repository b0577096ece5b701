"""Streams of JSON lines and of events: whole, byte by byte, cut anywhere, and with a tail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.protocol import StreamFraming
from gateway.protocols.json.media.streams import END_MARK, EVENTS, LINES

STREAMS = {
    "lines": (LINES, b'{"a":1}\n{"a":2}\n', [b'{"a":1}', b'{"a":2}']),
    "carriage returns and line feeds": (LINES, b"1\r\n2\r\n", [b"1", b"2"]),
    "blank lines": (LINES, b"\n\n1\n \n\t\r\n2\n\n", [b"1", b"2"]),
    "no line end at the end": (LINES, b"1\n2", [b"1", b"2"]),
    "letters that are no line ends": (LINES, '"\u2028\x85\x0b"\n'.encode(), ['"\u2028\x85\x0b"'.encode()]),
    "no lines": (LINES, b"", []),
    "events": (EVENTS, b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}']),
    "events without an end mark": (EVENTS, b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
}

each_stream = pytest.mark.parametrize(("framing", "stream", "messages"), STREAMS.values(), ids=STREAMS)


def cut(framing: StreamFraming, *pieces: bytes, limit: int = 100) -> list[bytes]:
    cutter = framing.cutter(limit)
    messages = [message for piece in pieces for message in (*cutter.feed(piece), *cutter.boundary())]
    return [bytes(message) for message in (*messages, *cutter.end())]


@each_stream
def test_a_stream_whole_byte_by_byte_and_in_two_pieces(
    framing: StreamFraming, stream: bytes, messages: list[bytes]
) -> None:
    assert cut(framing, stream) == messages
    assert cut(framing, *(stream[at : at + 1] for at in range(len(stream)))) == messages
    assert all(cut(framing, stream[:at], b"", stream[at:]) == messages for at in range(len(stream)))


def test_a_message_is_given_at_its_last_byte() -> None:
    cutter = LINES.cutter(100)
    assert cutter.feed(b'{"a"') == []
    assert cutter.feed(b':1}\n{"b') == [b'{"a":1}']
    assert cutter.feed(b'":2}\n') == [b'{"b":2}']
    assert cutter.end() == []


def test_keeps_no_view_of_what_it_is_fed() -> None:
    cutter, scratch = LINES.cutter(100), bytearray(b"12")
    cutter.feed(memoryview(scratch))
    scratch[:] = b"XX"
    assert cutter.feed(b"\n") == [b"12"]


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_a_line_beyond_the_limit_is_refused(piece: int) -> None:
    def pieces(stream: bytes) -> list[bytes]:
        return [stream[at : at + piece] for at in range(0, len(stream), piece)]

    assert cut(LINES, *pieces(b"x" * 20 + b"\r\n" + b"y" * 20), limit=20) == [b"x" * 20, b"y" * 20]
    with pytest.raises(GatewayError, match=r"a line has more than 20 bytes \(limits.message\)") as refused:
        cut(LINES, *pieces(b"1\n" + b"x" * 30), limit=20)
    assert refused.value.reason is Reason.TOO_LARGE


def test_nothing_follows_the_end_mark() -> None:
    with pytest.raises(DecodeError, match=r"an event after \[DONE\]"):
        cut(EVENTS, b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n")


def test_messages_are_written() -> None:
    assert b"".join(LINES.wrap((b'{"a":', b"1}"))) == b'{"a":1}\n'
    assert b"".join(EVENTS.wrap((b'{"a":', b"1}"))) == b'data: {"a":1}\n\n'
    assert b"".join(EVENTS.wrap((END_MARK,))) == b"data: [DONE]\n\n"
    assert LINES.wrap(()) == EVENTS.wrap(()) == ()


def can_be_sent(message: bytes) -> bool:
    return message.strip() == message != END_MARK and not {*message} & {*b"\r\n"}


@given(st.sampled_from([LINES, EVENTS]), st.lists(st.binary(min_size=1, max_size=20).filter(can_be_sent)), st.data())
def test_what_is_written_is_read_wherever_it_is_split(
    framing: StreamFraming, messages: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(b"".join(framing.wrap((message,))) for message in messages)
    splits = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:stop] for start, stop in zip([0, *splits], [*splits, len(stream)], strict=True)]
    assert cut(framing, *pieces) == messages
