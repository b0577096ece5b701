"""The client's side of HTTP/2, frame by frame."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http2.client import (
    WINDOW,
    Event,
    GoneAway,
    HeadersReceived,
    Http2Client,
    ReplyReceived,
    SettingsReceived,
)
from gateway.core.http2.connection import LEAST_ROOM, DataReceived, StreamReset
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.heads import RequestHeads
from gateway.core.http2.server import Http2Server
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame
from tests.core.http2.conversation import cut

HEAD = b"\x83\x86\x84"
REPLY = http2.head(http2.OK) + frame(DATA, 0, 1, b"reply") + http2.head((b"grpc-status", b"0"), end=True)
HEARD = ["1 head", "1 b'reply'", "1 trailers"]


class Conversation:
    """`heard` is what came of what the server sent, in words."""

    def __init__(self) -> None:
        self.http2 = Http2Client(10_000)
        self.heard: list[str] = []
        self._rest = b""
        self.http2.data_to_send()
        self.server(http2.settings())
        self.frames()
        self.heard.clear()

    def server(self, *pieces: bytes) -> None:
        """The server sends these, one after the other."""
        for piece in pieces:
            self._rest += piece
            while True:
                taken = self.http2.receive(memoryview(self._rest), 0.0)
                while self.http2.events:
                    self.heard += in_words(self.http2.events.popleft())
                self._rest = self._rest[taken:]
                if not self.http2.has_more or self.http2.is_closed:
                    break

    def frames(self) -> Iterable[http2.Frame]:
        """What is written now."""
        written = b""
        while pieces := self.http2.data_to_send():
            written += b"".join(pieces)
        return list(cut(written))


def in_words(event: Event) -> list[str]:
    match event:
        case ReplyReceived(stream, _, data, _):
            return [f"{stream.id} head", f"{stream.id} {data.tobytes()!r}", f"{stream.id} trailers"]
        case HeadersReceived(stream, _, ends):
            return [f"{stream.id} {'trailers' if ends else 'head'}"]
        case DataReceived(stream, data, _):
            return [f"{stream.id} {data.tobytes()!r}"]
        case StreamReset(stream, code):
            return [f"{stream.id} reset {code}"]
        case SettingsReceived(more_streams):
            return [f"settings {more_streams}"]
        case GoneAway(code, refused):
            return [f"gone {code} {[stream.id for stream in refused]}"]
    raise AssertionError(event)


def asked(*data: bytes) -> Conversation:
    conversation = Conversation()
    conversation.http2.request(HEAD, data)
    return conversation


def test_a_request_is_one_write() -> None:
    conversation = asked(b"question")
    (written,) = conversation.http2.data_to_send()
    assert list(cut(bytes(written))) == [(HEADERS, END_HEADERS, 1, b"\x20" + HEAD), (DATA, END_STREAM, 1, b"question")]


def test_a_request_that_waits_for_its_window_ends_with_its_last_data() -> None:
    conversation = Conversation()
    conversation.server(http2.settings(INITIAL_WINDOW_SIZE=3))
    conversation.frames()
    conversation.http2.request(HEAD, (b"quest", b"ion"))
    assert conversation.frames() == [(HEADERS, END_HEADERS, 1, b"\x20" + HEAD), (DATA, 0, 1, b"que")]
    conversation.server(http2.window_update(1, 100))
    assert conversation.frames() == [(DATA, END_STREAM, 1, b"stion")]


@given(st.lists(st.integers(0, len(REPLY)), max_size=6))
def test_a_reply_is_understood_however_it_is_cut(cuts: list[int]) -> None:
    conversation = asked(b"question")
    ends = [*sorted(cuts), len(REPLY)]
    conversation.server(*(REPLY[start:end] for start, end in zip([0, *ends], ends, strict=False)))
    assert conversation.heard == HEARD
    assert not conversation.http2.streams


PIECES = [
    frame(HEADERS, END_HEADERS, 1, b"\x88"),
    frame(HEADERS, END_HEADERS, 3, b"\x88"),
    frame(HEADERS, END_HEADERS, 2**31 + 1, b"\x88"),
    frame(HEADERS, END_HEADERS | 0x8, 1, b"\0\x88"),
    http2.data(b"reply"),
    http2.data(b"reply", stream=3),
    http2.data(b"reply", end=True),
    frame(DATA, 0x8, 1, b"\x03" + bytes(9)),
    frame(DATA, 0, 1, b""),
    frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88"),
    frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88"),
    http2.window_update(1, 5),
    http2.reset(8),
]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.booleans())
def test_frames_in_one_piece_mean_what_they_mean_one_by_one(pieces: list[bytes], is_sent: bool) -> None:
    together, apart = (asked(b"question" if is_sent else bytes(100_000)) for _ in range(2))
    for conversation in (together, apart):
        conversation.http2.request(HEAD, (b"another",))
        conversation.frames()
    together.server(b"".join(pieces))
    apart.server(*(bytes([octet]) for octet in b"".join(pieces)))
    assert together.heard == apart.heard
    assert together.frames() == apart.frames()
    assert together.http2.violation == apart.http2.violation
    assert together.http2.streams.keys() == apart.http2.streams.keys()


def test_a_reply_before_the_request_is_complete_ends_the_sending() -> None:
    conversation = asked(bytes(100_000))
    conversation.frames()
    conversation.server(REPLY)
    assert conversation.heard == HEARD
    assert conversation.frames() == [(RST_STREAM, 0, 1, bytes(4))]
    assert not conversation.http2.waiting


def test_windows_of_what_was_sent_at_once_may_be_widened_beyond_the_largest() -> None:
    conversation = Conversation()
    conversation.server(http2.settings(INITIAL_WINDOW_SIZE=2**31 - 1))
    conversation.http2.request(HEAD, (b"question",))
    conversation.server(http2.window_update(1, 8), http2.settings(INITIAL_WINDOW_SIZE=100), REPLY)
    assert conversation.http2.violation == ""
    assert conversation.heard[-3:] == HEARD


def test_a_window_of_the_connection_is_widened_before_it_is_used_up() -> None:
    conversation = asked(b"question")
    conversation.http2._room = used = LEAST_ROOM + 4
    conversation.server(REPLY)
    *_, update = conversation.frames()
    assert update == (http2.WINDOW_UPDATE, 0, 0, (2**31 - 1 - used + len(b"reply")).to_bytes(4))


def test_what_comes_for_a_cancelled_request_is_dropped() -> None:
    conversation = asked(b"question")
    conversation.http2.cancel(conversation.http2.streams[1])
    assert (RST_STREAM, 0, 1, int(ErrorCode.CANCEL).to_bytes(4)) in conversation.frames()
    conversation.server(REPLY)
    assert (conversation.heard, conversation.http2.violation) == ([], "")


def test_going_away_refuses_the_streams_that_it_does_not_count() -> None:
    conversation = asked(b"one")
    conversation.http2.request(HEAD, (b"two",))
    conversation.server(http2.go_away(1), REPLY)
    assert conversation.heard == ["gone 0 [3]", *HEARD]


def test_more_streams_are_told_as_such() -> None:
    conversation = Conversation()
    for most, has_room in ((1, True), (0, False), (2, True)):
        conversation.server(http2.settings(MAX_CONCURRENT_STREAMS=most))
        assert (len(conversation.http2.streams) < conversation.http2.peer.most_streams) == has_room
    assert conversation.heard == ["settings False", "settings False", "settings True"]


@pytest.mark.parametrize(
    ("octets", "violation"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP/1, not HTTP/2"),
        (frame(DATA, 0, 1, bytes(2**14 + 1)), "a frame of 16385 bytes, at most 16384 are allowed"),
        (frame(DATA, 0, 3, b"x"), "DATA of stream 3, which was never opened"),
        pytest.param(
            http2.head(http2.OK) + frame(DATA, 0, 1, bytes(2**14)) * (WINDOW // 2**14) + REPLY,
            "it sent more than the window of a stream",
            id="a whole reply beyond the window",
        ),
        (frame(SETTINGS, 0, 0, bytes(7)), "SETTINGS of 7 bytes, expected a multiple of 6"),
    ],
)
def test_a_server_that_breaks_a_rule_is_left(octets: bytes, violation: str) -> None:
    conversation = asked(b"question")
    conversation.server(octets)
    assert conversation.http2.violation == violation
    *_, last = conversation.frames()
    assert last == (GOAWAY, 0, 0, bytes(7) + bytes([ErrorCode.PROTOCOL_ERROR]))


def test_a_server_that_refuses_the_connection_is_left_and_says_why() -> None:
    server: Http2Server[str] = Http2Server(RequestHeads(1000, lambda fields, by_name: "", ""))
    server.refuse("no\tmore \x1b[31mcalls")
    (go_away,) = server.data_to_send()
    refused = "the server refused it by GOAWAY(ENHANCE_YOUR_CALM)"
    for octets, violation in (
        (bytes(go_away), f"{refused}: nomore [31mcalls"),
        (frame(GOAWAY, 0, 0, bytes(7) + b"\x0b"), refused),
        (frame(GOAWAY, 0, 0, bytes(7) + b"\x0b" + b"x" * 9000), f"{refused}: {'x' * 200}"),
        (frame(GOAWAY, 0, 0, bytes(7)), "a frame of type 7, expected type 4"),
        (frame(PING, 0, 0, bytes(8)), "a frame of type 6, expected type 4"),
    ):
        client = Http2Client(10_000)
        client.receive(memoryview(octets), 0.0)
        assert (client.violation, client.is_closed) == (violation, True)


def test_a_server_that_asks_and_does_not_read_is_left() -> None:
    conversation = Conversation()
    ping = frame(PING, 0, 0, bytes(8))
    conversation.http2.is_paused = True
    conversation.server(ping * 3000)
    assert not conversation.http2.is_closed
    conversation.server(ping * 1000)
    assert conversation.http2.violation == "it does not read the responses to its frames"


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=20))))
def test_no_frames_raise(frames: list[tuple[int, int, int, bytes]]) -> None:
    conversation = asked(bytes(100_000))
    conversation.server(*(frame(*each) for each in frames))
    conversation.frames()
