"""The client side of one HTTP/2 connection, for gRPC backends. The code performs no I/O. `connection` describes how to
use it.

The states of a stream:

    `request`: HEADERS, and DATA as the windows allow
          |
          v          the request's last DATA               END_STREAM of the server
      +---------+ -------------------------> +-----------+ -----------------------> closed
      |  open   |                            |  sending  |
      +---------+                            |  is over  |
          |                                  +-----------+
          +---> closed: END_STREAM of the server, which did not need the whole request: RST_STREAM(NO_ERROR) follows
          +---> closed: RST_STREAM of either side; GOAWAY that does not count the stream

If a server breaks a rule on one stream, this side closes the connection, because it cannot trust any other data from
the server.
"""

from struct import Struct
from typing import NamedTuple, TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.http2 import frames
from gateway.core.http2.connection import (
    BYTES_PER_FRAME,
    EARNED,
    LEAST_ROOM,
    WIDEN_CONNECTION,
    DataReceived,
    DataSent,
    Http2Connection,
    Stream,
    StreamReset,
    new_event,
)
from gateway.core.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENDS,
    EXPECTED,
    HEADER,
    HEADER_SIZE,
    HEADERS,
    LAST_STREAM,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    PREFACE,
    SIZE_SHIFT,
    ErrorCode,
    Setting,
    expected,
    read_expected,
)
from gateway.core.http2.hpack import NO_TABLE
from gateway.core.messages import Buffer

WINDOW = 2**22
"""Maximum number of bytes that a server can send on one stream before this side consumes them."""

_BYTES_PER_CREDIT = 1024
"""Number of sent bytes that earn the server one unit of credit. Servers need this credit because they widen their
windows while they read a request, some in small steps."""

_OPENING = (
    PREFACE
    # `hpack` explains the table size of 0.
    + frames.settings({Setting.HEADER_TABLE_SIZE: 0, Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW_SIZE: WINDOW})
    + WIDEN_CONNECTION
)
_DATA, _TRAILERS = expected(DATA, 0), expected(HEADERS, ENDS)
_GO_AWAY = Struct(">LL")
"""Reads the start of a GOAWAY payload: the last stream, with a reserved bit, and the error code. A human-readable text
follows."""
_MOST_TOLD = 200
"""Maximum number of bytes of a server's GOAWAY text that an error message contains."""
_PING = frames.frame(frames.PING, 0, 0, b"gateway?")


class HeadersReceived(NamedTuple):
    """A header block of a response has arrived: the headers or, if `ends` is True, the trailers."""

    stream: Stream
    block: bytes
    ends: bool


class ReplyReceived(NamedTuple):
    """A complete reply has arrived: its head, all its data (valid until the next `receive`), and its trailers."""

    stream: Stream
    head: bytes
    data: memoryview
    trailers: bytes


class SettingsReceived(NamedTuple):
    """The server has sent its settings. `more_streams` is True if the server allows more streams than before."""

    more_streams: bool


class GoneAway(NamedTuple):
    """The server accepts no more requests on this connection, and has not processed the `refused` streams."""

    code: int
    refused: list[Stream]


Event: TypeAlias = ReplyReceived | HeadersReceived | DataReceived | StreamReset | DataSent | SettingsReceived | GoneAway


class Http2Client(Http2Connection):
    """The client side of a connection.

    `header_limit` is the maximum size of a reply's header fields, in bytes. The event for a larger block contains only
    the block's beginning, which is still longer than the limit."""

    def __init__(self, header_limit: int, now: float = 0.0) -> None:
        super().__init__(_OPENING, WINDOW, header_limit, _BYTES_PER_CREDIT, now)
        self._next = 1
        """The stream number of the next request."""
        self._preamble = NO_TABLE
        self._late_room = 0
        """Number of bytes that can still arrive for cancelled requests, which is the sum of their remaining windows."""

    # Sending.

    def request(self, head: bytes, data: tuple[Buffer, ...], handler: object = None) -> Stream:
        """Send a complete request on a new stream: the header block `head`, and then `data`."""
        number = self._next
        self._next += 2
        stream = self.streams[number] = Stream(number, self.peer.initial_window, WINDOW, self._now)
        stream.handler = handler
        if self._preamble:
            head, self._preamble = self._preamble + head, b""
        size, most = sum(map(len, data)), self.peer.frame_size
        if size <= most and size <= self._window and size <= stream.window and not self.is_paused and len(head) <= most:
            # Most calls: one frame for the head, one for the message, written together.
            self._window -= size
            stream.is_sending = False
            before = HEADER.pack(len(head) << 8 | HEADERS, END_HEADERS, number)
            self.queued.append(b"".join((before, head, HEADER.pack(size << 8 | DATA, END_STREAM, number), *data)))
            self._credit.earn(EARNED + size / _BYTES_PER_CREDIT)
        else:
            self.queued.append(frames.header_frames(number, head, 0, most))
            stream.closing = b""
            self._wait(stream, data)
        return stream

    def cancel(self, stream: Stream) -> None:
        """Drop the reply and inform the server, unless the stream is closed."""
        if not stream.is_closed:
            self._late_room = min(self._late_room + stream.room, MAX_WINDOW)
            self.reset(stream, ErrorCode.CANCEL)

    def ping(self) -> None:
        """Send a ping to check that the connection works."""
        self.queued.append(_PING)

    def close(self, code: ErrorCode, text: str = "") -> None:
        """End the connection with GOAWAY. The error code is ENHANCE_YOUR_CALM for a flood, and PROTOCOL_ERROR for other
        violations."""
        if not self.is_closed:
            self.is_closed = True
            is_exact = code in (ErrorCode.NO_ERROR, ErrorCode.ENHANCE_YOUR_CALM)
            self.queued.append(frames.go_away(code if is_exact else ErrorCode.PROTOCOL_ERROR))

    def self_ended(self, stream: Stream) -> None:
        stream.is_sending = False

    # Receiving.

    def receive_whole(self, number: int, data: memoryview, start: int, at: int) -> int:
        """Same as in Http2Connection. The frames are HEADERS, one DATA frame, and HEADERS that end a stream with a
        complete request."""
        begin, received = at + HEADER_SIZE, len(data)
        stream = self.streams.get(number)
        if begin > received or stream is None or stream.is_sending:
            return 0
        is_huge, rest = read_expected(data, at)
        size: int = rest >> SIZE_SHIFT
        over = begin + size
        trailers = over + HEADER_SIZE
        if rest & EXPECTED != number | _DATA or is_huge or size > MAX_FRAME_SIZE or trailers > received:
            return 0
        is_huge, rest = read_expected(data, over)
        last_size: int = rest >> SIZE_SHIFT
        end = trailers + last_size
        if rest & EXPECTED != number | _TRAILERS or is_huge or last_size > MAX_FRAME_SIZE or end > received:
            return 0
        if size > stream.room:
            return 0
        self._frames_left -= 2 + (at - start + last_size) // BYTES_PER_FRAME
        self._room -= size
        if self._room < LEAST_ROOM:
            self._widen_room()
        head, body, last = data[start:at].tobytes(), data[begin:over], data[trailers:end].tobytes()
        self.events.append(new_event(ReplyReceived, (stream, head, body, last)))
        self._close_stream(stream)
        return end

    def headed(self, number: int, flags: int, block: bytes) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self.dropped(number, "HEADERS")
            return
        ends = flags & END_STREAM > 0
        self.events.append(new_event(HeadersReceived, (stream, block, ends)))
        if ends:
            self.peer_ended(stream)
        else:
            self._spend(1, "heads of one reply")

    def on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        before = self.peer.most_streams
        super().on_settings(flags, number, payload)
        if not flags & ACK:
            self.events.append(SettingsReceived(self.peer.most_streams > before))

    def unexpected(self, kind: int, payload: memoryview) -> str:
        """Same as in Http2Connection. Like the gateway, a server can reject a connection by sending only GOAWAY."""
        if kind != frames.GOAWAY or self.is_open or len(payload) < _GO_AWAY.size:
            return super().unexpected(kind, payload)
        _, code = _GO_AWAY.unpack_from(payload)
        told = payload[_GO_AWAY.size :][:_MOST_TOLD].tobytes().decode("utf-8", "replace")
        text = "".join(letter for letter in told if letter.isprintable())
        return f"the server refused it by GOAWAY({frames.error_name(code)}){text and f': {text}'}"

    def on_go_away(self, flags: int, number: int, payload: memoryview) -> None:
        """Close the streams above the last stream in the frame, which "were not or will not be processed" (RFC 9113
        section 6.8)."""
        super().on_go_away(flags, number, payload)
        last, code = _GO_AWAY.unpack_from(payload)
        refused = [stream for stream in self.streams.values() if stream.id > last & LAST_STREAM]
        for stream in refused:
            self._close_stream(stream)
        self.events.append(GoneAway(code, refused))

    def dropped(self, number: int, what: str, size: int = 0) -> None:
        """Same as in Http2Connection. Data for a cancelled request can still arrive, up to the remaining size of its
        window. Further data costs credit in proportion to its size."""
        if 0 < size <= self._late_room and self.was_opened(number):
            self._late_room -= size
            return
        super().dropped(number, what)
        self._spend(size / _BYTES_PER_CREDIT, "frames of closed streams")

    def was_opened(self, number: int) -> bool:
        return number % 2 == 1 and number < self._next

    def break_off(self, stream: Stream, code: ErrorCode, text: str) -> None:
        raise DecodeError(text)

    def peer_ended(self, stream: Stream) -> None:
        if stream.is_sending:  # the server does not need the entire request
            self.reset(stream, ErrorCode.NO_ERROR)
        else:
            self._close_stream(stream)
