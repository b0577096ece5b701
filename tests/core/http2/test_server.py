"""The server's side of HTTP/2, frame by frame."""

import itertools
from collections.abc import Callable

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http2 import bounds
from gateway.core.http2.connection import LEAST_ROOM, Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.hpack import NO_TABLE
from gateway.core.http2.server import MAX_STREAMS, WINDOW, Http2Server
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame
from tests.core.http2.conversation import ECHO, LIMIT, OPENING, PING_INTERVAL, Conversation, fields, request

PRIORITY, PUSH_PROMISE = 2, 5
ACK = frame(SETTINGS, 1, 0, b"")
OPEN = http2.head(*fields())
MESSAGE = b"\0\0\0\0\x01x"
HEAD = b"\x88" + http2.block(http2.CONTENT_TYPE)
TRAILERS = http2.block((b"grpc-status", b"0"))


def received(stream: int = 1, message: bytes = MESSAGE) -> list[str]:
    """What is said of a request with this message."""
    return [f"{stream} begun /toy.Toy/Echo", f"{stream} {message!r} end"]


# What the client sends after the preface, and what is made of it.
GOOD = {
    "a request": (request(), received()),
    "two of them": (request() + request(3, b""), received() + received(3, bytes(5))),
    "its end in a frame of its own": (OPEN + http2.data(b"x") + frame(DATA, END_STREAM, 1, b""), received()),
    "without a message": (http2.head(*fields(), end=True), received(message=b"")),
    "trailers": (OPEN + http2.head((b"x", b"y"), end=True), received(message=b"")),
    "trailers that are too large": (
        OPEN + http2.data(b"x") + http2.head(*[(b"x", bytes(60))] * 120, end=True),
        [*received()[:1], f"1 {MESSAGE!r}", "1 b'' end"],
    ),
    "padding and priority": (
        frame(HEADERS, END_HEADERS | 0x8 | 0x20, 1, b"\x02" + bytes(5) + http2.block(*fields()) + bytes(2))
        + frame(DATA, END_STREAM | 0x8, 1, b"\x03" + MESSAGE + bytes(3)),
        received(),
    ),
    "a head in pieces": (
        frame(HEADERS, 0, 1, http2.block(*fields())[:10])
        + frame(http2.CONTINUATION, 0, 1, b"")
        + frame(http2.CONTINUATION, END_HEADERS, 1, http2.block(*fields())[10:]),
        ["1 begun /toy.Toy/Echo"],
    ),
    "a cancel": (OPEN + http2.reset(8), ["1 begun /toy.Toy/Echo", "1 reset"]),
    "frames of unknown types, priorities, pings and settings in between": (
        frame(0x42, 0xFF, 7, b"what") + frame(PRIORITY, 0, 9, bytes(5)) + frame(PING, 0, 0, bytes(8)) + ACK + request(),
        received(),
    ),
    "a window widened in between": (OPEN + http2.window_update(1, 5) + http2.data(b"x", end=True), received()),
    "a path that is not UTF-8": (http2.head(*fields(b"/\xff\xfe")), ["1 begun /\xff\xfe"]),
    "more metadata than the limit": (
        frame(HEADERS, 0, 1, b"\x20" + http2.block(*fields(), *([(b"x", bytes(200))] * 60))[:10_000])
        + frame(http2.CONTINUATION, END_HEADERS, 1, bytes(10_000)),
        ["1 begun too large"],
    ),
}


@pytest.mark.parametrize(("octets", "said"), GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("way", ["whole", "byte by byte", "with a tail"])
def test_what_a_client_says_is_understood_however_it_is_cut(octets: bytes, said: list[str], way: str) -> None:
    conversation = Conversation(opened=False)
    sent = OPENING + octets + (request(101) if way == "with a tail" else b"")
    conversation.client(*([bytes([octet]) for octet in sent] if way == "byte by byte" else [sent]))
    assert with_ends(conversation.said) == with_ends(said + (received(101) if way == "with a tail" else []))
    assert not conversation.http2.is_closed


@given(st.lists(st.integers(0, 400), max_size=6))
def test_any_cuts_mean_the_same(cuts: list[int]) -> None:
    whole = OPENING + request() + http2.window_update(0, 5) + request(3, bytes(200))
    ends = [*sorted(cuts), len(whole)]
    conversation = Conversation(opened=False)
    conversation.client(*(whole[start:end] for start, end in zip([0, *ends], ends, strict=False)))
    assert [each.split(" ")[:2] for each in conversation.said][::2] == [["1", "begun"], ["3", "begun"]]


PIECES = [
    OPEN,
    http2.head(*fields(), stream=3),
    http2.head(*fields(), stream=2),
    http2.head(*fields(), stream=5, end=True),
    http2.head(*fields(ECHO, (b"X-Up", b"1"))),
    frame(HEADERS, END_HEADERS, 1, b"\xfe"),
    frame(HEADERS, END_HEADERS | 0x8, 1, b"\x02" + http2.block(*fields()) + bytes(2)),
    frame(HEADERS, END_HEADERS, 2**31 + 3, http2.block(*fields())),
    http2.data(b"x", end=True),
    http2.data(b"x", end=True, stream=3),
    http2.head(*fields(), stream=2) + http2.data(b"x", end=True, stream=2),
    frame(HEADERS, END_HEADERS, 2**31 + 3, http2.block(*fields())) + frame(DATA, END_STREAM, 2**31 + 3, MESSAGE),
    http2.data(b"x"),
    frame(DATA, END_STREAM | 0x8, 1, b"\x03" + MESSAGE + bytes(3)),
    frame(DATA, END_STREAM, 1, b""),
    http2.window_update(1, 5),
    http2.window_update(1, 0),
    http2.window_update(0, 5),
    http2.window_update(0, 0),
    http2.window_update(3, 2**31 - 1),
    frame(http2.WINDOW_UPDATE, 0, 1, bytes(3)),
    http2.reset(8),
    frame(PING, 0, 0, bytes(8)),
]
"""Frames that make whole requests in one order, and mistakes in others."""


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_frames_in_one_piece_mean_what_they_mean_one_by_one(pieces: list[bytes]) -> None:
    check_that_one_piece_means_the_same(b"".join(pieces))


@pytest.mark.parametrize("of_connection", [0, 5, 2**31 - 2**16, 2**31 - 1, 2**31 + 5])
@pytest.mark.parametrize("of_stream", [0, 5, 2**31 - 2**16, 2**31 - 1, 2**31 + 5])
def test_windows_widened_within_and_behind_a_request_are_as_wide_as_one_by_one(
    of_stream: int, of_connection: int
) -> None:
    whole = OPEN + http2.window_update(1, of_stream) + http2.data(b"x", end=True)
    check_that_one_piece_means_the_same(whole + http2.window_update(0, of_connection) + request(3))


def check_that_one_piece_means_the_same(octets: bytes) -> None:
    together, apart = Conversation(), Conversation()
    together.client(octets)
    apart.client(*(bytes([octet]) for octet in octets))
    assert with_ends(together.said) == with_ends(apart.said)
    assert together.frames() == apart.frames()
    assert together.http2.violation == apart.http2.violation
    assert together.http2._window == apart.http2._window
    windows = [{number: each.window for number, each in side.http2.streams.items()} for side in (together, apart)]
    assert windows[0] == windows[1]


def with_ends(said: list[str]) -> list[str]:
    """Where an empty frame ends a stream, the data right before it have the end."""
    found: list[str] = []
    for each in said:
        number, _, rest = each.partition(" ")
        if rest == "b'' end" and found and found[-1].startswith(f"{number} b'"):
            found[-1] += " end"
        else:
            found.append(each)
    return found


@pytest.mark.parametrize(
    "octets",
    [b"\x16\x03\x01 a client that speaks TLS", http2.PREFACE + request()],
    ids=["no preface", "no settings"],
)
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_connection_begins_with_the_preface_and_settings(octets: bytes, step: int) -> None:
    conversation = Conversation(opened=False)
    conversation.client(*(octets[at : at + step] for at in range(0, len(octets), step)))
    assert conversation.closed_with()[0] == ErrorCode.PROTOCOL_ERROR


def test_who_speaks_http1_is_told_so_in_it() -> None:
    conversation = Conversation(opened=False)
    conversation.client(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
    (reply,) = conversation.http2.data_to_send()
    head, _, body = bytes(reply).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 505 ")
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert head.endswith(b"\r\nConnection: close")
    assert b"HTTP/2" in body


FLOODS = {
    "empty DATA": frame(DATA, 0, 1, b""),
    "DATA of a byte": frame(DATA, 0, 1, b"\0"),
    "SETTINGS": frame(SETTINGS, 0, 0, b""),
    "acknowledgements": ACK,
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)),
    "WINDOW_UPDATE": http2.window_update(1, 1),
    "WINDOW_UPDATE of the connection": http2.window_update(0, 1),
    "unknown frames": frame(0x42, 0, 0, b""),
    "PING acknowledgements": frame(PING, 1, 0, bytes(8)),
    "resets of what is over": http2.reset(8),
    "GOAWAY": frame(GOAWAY, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("octets", FLOODS.values(), ids=FLOODS)
def test_a_flood_is_taken_in_turns_and_ends(conversation: Conversation, octets: bytes) -> None:
    conversation.client(OPEN)
    flood = octets * 20_000
    taken = conversation.http2.receive(memoryview(flood), 0.0)
    assert taken <= bounds.FRAMES * len(octets)
    assert conversation.http2.has_more
    conversation.client(flood[taken:])
    assert conversation.closed_with()[0] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("octets", FLOODS.values(), ids=FLOODS)
def test_some_of_it_now_and_then_is_no_flood(conversation: Conversation, octets: bytes) -> None:
    conversation.client(OPEN)
    for _ in range(200):
        conversation.now += 10
        conversation.client(octets * 100)
    assert not conversation.http2.is_closed


def test_clients_that_are_answered_may_ping_and_update_windows_as_they_like(conversation: Conversation) -> None:
    for number in range(1, 20_001, 2):
        updates = http2.window_update(0, 100) + frame(PING, 0, 0, bytes(8)) + http2.window_update(number, 1)
        conversation.client(request(number) + updates)
        conversation.http2.respond(conversation.streams[number], HEAD, (b"x",), TRAILERS)
        conversation.frames()
    assert not conversation.http2.is_closed


RESETS: dict[str, Callable[[int], bytes]] = {
    "by the client": lambda number: http2.head(*fields(), stream=number) + http2.reset(8, number),
    "by the server, made to do so": lambda number: (
        http2.head(*fields(), stream=number) + http2.window_update(number, 0)
    ),
    "of what is malformed": lambda number: http2.head(*fields(ECHO, (b"Up", b"")), stream=number),
}


@pytest.mark.parametrize("one", RESETS.values(), ids=RESETS)
def test_resets_without_an_end_end_the_connection(conversation: Conversation, one: Callable[[int], bytes]) -> None:
    for number in range(1, 20_001, 2):
        if not conversation.http2.is_closed:
            conversation.client(one(number))
    assert conversation.closed_with() == (ErrorCode.ENHANCE_YOUR_CALM, "too many streams were reset")
    assert len(conversation.said) < 2_000


def test_streams_beyond_the_most_are_refused(conversation: Conversation) -> None:
    conversation.client(*(http2.head(*fields(), stream=number) for number in range(1, 2 * MAX_STREAMS + 1, 2)))
    refused = 2 * MAX_STREAMS + 1
    conversation.client(http2.head(*fields(), stream=refused))
    assert (RST_STREAM, 0, refused, int(ErrorCode.REFUSED_STREAM).to_bytes(4)) in conversation.frames()
    conversation.client(http2.reset(8, 1), http2.head(*fields(), stream=refused + 2))
    assert conversation.said[-1] == f"{refused + 2} begun /toy.Toy/Echo"


def test_a_client_need_not_know_that_cancelled_requests_still_run_unless_they_are_as_many_again(
    conversation: Conversation,
) -> None:
    odd = itertools.count(1, 2)
    for number in itertools.islice(odd, MAX_STREAMS):
        conversation.client(request(number), http2.reset(8, number))
        conversation.http2.still_running += 1
    conversation.client(*map(request, itertools.islice(odd, MAX_STREAMS)))
    assert RST_STREAM not in {kind for kind, _ in conversation.kinds()}
    conversation.client(http2.reset(8, last := 4 * MAX_STREAMS - 1))
    conversation.http2.still_running += 1
    conversation.client(request(refused := last + 2))
    assert conversation.frames() == [(RST_STREAM, 0, refused, int(ErrorCode.REFUSED_STREAM).to_bytes(4))]
    conversation.http2.still_running -= 1
    conversation.client(request(refused + 2))
    assert conversation.said[-1] == f"{refused + 2} {MESSAGE!r} end"


def test_a_reply_is_a_head_data_and_trailers(conversation: Conversation) -> None:
    conversation.client(request())
    conversation.http2.respond(conversation.streams[1], HEAD, (b"re", b"ply"), TRAILERS)
    assert conversation.frames() == [
        (HEADERS, END_HEADERS, 1, NO_TABLE + HEAD),
        (DATA, 0, 1, b"reply"),
        (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
    ]
    assert not conversation.http2.streams


@pytest.mark.parametrize("way", ["a reply", "a head", "an error"])
def test_the_first_block_says_that_there_is_no_table_as_clients_with_a_smaller_one_insist(way: str) -> None:
    conversation, decoder = Conversation(), hpack.Decoder()
    conversation.client(http2.settings(HEADER_TABLE_SIZE=0) + request() + request(3))
    decoder.max_allowed_table_size = 0
    conversation.frames()
    for stream in list(conversation.streams.values()):
        match way:
            case "a reply":
                conversation.http2.respond(stream, HEAD, (b"reply",), TRAILERS)
            case "a head":
                conversation.http2.send_head(stream, HEAD)
                conversation.http2.send_end(stream, TRAILERS)
            case _:
                conversation.http2.send_end(stream, HEAD + TRAILERS)
    blocks = [block for kind, _, _, block in conversation.frames() if kind == HEADERS]
    found = [decoder.decode(block, raw=True) for block in blocks]
    told = [(b":status", b"200"), http2.CONTENT_TYPE, (b"grpc-status", b"0")]
    assert [field for fields in found for field in fields] == told * 2
    assert [block.startswith(NO_TABLE) for block in blocks] == [True, *[False] * (len(blocks) - 1)]


def test_long_trailers_of_a_reply_go_on_in_further_frames(conversation: Conversation) -> None:
    conversation.client(request())
    long = TRAILERS * 2000
    conversation.http2.respond(conversation.streams[1], HEAD, (b"re", b"ply"), long)
    first, data, *blocks = conversation.frames()
    assert first == (HEADERS, END_HEADERS, 1, NO_TABLE + HEAD)
    assert data == (DATA, 0, 1, b"reply")
    assert [each[:3] for each in blocks] == [(HEADERS, END_STREAM, 1), (http2.CONTINUATION, END_HEADERS, 1)]
    assert b"".join(payload for *_, payload in blocks) == long


def test_a_reply_before_the_end_of_the_request_asks_the_client_to_stop(conversation: Conversation) -> None:
    conversation.client(OPEN + http2.data(b"x", size=1_000_000))
    conversation.http2.send_end(conversation.streams[1], HEAD + TRAILERS)
    ended, reset = conversation.frames()
    assert ended[:3] == (HEADERS, END_HEADERS | END_STREAM, 1)
    assert reset == (RST_STREAM, 0, 1, bytes(4))
    conversation.client(frame(DATA, 0, 1, bytes(10_000)))
    assert not conversation.http2.is_closed


def test_a_client_that_ends_before_it_is_asked_to_stop_is_not_asked(conversation: Conversation) -> None:
    conversation.client(OPEN)
    conversation.http2.respond(conversation.streams[1], HEAD, (b"reply",), TRAILERS)
    conversation.client(http2.data(b"x", end=True))
    assert conversation.kinds() == [(HEADERS, 1), (DATA, 1), (HEADERS, 1)]
    assert not conversation.http2.streams


CLOSED: dict[str, Callable[[Http2Server[bytes], Stream], None]] = {
    "a reply": lambda http2, stream: http2.respond(stream, HEAD, (b"reply",), TRAILERS),
    "a head": lambda http2, stream: http2.send_head(stream, HEAD),
    "data": lambda http2, stream: http2.send_data(stream, (b"reply",)),
    "an end": lambda http2, stream: http2.send_end(stream, TRAILERS),
    "a reset": lambda http2, stream: http2.reset(stream, ErrorCode.CANCEL),
}


@pytest.mark.parametrize("send", CLOSED.values(), ids=CLOSED)
def test_nothing_is_sent_on_a_stream_that_the_client_has_reset(
    conversation: Conversation, send: Callable[[Http2Server[bytes], Stream], None]
) -> None:
    conversation.client(OPEN + http2.reset(8))
    send(conversation.http2, conversation.streams[1])
    assert conversation.frames() == []


def test_the_end_of_a_stream_waits_for_its_data(conversation: Conversation) -> None:
    conversation.client(http2.settings(INITIAL_WINDOW_SIZE=3) + request())
    conversation.frames()
    stream = conversation.streams[1]
    conversation.http2.send_head(stream, HEAD)
    conversation.http2.send_data(stream, (b"reply",))
    conversation.http2.send_end(stream, TRAILERS)
    assert conversation.frames() == [(HEADERS, END_HEADERS, 1, NO_TABLE + HEAD), (DATA, 0, 1, b"rep")]
    conversation.client(http2.window_update(1, 2))
    assert conversation.frames() == [(DATA, 0, 1, b"ly"), (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS)]
    assert conversation.said == received()


def test_a_reply_waits_for_the_windows_of_the_stream_and_of_the_connection(conversation: Conversation) -> None:
    conversation.client(http2.settings(INITIAL_WINDOW_SIZE=10) + request())
    conversation.frames()
    conversation.http2.respond(conversation.streams[1], HEAD, (bytes(100_000),), TRAILERS)
    assert [len(payload) for kind, _, _, payload in conversation.frames() if kind == DATA] == [10]
    conversation.client(http2.window_update(1, 10))
    assert [len(payload) for kind, _, _, payload in conversation.frames() if kind == DATA] == [10]
    conversation.client(http2.settings(INITIAL_WINDOW_SIZE=1_000_000))
    frames = conversation.frames()
    assert sum(len(payload) for kind, _, _, payload in frames if kind == DATA) == 65_535 - 20
    conversation.client(http2.window_update(0, 1_000_000))
    assert sum(len(payload) for kind, _, _, payload in conversation.frames() if kind == DATA) == 100_000 - 65_535
    assert not conversation.http2.streams


def test_replies_that_wait_take_turns(conversation: Conversation) -> None:
    conversation.client(http2.settings(INITIAL_WINDOW_SIZE=2**30) + request() + request(3))
    conversation.frames()
    for stream in conversation.streams.values():
        conversation.http2.respond(stream, HEAD, (bytes(100_000),), TRAILERS)
    data = [stream for kind, stream in conversation.kinds() if kind == DATA]
    assert data == [1, 3, 1, 3]


def test_windows_are_granted_as_bytes_are_taken(conversation: Conversation) -> None:
    conversation.client(OPEN + frame(DATA, 0, 1, bytes(2**14)) * 40)
    stream = conversation.streams[1]
    conversation.http2.grant(stream, held=40 * 2**14)
    assert (http2.WINDOW_UPDATE, 1) not in conversation.kinds()
    conversation.http2.grant(stream, held=0)
    assert conversation.frames() == [(http2.WINDOW_UPDATE, 0, 1, (40 * 2**14).to_bytes(4))]
    assert stream.room == WINDOW


@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_window_of_the_connection_is_widened_before_it_is_used_up(conversation: Conversation, step: int) -> None:
    conversation.http2._room = LEAST_ROOM + len(MESSAGE) - 1
    octets = request()
    conversation.client(*(octets[at : at + step] for at in range(0, len(octets), step)))
    assert conversation.said == received()
    assert conversation.frames() == [(http2.WINDOW_UPDATE, 0, 0, (2**31 - 1 - LEAST_ROOM + 1).to_bytes(4))]


def test_pings_and_settings_are_answered(conversation: Conversation) -> None:
    conversation.client(frame(PING, 0, 0, b"01234567") + http2.settings(MAX_FRAME_SIZE=2**20))
    assert conversation.frames() == [(PING, 1, 0, b"01234567"), (SETTINGS, 1, 0, b"")]


def test_pings_that_come_rarely_or_between_replies_are_answered_for_good(conversation: Conversation) -> None:
    for _ in range(100):
        conversation.now += PING_INTERVAL
        conversation.client(frame(PING, 0, 0, bytes(8)))
    assert not conversation.http2.is_closed


def test_pings_within_a_call_are_answered_as_often_as_they_come(conversation: Conversation) -> None:
    """A client that looks after an idle stream every second; after the stream the interval holds anew."""
    conversation.client(OPEN)
    for _ in range(100):
        conversation.now += 1.0
        conversation.client(frame(PING, 0, 0, b"01234567"))
        assert conversation.frames() == [(PING, 1, 0, b"01234567")]
    conversation.client(http2.reset(8))
    conversation.client(frame(PING, 0, 0, bytes(8)) * 3)
    assert not conversation.http2.is_closed
    conversation.client(frame(PING, 0, 0, bytes(8)))
    assert conversation.closed_with() == (ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")


@pytest.mark.parametrize("ping_interval", [0.0, PING_INTERVAL])
def test_pings_are_bounded_in_every_case(conversation: Conversation, ping_interval: float) -> None:
    conversation.http2.ping_interval = ping_interval
    if ping_interval:
        conversation.client(OPEN)
    conversation.client(frame(PING, 0, 0, bytes(8)) * 4_000)
    assert not conversation.http2.is_closed
    conversation.client(frame(PING, 0, 0, bytes(8)) * 2_000)
    assert conversation.closed_with() == (ErrorCode.ENHANCE_YOUR_CALM, "too many PING frames")


def test_the_first_frames_announce_what_is_taken() -> None:
    conversation = Conversation(opened=False)
    settings, window = conversation.frames()
    assert settings[:3] == (SETTINGS, 0, 0)
    pairs = [settings[3][at : at + 6] for at in range(0, len(settings[3]), 6)]
    told = {int.from_bytes(pair[:2]): int.from_bytes(pair[2:]) for pair in pairs}
    assert told == {1: 0, 3: MAX_STREAMS, 4: WINDOW, 6: LIMIT}
    assert window == (http2.WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65_535).to_bytes(4))


def test_requests_before_the_client_knows_that_there_is_no_table_may_use_one() -> None:
    def indexed(*pairs: tuple[bytes, bytes]) -> bytes:
        return b"".join(b"\x40" + bytes([len(name)]) + name + bytes([len(text)]) + text for name, text in pairs)

    conversation = Conversation()
    conversation.client(frame(HEADERS, END_HEADERS, 1, indexed(*fields())))
    # the newest entry has the lowest index
    conversation.client(frame(HEADERS, END_HEADERS, 3, bytes(0x80 | 62 + at for at in reversed(range(6)))))
    conversation.client(ACK)
    conversation.client(frame(HEADERS, END_HEADERS, 5, b"\x20" + http2.block(*fields())))
    assert conversation.said == [f"{number} begun /toy.Toy/Echo" for number in (1, 3, 5)]
    conversation.client(frame(HEADERS, END_HEADERS, 7, b"\xbe"))
    assert conversation.closed_with()[0] == ErrorCode.COMPRESSION_ERROR


def test_refused_and_malformed_requests_keep_the_table_right(conversation: Conversation) -> None:
    conversation.client(frame(HEADERS, END_HEADERS, 1, b"\x40\x01X\x01y"))
    conversation.client(http2.head(*fields(), stream=3))
    conversation.client(frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x40\x01a\x01b"))
    conversation.client(frame(HEADERS, END_HEADERS, 5, http2.block(*fields()) + b"\xbe"))
    assert conversation.streams[5].id == 5
    assert not conversation.http2.is_closed


def test_a_small_block_cannot_stand_for_many_fields(conversation: Conversation) -> None:
    entry = b"\x40\x01a\x7f\xb9\x16" + b"a" * 3000
    conversation.client(frame(HEADERS, END_HEADERS, 1, http2.block(*fields()) + entry + b"\xbe" * 4000))
    assert conversation.said == ["1 begun too large"]
    assert not conversation.http2.is_closed


def test_draining_tells_the_client_first_and_refuses_later(conversation: Conversation) -> None:
    conversation.client(request())
    conversation.http2.begin_drain()
    (first, ping) = conversation.frames()
    assert first == (GOAWAY, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4))
    conversation.client(request(3))  # was on the way
    conversation.client(frame(PING, 1, 0, ping[3]))
    assert conversation.frames() == [(GOAWAY, 0, 0, (3).to_bytes(4) + bytes(4))]
    conversation.http2.refuse_new_streams()  # the time for the answer is over
    assert conversation.frames() == []
    conversation.client(request(5))
    assert "5 begun /toy.Toy/Echo" not in conversation.said
    assert not conversation.http2.is_drained
    for stream in conversation.streams.values():
        conversation.http2.respond(stream, HEAD, (b"",), TRAILERS)
    assert conversation.http2.is_drained


@given(st.binary(max_size=300))
def test_no_bytes_raise(octets: bytes) -> None:
    conversation = Conversation()
    conversation.client(octets)
    conversation.frames()


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=20)), max_size=20)
)
def test_no_frames_raise(frames: list[http2.Frame]) -> None:
    conversation = Conversation()
    conversation.client(OPEN, *(frame(*each) for each in frames))
    conversation.frames()
