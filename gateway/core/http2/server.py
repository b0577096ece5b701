"""The server side of one HTTP/2 connection. The code performs no I/O. `connection` describes how to use it. The gRPC
listener and `http2_refusal` create these objects.

The states of a stream:

    HEADERS of the client
          |
          v         END_STREAM of the client            the reply's end
      +--------+ ------------------------> +-----------+ -----------> closed
      |  open  |                           | receiving |
      +--------+ ------------------------> |  is over  |
          |         the reply's end:       +-----------+
          |         RST_STREAM(NO_ERROR) unless the client ends its side with the data at hand
          |
          +---> closed: RST_STREAM of either side

If a client breaks a rule on one stream, this side resets the stream, and the connection continues. Resets use a
separate credit, because they cost more than other frames.

This side never drops a request without informing the client. HEADERS and DATA on a closed stream end the connection
(section 5.1). The exception is a stream that the client might still consider open, because this side has reset the
stream or has sent GOAWAY.
"""

from collections import deque
from math import inf
from typing import Generic, NamedTuple

from gateway.core.errors import DecodeError
from gateway.core.http2 import frames
from gateway.core.http2.bounds import Credit
from gateway.core.http2.connection import (
    BYTES_PER_FRAME,
    EARNED,
    LEAST_ROOM,
    WIDEN_CONNECTION,
    DataReceived,
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
    UNSIGNED,
    WIDENING_SIZE,
    WINDOW_UPDATE,
    ErrorCode,
    Setting,
    ViolationError,
    expected,
    header,
    read_expected,
)
from gateway.core.http2.heads import Head, HeadReader, MalformedError, RequestHeads
from gateway.core.http2.hpack import NO_TABLE
from gateway.core.messages import Buffer

MAX_STREAMS = 100
"""Maximum number of requests in flight on one connection. The gateway announces this limit to the client."""
MAX_RUNNING = 2 * MAX_STREAMS
"""Maximum number of requests on one connection, including cancelled requests that are still running.

Clients do not count cancelled requests: only streams "in the "open" or "half-closed" state" count for MAX_STREAMS (RFC
9113 section 5.1.2)."""
WINDOW = 2**20
"""Maximum number of bytes that a client can send on one stream before this side consumes them and sends a window
update."""

_BYTES_PER_CREDIT = 4096
_RESETS, _RESETS_PER_SECOND = 500.0, 100.0

_MOST_PING_STRIKES = 2
"""Number of consecutive pings that can arrive before the required interval has passed."""

_MOST_ABANDONED = 256
"""Maximum number of streams that are stored because this side has reset them and frames for them can still arrive.

This number is enough, because a client never considers more than MAX_STREAMS streams open."""
_MOST_SKIPPED = 16
"""Maximum number of stored gaps in the stream numbers."""

_DATA, _LAST_DATA = expected(DATA, 0), expected(DATA, END_STREAM)
_WIDENING = expected(WINDOW_UPDATE, 0) | WIDENING_SIZE << SIZE_SHIFT

_DRAIN_PING = b"draining"
_NO_DATA = memoryview(b"")


class RequestStarted(NamedTuple, Generic[Head]):
    """The head of a request has arrived."""

    stream: Stream
    head: Head


class RequestReceived(NamedTuple, Generic[Head]):
    """A complete request has arrived: its head and all its data (valid until the next `receive`)."""

    stream: Stream
    head: Head
    data: memoryview


def http1_reply(text: str) -> bytes:
    """Return a complete reply that contains the explanation `text`, for a client that uses HTTP/1."""
    return (
        b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%b" % (len(text), text.encode())
    )


_HTTP1_REPLY = http1_reply("This port speaks HTTP/2 without TLS\n")


class Http2Server(Http2Connection, Generic[Head]):
    """The server side of a connection.

    `heads` reads the heads of requests. Clients that use HTTP/1 receive `http1_reply`.

    This class creates the events RequestReceived, StreamReset and DataSent. For a request that arrives in several
    parts, it creates RequestStarted and DataReceived instead of RequestReceived."""

    def __init__(self, heads: RequestHeads[Head], now: float = 0.0, http1_reply: bytes = _HTTP1_REPLY) -> None:
        super().__init__(_opening(heads.limit), WINDOW, heads.limit, _BYTES_PER_CREDIT, now)
        self.ping_interval = 0.0
        """Minimum number of seconds between two pings of a client that has no open stream and receives no frames in
        between.

        0 means no minimum. The caller sets this field. For all other pings, the credit is the only limit."""
        self.still_running = 0
        """The number of requests that are still running on closed streams.

        The caller sets this field. If the number is MAX_STREAMS or more, the caller processes no more frames until the
        next turn of the event loop. Most of these requests end in that turn."""
        self._preamble = NO_TABLE
        """The bytes before the connection's first header block."""
        self._is_begun = False
        self._heads = HeadReader(heads)
        self._http1_reply = http1_reply
        self._last = 0
        """The highest number of a stream that was opened."""
        self._skipped: deque[range] = deque(maxlen=_MOST_SKIPPED)
        """Stream numbers that the client has skipped.

        These streams are closed although they were never open (section 5.1.1)."""
        self._abandoned: dict[int, None] = {}
        """The most recent streams that this side has reset, the oldest first."""
        self._is_full = False
        """True if the connection accepts no new streams because it has sent the final GOAWAY."""
        self._resets = Credit(_RESETS, _RESETS_PER_SECOND, now)
        self._pinged = -inf
        self._ping_strikes = 0

    # Receiving.

    def receive_preface(self, data: memoryview) -> int:
        begun = data[: len(PREFACE)].tobytes()
        if not PREFACE.startswith(begun):
            if begun[:1].isalpha():
                self.queued = [self._http1_reply]
                self.is_closed = True
                return len(data)
            raise DecodeError("this port speaks HTTP/2, whose connections begin with a preface; use a gRPC client")
        self._is_begun = len(begun) == len(PREFACE)
        return len(begun) if self._is_begun else 0

    def on_continuation(self, flags: int, number: int, payload: memoryview) -> None:
        self._spend(1, "CONTINUATION frames")
        super().on_continuation(flags, number, payload)

    def receive_whole(self, number: int, data: memoryview, start: int, at: int) -> int:
        """Same as in Http2Connection.

        The frames are the HEADERS of a new stream and one DATA frame. Either this DATA frame or an empty DATA frame
        directly after it ends the stream. HTTP libraries that stream every body write the empty frame. Between HEADERS
        and DATA, grpcio widens the stream's window and then the connection's window. None of these frames spends or
        earns credit."""
        begin, received, window = at + HEADER_SIZE, len(data), self.peer.initial_window
        if begin > received or not self._last < number <= LAST_STREAM or not number & 1 or self._is_full:
            return 0
        is_huge, rest = read_expected(data, at)
        if rest == number | _WIDENING and not is_huge:
            window += UNSIGNED.unpack_from(data, begin)[0]
            begin += WIDENING_SIZE + HEADER_SIZE
            if begin > received or not self.peer.initial_window < window <= MAX_WINDOW:
                return 0
            is_huge, rest = read_expected(data, begin - HEADER_SIZE)
        size: int = rest >> SIZE_SHIFT
        message_end = end = begin + size
        if is_huge or size > MAX_FRAME_SIZE:
            return 0
        if rest & EXPECTED == number | _DATA:
            end += HEADER_SIZE
            if end > received or read_expected(data, message_end) != (0, number | _LAST_DATA):
                return 0
        elif rest & EXPECTED != number | _LAST_DATA or end > received:
            return 0
        self._frames_left -= 3 + (at - start) // BYTES_PER_FRAME
        head = self._opened(number, data[start:at].tobytes())
        if head is None:
            return at
        self._room -= size
        if self._room < LEAST_ROOM:
            self._widen_room()
        stream = self.streams[number] = Stream(number, window, WINDOW, self._now)
        stream.is_receiving = False
        if self._heads.length is None or self._heads.length == size:
            self.events.append(new_event(RequestReceived, (stream, head, data[begin:message_end])))
        else:
            self.events.append(RequestStarted(stream, head))
            stream.announced = self._heads.length
            self._breaks_length(stream, size, ends=True)
        behind = end + HEADER_SIZE + WIDENING_SIZE
        if behind <= received and read_expected(data, end) == (0, _WIDENING):
            widened = self._window + UNSIGNED.unpack_from(data, end + HEADER_SIZE)[0]
            if self._window < widened <= MAX_WINDOW:
                self._window = widened
                return behind
        return end

    def headed(self, number: int, flags: int, block: bytes) -> None:
        if number % 2 == 0:
            raise DecodeError(f"HEADERS of stream {number}; clients open odd ones")
        if number > self._last and not self._is_full:
            self._open(number, flags, block)
            return
        stream, fault = self.streams.get(number), ""
        try:
            if stream is None:
                self._heads.skip(block)
            else:
                self._heads.check_trailers(block)
        except DecodeError as error:
            raise ViolationError(ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except MalformedError as error:
            fault = str(error)
        if stream is None:
            self.dropped(number, "HEADERS")
        else:
            self._trailed(stream, flags, fault)

    def _opened(self, number: int, block: bytes) -> Head | None:
        """Return the head of the request that opens a stream; None if this side rejects the request."""
        if number > self._last + 2:
            self._skipped.append(range(self._last + 1, number))
        self._last = number
        try:
            head = self._heads.read(block)
        except DecodeError as error:
            raise ViolationError(ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except MalformedError:
            self._refuse(number, ErrorCode.PROTOCOL_ERROR)
            return None
        count = len(self.streams)
        if count >= MAX_STREAMS or count + self.still_running >= MAX_RUNNING:
            self._refuse(number, ErrorCode.REFUSED_STREAM)
            return None
        return head

    def _open(self, number: int, flags: int, block: bytes) -> None:
        head = self._opened(number, block)
        if head is None:
            return
        self._credit.earn(4.0)
        stream = self.streams[number] = Stream(number, self.peer.initial_window, WINDOW, self._now)
        stream.announced = self._heads.length
        self.events.append(RequestStarted(stream, head))
        if flags & END_STREAM:
            self._end_without_data(stream)

    def _trailed(self, stream: Stream, flags: int, fault: str) -> None:
        """End a request at its trailers, whose content is ignored. `fault` is the error in the trailers."""
        if not stream.is_receiving:
            self.break_off(stream, ErrorCode.STREAM_CLOSED, "")
        elif fault or not flags & END_STREAM:
            self.break_off(stream, ErrorCode.PROTOCOL_ERROR, fault)
        else:
            self._end_without_data(stream)

    def _end_without_data(self, stream: Stream) -> None:
        """End the request at a header block with END_STREAM."""
        if stream.announced is not None and self._breaks_length(stream, 0, ends=True):
            return
        self.events.append(DataReceived(stream, _NO_DATA, True))
        self.peer_ended(stream)

    def dropped(self, number: int, what: str, size: int = 0) -> None:
        """Same as in Http2Connection.

        Ignore HEADERS and DATA only if the client might still consider the stream open. Otherwise, end the connection.
        The client then receives an error for every lost request."""
        if what in ("HEADERS", "DATA") and number & 1 and number <= self._last and number not in self._abandoned:
            is_skipped = any(number in each for each in self._skipped)
            code = ErrorCode.PROTOCOL_ERROR if is_skipped and what == "HEADERS" else ErrorCode.STREAM_CLOSED
            raise ViolationError(
                code, f"{what} of stream {number}, which is closed; the last one opened is {self._last}"
            )
        super().dropped(number, what)

    def on_reset(self, flags: int, number: int, payload: memoryview) -> None:
        is_open = number in self.streams
        super().on_reset(flags, number, payload)
        if is_open:
            self._count_reset()

    def on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        super().on_settings(flags, number, payload)
        if flags & ACK:
            self._heads.settle()

    def on_ping(self, flags: int, number: int, payload: memoryview) -> None:
        super().on_ping(flags, number, payload)
        if flags & ACK:
            if payload == _DRAIN_PING:
                self.refuse_new_streams()
            return
        if self.streams:
            self._ping_strikes, self._pinged = 0, -inf
            return
        if self._now - self._pinged < self.ping_interval:
            self._ping_strikes += 1
            if self._ping_strikes > _MOST_PING_STRIKES:
                # gRPC clients recognize this text, and then ping less often.
                raise ViolationError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        else:
            self._ping_strikes = 0
        self._pinged = self._now

    def was_opened(self, number: int) -> bool:
        return number % 2 == 1 and (number <= self._last or self._is_full)

    def _count_reset(self) -> None:
        """Count a reset. Streams that the client resets, or causes this side to reset, cost more than other frames."""
        self._resets.spend(1, self._now, "streams were reset")

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """Reset a stream that was never open."""
        self._abandon(number)
        self.queued.append(frames.reset(number, code))
        self._count_reset()

    def _abandon(self, number: int) -> None:
        """Record that this side resets the stream. Frames that the client sends for the stream before it receives the
        reset are then ignored."""
        self._abandoned[number] = None
        if len(self._abandoned) > _MOST_ABANDONED:
            del self._abandoned[next(iter(self._abandoned))]

    def break_off(self, stream: Stream, code: ErrorCode, text: str) -> None:
        self.reset(stream, code)
        self.events.append(StreamReset(stream, code))
        self._count_reset()

    def peer_ended(self, stream: Stream) -> None:
        stream.is_receiving = False
        if not stream.is_sending:
            self._close_stream(stream)

    # Sending.

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Same as in Http2Connection."""
        if not stream.is_closed:
            self._abandon(stream.id)
        super().reset(stream, code)

    def respond(self, stream: Stream, head: bytes, data: tuple[Buffer, ...], trailers: bytes) -> None:
        """Send a complete reply: the header block `head`, then `data`, then the header block `trailers`. If the stream
        is closed, do nothing."""
        if stream.is_closed:
            return
        if self._preamble:
            head, self._preamble = self._preamble + head, b""
        size, most = sum(map(len, data)), self.peer.frame_size
        if size <= most and size <= self._window and size <= stream.window and not self.is_paused:
            self._window -= size
            number = stream.id
            before = HEADER.pack(size << 8 | DATA, 0, number)
            if len(head) <= most >= len(trailers):
                # Most replies: one frame each for the head, the message and the trailers, written together.
                opening = HEADER.pack(len(head) << 8 | HEADERS, END_HEADERS, number)
                closing = HEADER.pack(len(trailers) << 8 | HEADERS, ENDS, number)
                self.queued.append(b"".join((opening, head, before, *data, closing, trailers)))
            else:
                closing = self._header_frames(stream, trailers, END_STREAM)
                self.queued += (self._header_frames(stream, head, 0), before, *data, closing)
            # `self_ended` and `sends` are inlined, because most replies take this path.
            stream.is_sending = False
            if stream.is_receiving:
                self._ended_early.append(stream)
            else:
                self._close_stream(stream)
            self._ping_strikes, self._pinged = 0, -inf
            self._credit.earn(EARNED + size / _BYTES_PER_CREDIT)
            return
        self.queued.append(self._header_frames(stream, head, 0))
        self._wait(stream, data)
        stream.closing = self._header_frames(stream, trailers, END_STREAM)

    def send_head(self, stream: Stream, block: bytes) -> None:
        """Send the head of a reply whose data and trailers follow separately."""
        if not stream.is_closed:
            self.queued.append(self._header_frames(stream, block, 0))
            self.sends(0)

    def send_data(self, stream: Stream, data: tuple[Buffer, ...]) -> None:
        """Send a part of a reply's data after `send_head`. The caller can send the next part when `stream.unsent` is
        cleared, which the event DataSent reports."""
        if stream.is_closed:
            return
        size = sum(map(len, data))
        if size <= self.peer.frame_size and size <= self._window and size <= stream.window and not self.is_paused:
            self._window -= size
            stream.window -= size
            self.queued.append(b"".join((header(size, DATA, 0, stream.id), *data)))
            self.sends(size)
        else:
            self._wait(stream, data)

    def send_end(self, stream: Stream, block: bytes) -> None:
        """Send trailers after the unsent data. If the head is still unsent, send a complete reply without data."""
        if stream.is_closed:
            return
        closing = self._header_frames(stream, block, END_STREAM)
        if stream.unsent is not None:
            stream.closing = closing
            return
        self.queued.append(closing)
        self.self_ended(stream)
        self.sends(0)

    def _header_frames(self, stream: Stream, block: bytes, flags: int) -> bytes:
        """Return the frames of a header block. The connection's first block sets the dynamic table size to 0."""
        if self._preamble:
            block, self._preamble = self._preamble + block, b""
        return frames.header_frames(stream.id, block, flags, self.peer.frame_size)

    def self_ended(self, stream: Stream) -> None:
        stream.is_sending = False
        if stream.is_receiving:
            self._ended_early.append(stream)
        else:
            self._close_stream(stream)

    def sends(self, size: int) -> None:
        self._ping_strikes = 0
        self._pinged = -inf
        self._credit.earn(EARNED + size / _BYTES_PER_CREDIT)

    # Ending.

    def begin_drain(self) -> None:
        """Ask the client to open no more streams, and send a ping. The connection still serves streams that the client
        opens before it receives the GOAWAY. When the client responds to the ping, the connection calls
        `refuse_new_streams`. If the client does not respond, the caller must call `refuse_new_streams`."""
        self.queued.append(frames.go_away(ErrorCode.NO_ERROR, LAST_STREAM))
        self.queued.append(frames.frame(frames.PING, 0, 0, _DRAIN_PING))

    def refuse_new_streams(self) -> None:
        """Announce the last accepted stream to the client. The connection then ignores later streams, and the
        announcement indicates to the client that they were not processed."""
        if not self._is_full:
            self._is_full = True
            self.queued.append(frames.go_away(ErrorCode.NO_ERROR, self._last))

    @property
    def is_drained(self) -> bool:
        """True if all requests have ended, and new requests cannot start."""
        return self._is_full and not self.streams and not self.still_running

    def refuse(self, text: str) -> None:
        """Reject a new connection by sending only GOAWAY.

        If the gateway also sent SETTINGS, gRPC clients would treat the connection as successful, reset their backoff,
        and reconnect immediately, thousands of times a second. Clients that receive only GOAWAY treat the connection as
        failed."""
        self.queued.clear()
        self.close(ErrorCode.ENHANCE_YOUR_CALM, text)

    def close(self, code: ErrorCode, text: str = "") -> None:
        """End the connection with the queued bytes and GOAWAY. This also ends all open streams."""
        if not self.is_closed:
            self.is_closed = True
            self.queued.append(frames.go_away(code, self._last, text))


def _opening(header_limit: int) -> bytes:
    """Return the first frames that a server sends. `hpack` explains the table size of 0."""
    settings = {
        Setting.HEADER_TABLE_SIZE: 0,
        Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: WINDOW,
        Setting.MAX_HEADER_LIST_SIZE: header_limit,
    }
    return frames.settings(settings) + WIDEN_CONNECTION
