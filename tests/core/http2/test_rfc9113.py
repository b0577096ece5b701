"""What RFC 9113 demands of a server that gets wrong frames, section by section: literal frames in, and how the stream
or the connection ends. Most of the list is that of h2spec's public cases, which test the older RFC 7540.

Where h2spec expects something else, it is because of what the newer RFC permits, or of what the port serves:

- **Section 5.1, closed streams.** Frames for a stream that this side has reset are dropped: the client may have sent
  them before it knew. A request that is no gRPC is answered and reset at once, so what follows it, such as a second
  HEADERS without END_STREAM (8.1) or a content-length that does not fit (8.1.1), is dropped in the same way.
- **Section 5.3.1, a stream that depends on itself.** RFC 9113 has no priorities any more; they are read over.
- **Sections 6.9.1 and 6.9.2, windows of one byte.** h2spec waits for DATA in the reply to `GET /`; a gRPC port has
  none to give. `test_server` has the windows.
"""

import pytest

from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.server import WINDOW
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, frame
from tests.core.http2.conversation import ECHO, LIMIT, OPENING, Conversation, fields, request

PRIORITY, PADDED, PRIORITIZED = 2, 8, 32
OPEN = http2.head(*fields())
OVER = request()
"""A request whose reply is still to come."""


def setting(name: int, amount: int) -> bytes:
    return frame(SETTINGS, 0, 0, name.to_bytes(2) + amount.to_bytes(4))


def sized(*lengths: bytes) -> bytes:
    return http2.head(*fields(ECHO, *((b"content-length", each) for each in lengths)))


CONNECTION_ERRORS = {
    "4.2 DATA above the largest frame": (OPEN + frame(DATA, 0, 1, bytes(2**14 + 1)), "FRAME_SIZE_ERROR"),
    "4.2 HEADERS above the largest frame": (frame(HEADERS, END_HEADERS, 1, bytes(2**14 + 1)), "FRAME_SIZE_ERROR"),
    "4.3 a header block that is none": (frame(HEADERS, END_HEADERS, 1, b"\x7f\xff\xff"), "COMPRESSION_ERROR"),
    "4.3 an index that is none": (frame(HEADERS, END_HEADERS, 1, b"\xfe"), "COMPRESSION_ERROR"),
    "4.3 a header block that is cut": (frame(HEADERS, END_HEADERS, 1, b"\0\x05ab"), "COMPRESSION_ERROR"),
    "4.3 a block that is too large adds to a table": (
        frame(HEADERS, 0, 1, bytes(LIMIT + 1)) + frame(CONTINUATION, END_HEADERS, 1, b""),
        "COMPRESSION_ERROR",
    ),
    "5.1 idle: DATA": (http2.data(b"x"), "PROTOCOL_ERROR"),
    "5.1 idle: RST_STREAM": (http2.reset(8), "PROTOCOL_ERROR"),
    "5.1 idle: WINDOW_UPDATE": (http2.window_update(1, 100), "PROTOCOL_ERROR"),
    "5.1 idle: CONTINUATION": (frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"),
    "5.1 closed by the client's reset: DATA": (OPEN + http2.reset(8) + http2.data(b"x"), "STREAM_CLOSED"),
    "5.1 closed by the client's reset: HEADERS": (OPEN + http2.reset(8) + OPEN, "STREAM_CLOSED"),
    "5.1 closed by the client's reset: CONTINUATION": (
        OPEN + http2.reset(8) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        "PROTOCOL_ERROR",
    ),
    "5.1.1 an even stream": (request(2), "PROTOCOL_ERROR"),
    "5.1.1 a lower stream than the last": (request(5) + request(3), "PROTOCOL_ERROR"),
    "6.1 DATA of stream 0": (frame(DATA, END_STREAM, 0, b"x"), "PROTOCOL_ERROR"),
    "6.1 more padding than DATA": (OPEN + frame(DATA, PADDED, 1, b"\x09abc"), "PROTOCOL_ERROR"),
    "6.1 no room for the length of the padding": (OPEN + frame(DATA, PADDED, 1, b""), "FRAME_SIZE_ERROR"),
    "6.2 HEADERS of stream 0": (frame(HEADERS, END_HEADERS, 0, http2.block(*fields())), "PROTOCOL_ERROR"),
    "6.2 more padding than HEADERS": (frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff\x82"), "PROTOCOL_ERROR"),
    "6.2 half a priority": (frame(HEADERS, END_HEADERS | PRIORITIZED, 1, bytes(3)), "FRAME_SIZE_ERROR"),
    "6.2 padding within the priority": (
        frame(HEADERS, END_HEADERS | PADDED | PRIORITIZED, 1, b"\x01" + bytes(5)),
        "PROTOCOL_ERROR",
    ),
    "6.2 another stream's HEADERS in between": (
        frame(HEADERS, 0, 1, http2.block(*fields())) + http2.head(*fields(), stream=3),
        "PROTOCOL_ERROR",
    ),
    "6.3 PRIORITY of stream 0": (frame(PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
    "6.4 RST_STREAM of stream 0": (frame(RST_STREAM, 0, 0, bytes(4)), "PROTOCOL_ERROR"),
    "6.4 RST_STREAM of 3 bytes": (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), "FRAME_SIZE_ERROR"),
    "6.5 an acknowledgement with values": (frame(SETTINGS, 1, 0, bytes(6)), "FRAME_SIZE_ERROR"),
    "6.5 SETTINGS of a stream": (frame(SETTINGS, 0, 1, bytes(6)), "PROTOCOL_ERROR"),
    "6.5 SETTINGS of 3 bytes": (frame(SETTINGS, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    "6.5.2 ENABLE_PUSH of 2": (setting(2, 2), "PROTOCOL_ERROR"),
    "6.5.2 INITIAL_WINDOW_SIZE above the largest": (setting(4, 2**31), "FLOW_CONTROL_ERROR"),
    "6.5.2 MAX_FRAME_SIZE below the least": (setting(5, 2**14 - 1), "PROTOCOL_ERROR"),
    "6.5.2 MAX_FRAME_SIZE above the largest": (setting(5, 2**24), "PROTOCOL_ERROR"),
    "6.7 PING of a stream": (frame(http2.PING, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "6.7 PING of 6 bytes": (frame(http2.PING, 0, 0, bytes(6)), "FRAME_SIZE_ERROR"),
    "6.8 GOAWAY of a stream": (frame(http2.GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "6.8 GOAWAY of 4 bytes": (frame(http2.GOAWAY, 0, 0, bytes(4)), "FRAME_SIZE_ERROR"),
    "6.9 WINDOW_UPDATE by 0": (http2.window_update(0, 0), "PROTOCOL_ERROR"),
    "6.9.2 SETTINGS that make a window too large": (
        OPEN + http2.window_update(1, 1) + setting(4, 2**31 - 1),
        "FLOW_CONTROL_ERROR",
    ),
    "6.9 WINDOW_UPDATE of 3 bytes": (frame(http2.WINDOW_UPDATE, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    "6.9.1 a window above the largest": (http2.window_update(0, 2**31 - 1) * 2, "FLOW_CONTROL_ERROR"),
    "6.10 CONTINUATION of stream 0": (
        frame(HEADERS, 0, 1, b"\x82") + frame(CONTINUATION, END_HEADERS, 0, b"\x86"),
        "PROTOCOL_ERROR",
    ),
    "6.10 CONTINUATION behind a block": (OPEN + frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"),
    "6.10 DATA in a header block": (frame(HEADERS, 0, 1, b"\x82") + http2.data(b"x"), "PROTOCOL_ERROR"),
    "6.10 PING in a header block": (frame(HEADERS, 0, 1, b"") + frame(http2.PING, 0, 0, bytes(8)), "PROTOCOL_ERROR"),
    "6.10 a header block without an end": (
        frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(2**14)) * 20,
        "PROTOCOL_ERROR",
    ),
    "8.4 PUSH_PROMISE of a client": (frame(5, END_HEADERS, 1, bytes(4) + b"\x82"), "PROTOCOL_ERROR"),
}
"""What the client sends after its preface and SETTINGS, and the code of the GOAWAY that it gets."""

STREAM_ERRORS = {
    "5.1 half-closed: DATA": (OVER + http2.data(b"y"), "STREAM_CLOSED"),
    "5.1 half-closed: HEADERS": (OVER + OPEN, "STREAM_CLOSED"),
    "6.3 PRIORITY of 4 bytes": (OPEN + frame(PRIORITY, 0, 1, bytes(4)), "FRAME_SIZE_ERROR"),
    "6.9 WINDOW_UPDATE by 0": (OPEN + http2.window_update(1, 0), "PROTOCOL_ERROR"),
    "6.9.1 a window above the largest": (OPEN + http2.window_update(1, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "6.9.1 beyond the window": (OPEN + frame(DATA, 0, 1, bytes(2**14)) * (WINDOW // 2**14 + 1), "FLOW_CONTROL_ERROR"),
    "8.1 trailers without an end": (OPEN + http2.head((b"x", b"y")), "PROTOCOL_ERROR"),
    "8.1 a second HEADERS without an end": (OPEN + OPEN, "PROTOCOL_ERROR"),
    "8.1 a pseudo-header in trailers": (OPEN + http2.head((b":method", b"POST"), end=True), "PROTOCOL_ERROR"),
    "8.2 a name in upper case": (http2.head(*fields(ECHO, (b"X-Up", b"1"))), "PROTOCOL_ERROR"),
    "8.2 a name in upper case in trailers": (OPEN + http2.head((b"X-Y", b"z"), end=True), "PROTOCOL_ERROR"),
    "8.2.1 a line break in trailers": (OPEN + http2.head((b"x", b"a\r\nb"), end=True), "PROTOCOL_ERROR"),
    "8.2.1 a line break": (http2.head(*fields(ECHO, (b"x", b"a\r\nb"))), "PROTOCOL_ERROR"),
    "8.2.2 a header of connections": (http2.head(*fields(ECHO, (b"connection", b"close"))), "PROTOCOL_ERROR"),
    "8.2.2 another te": (http2.head(*fields()[:4], (b"te", b"gzip"), http2.CONTENT_TYPE), "PROTOCOL_ERROR"),
    "8.3 a pseudo-header that is not a request's": (http2.head((b":status", b"200"), *fields()), "PROTOCOL_ERROR"),
    "8.3 a pseudo-header twice": (http2.head(*fields()[:1], *fields()), "PROTOCOL_ERROR"),
    "8.3 a pseudo-header behind others": (http2.head(*fields()[1:], fields()[0]), "PROTOCOL_ERROR"),
    "8.3.1 no path": (http2.head(*fields()[:2], *fields()[3:]), "PROTOCOL_ERROR"),
    "8.1.1 fewer data than content-length": (sized(b"7") + http2.data(b"x", end=True), "PROTOCOL_ERROR"),
    "8.1.1 more data than content-length": (sized(b"5") + http2.data(b"x", end=True), "PROTOCOL_ERROR"),
    "8.1.1 more data in several frames": (
        sized(b"7") + http2.data(b"x") + frame(DATA, END_STREAM, 1, b"yz"),
        "PROTOCOL_ERROR",
    ),
    "8.1.1 no data": (http2.head(*fields(ECHO, (b"content-length", b"1")), end=True), "PROTOCOL_ERROR"),
    "8.1.1 trailers before all data": (sized(b"9") + http2.data(b"x") + http2.head(end=True), "PROTOCOL_ERROR"),
    "8.1.1 a content-length that is no number": (sized(b"+6"), "PROTOCOL_ERROR"),
    "8.1.1 two lengths": (sized(b"6", b"7"), "PROTOCOL_ERROR"),
}
"""What the client sends, and the code of the RST_STREAM of stream 1."""


@pytest.mark.parametrize(("octets", "code"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS)
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_connection_error_is_told_by_its_code(
    conversation: Conversation, octets: bytes, code: str, step: int
) -> None:
    conversation.client(*(octets[at : at + step] for at in range(0, len(octets), step)))
    assert ErrorCode(conversation.closed_with()[0]).name == code


@pytest.mark.parametrize(("octets", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS)
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_stream_error_is_told_by_its_code_and_the_connection_goes_on(
    conversation: Conversation, octets: bytes, code: str, step: int
) -> None:
    conversation.client(*(octets[at : at + step] for at in range(0, len(octets), step)))
    resets = [payload for kind, _, stream, payload in conversation.frames() if (kind, stream) == (RST_STREAM, 1)]
    assert [ErrorCode(int.from_bytes(payload)).name for payload in resets] == [code]
    assert not conversation.http2.streams
    conversation.client(request(7))
    assert conversation.said[-2] == "7 begun /toy.Toy/Echo"


@pytest.mark.parametrize("size", [0, 1, 200])
def test_content_length_that_fits_is_no_error_the_second_time_either(size: int) -> None:
    """A client's second request has the block of the first one, which is remembered."""
    conversation = Conversation(opened=False)
    conversation.client(OPENING + frame(SETTINGS, 1, 0, b""))
    block = http2.block(*fields(ECHO, (b"content-length", b"%d" % (size + 5))))
    for number in (1, 3, 5):
        begun = frame(HEADERS, END_HEADERS, number, (b"\x20" if number == 1 else b"") + block)
        conversation.client(begun + http2.data(bytes(size), end=True, stream=number))
        assert conversation.said[-1].endswith("end")
    conversation.client(frame(HEADERS, END_HEADERS, 7, block) + http2.data(bytes(size + 1), end=True, stream=7))
    assert conversation.said[-2:] == ["7 begun /toy.Toy/Echo", "7 reset"]
    conversation.client(request(9))
    assert conversation.said[-1].startswith("9 b")


@pytest.mark.parametrize(
    "late",
    [
        http2.data(b"y", end=True),
        http2.head((b"x", b"y"), end=True),
        http2.head(*[(b"x", bytes(60))] * 120, end=True),
        frame(SETTINGS, 1, 0, b"") + frame(HEADERS, END_HEADERS, 1, b"\x20") + frame(HEADERS, END_HEADERS, 1, b"\x80"),
    ],
    ids=["DATA", "HEADERS", "HEADERS that are too large", "HEADERS that nothing depends on, and that are invalid"],
)
def test_frames_of_a_stream_that_the_server_has_reset_are_dropped(conversation: Conversation, late: bytes) -> None:
    """Section 5.1: the client may have sent them before it knew."""
    conversation.client(OPEN)
    conversation.http2.reset(conversation.streams[1], ErrorCode.CANCEL)
    conversation.client(late)
    assert conversation.said == ["1 begun /toy.Toy/Echo"]
    assert not conversation.http2.is_closed


def test_frames_of_a_malformed_request_are_dropped(conversation: Conversation) -> None:
    conversation.client(http2.head(*fields(ECHO, (b"Upper", b""))) + http2.data(b"x", end=True))
    assert not conversation.http2.is_closed


def test_data_of_an_answered_request_end_the_connection(conversation: Conversation) -> None:
    conversation.client(OVER)
    conversation.http2.respond(conversation.streams[1], b"\x88", (b"x",), http2.block((b"grpc-status", b"0")))
    conversation.frames()
    conversation.client(http2.window_update(1, 5) + http2.reset(8))  # these may cross the reply
    assert not conversation.http2.is_closed
    conversation.client(http2.data(b"y"))
    assert conversation.closed_with() == (
        ErrorCode.STREAM_CLOSED,
        "DATA of stream 1, which is closed; the last one opened is 1",
    )
