"""The server's side of one HTTP/2 connection, RFC 9113. Pure: bytes in, events out; replies in, bytes out.

`receive` takes what the client sent and appends to `events`; `respond`, `send_head`, `send_message`, `send_end` and
`reset` queue what the client gets; `data_to_send` gives the bytes, within the windows that the client grants.

A stream, and what it may still do:

    HEADERS of the client
          |
          v         END_STREAM of the client            the reply's end
      +--------+ ------------------------> +-----------+ -----------> closed
      |  open  |                           | receiving |
      +--------+ ------------------------> +  is over  +
          |         the reply's end:       +-----------+
          |         RST_STREAM(NO_ERROR) unless the client ends its side with the data at hand
          |
          +---> closed: RST_STREAM of either side

Closed streams are forgotten. Every identifier up to the highest one that was opened, and is no longer known, is closed:
frames for it may be on the way and are dropped, but for what they mean to the connection (windows, header tables).

What the peer makes the gateway do is bounded three ways. `receive` stops after FRAMES frames, so that the caller can
yield. Frames that carry nothing (pings, settings, DATA of a few bytes that complete no message, window updates, frames
of closed streams) use up a credit that grows with time and with useful work; resets use up a credit of their own.
Without credit the connection ends with GOAWAY(ENHANCE_YOUR_CALM).
"""

from collections import OrderedDict, deque
from math import inf
from typing import Any, NamedTuple, TypeAlias

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer
from gateway.http2 import frames
from gateway.http2.bounds import CREDIT_PER_SECOND, FRAMES, MOST_CREDIT, SMALL_DATA, Credit, FloodError
from gateway.http2.continued_block import ContinuedBlock
from gateway.http2.frames import (
    ACK,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADER_SIZE,
    LAST_STREAM,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    PRIORITIZED,
    ErrorCode,
    Setting,
    header,
)
from gateway.transports.grpc.messages import PREFIX, PREFIX_SIZE, Unsent
from gateway.transports.grpc.server.heads import HeadReader, MalformedError, RequestHead

MAX_STREAMS = 100
"""Requests in flight on one connection."""
WINDOW = 2**20
"""Bytes that a client may send on one stream beyond what was taken of it, before the gateway grants more."""
_BYTES_PER_FRAME = 256
"""Bytes of a header block that take as long to read as a frame."""

_CONNECTION_WINDOW = MAX_WINDOW
"""Each stream has a window of its own; one that is not read from must not hold up the others."""
_LARGEST_FRAME = 2**18
"""Bytes of a reply that are handed over at a time."""

_EARNED = 4.0
"""What a request, or a frame of a reply, earns: clients answer both with window updates and pings."""
_BYTES_PER_CREDIT = 4096
_RESETS, _RESETS_PER_SECOND = 500.0, 100.0

PING_INTERVAL = 9.0
"""Seconds between two pings of a client that is sent nothing in between. Clients that ask whether the gateway is there
may do so every ten seconds, and are not always on time."""
_MOST_PING_STRIKES = 2
"""Pings that may come sooner."""

_DRAINED_PING = b"draining"
_HTTP1_TEXT = b"This port speaks gRPC: HTTP/2 without TLS\n"
_HTTP1_REPLY = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_HTTP1_TEXT), _HTTP1_TEXT)
)


class Stream:
    """One request and its reply. `call` belongs to whoever handles the events."""

    __slots__ = (
        "call",
        "heard",
        "id",
        "is_closed",
        "is_receiving",
        "is_sending",
        "moved",
        "room",
        "trailers",
        "unsent",
        "window",
    )

    def __init__(self, number: int, window: int, now: float) -> None:
        self.id = number
        self.window = window
        """Bytes that the client takes."""
        self.room = WINDOW
        """Bytes that the client may send."""
        self.is_receiving = True
        """Whether the client may send more."""
        self.is_sending = True
        """Whether the reply has not been ended."""
        self.is_closed = False
        self.unsent: Unsent | None = None
        self.trailers: bytes | None = None
        """The frames that follow what is unsent."""
        self.heard = now
        """When the client last sent anything of it."""
        self.moved = now
        """When something of the reply was last sent, or began to wait."""
        self.call: Any = None


class Begun(NamedTuple):
    """A request's head is there."""

    stream: Stream
    head: RequestHead


class Received(NamedTuple):
    """Bytes of a request's body, valid until the next `receive`; `ends`: there are no more."""

    stream: Stream
    data: memoryview
    ends: bool


class Reset(NamedTuple):
    """The client has given the request up, or broke a rule on its stream."""

    stream: Stream


class Sent(NamedTuple):
    """What was unsent of a message that does not end the reply has been handed over."""

    stream: Stream


Event: TypeAlias = Begun | Received | Reset | Sent


class _ViolationError(Exception):
    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class ServerConnection:
    """`header_limit`: bytes of a request's header fields (`limits.headers`). `recalled`: request heads by their blocks,
    shared by the connections of a listener."""

    def __init__(self, header_limit: int, recalled: "OrderedDict[bytes, RequestHead]", now: float = 0.0) -> None:
        self.events: deque[Event] = deque()
        self.streams: dict[int, Stream] = {}
        """Those that are not closed."""
        self.still_running = 0
        """Requests whose streams are closed, but which still run: they count as streams."""
        self.is_open = False
        """Whether the client has spoken HTTP/2."""
        self.is_closed = False
        """Whether nothing more is received; what there is to send ends with GOAWAY."""
        self.is_paused = False
        """Whether the client reads too slowly: no replies are written meanwhile. Set by the owner."""
        self.has_more = False
        """Whether `receive` stopped although more frames may be complete."""
        self.block_since: float | None = None
        """When a header block began whose end has not come."""
        self._heads = HeadReader(header_limit, recalled)
        self._header_limit = header_limit
        self._now = now
        self._left = 0
        """Frames that may still be taken at once."""
        self._out: list[Buffer] = [_opening(header_limit)]
        self._expected: int | None = frames.SETTINGS
        """The only type that the next frame may have, if there is but one."""
        self._has_preface = False
        self._block: ContinuedBlock | None = None
        self._last = 0
        """The highest stream that was opened."""
        self._is_full = False
        """Whether no further stream is opened: the final GOAWAY has been sent."""
        self._room = _CONNECTION_WINDOW
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._frame_size = MAX_FRAME_SIZE
        self._waiting: deque[Stream] = deque()
        """Streams with something unsent."""
        self._ended_early: list[Stream] = []
        self._credit = Credit(MOST_CREDIT, CREDIT_PER_SECOND, now)
        self._resets = Credit(_RESETS, _RESETS_PER_SECOND, now)
        self._pinged = -inf
        self._ping_strikes = 0
        self._on = {
            frames.HEADERS: self._on_headers,
            frames.PRIORITY: self._on_priority,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_go_away,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_continuation,
        }

    # What the client sends.

    def receive(self, data: memoryview, now: float) -> int:
        """Take the frames that `data` begins with, and append what they mean to `events`; how many bytes were taken is
        the answer. The rest is to be given again with what follows it, or as it is where `has_more`."""
        self._now = now
        self.has_more = False
        if self.is_closed:
            return len(data)
        try:
            at = 0 if self._has_preface else self._receive_preface(data)
            return self._receive_frames(data, at) if self._has_preface else at
        except _ViolationError as error:
            self.close(error.code, str(error))
        except FloodError as error:
            self.close(ErrorCode.ENHANCE_YOUR_CALM, str(error))
        except DecodeError as error:
            self.close(ErrorCode.PROTOCOL_ERROR, str(error))
        return len(data)

    def _receive_preface(self, data: memoryview) -> int:
        begun = data[: len(PREFACE)].tobytes()
        if not PREFACE.startswith(begun):
            if begun[:1].isalpha():
                self._out = [_HTTP1_REPLY]
                self.is_closed = True
                return len(data)
            raise DecodeError("this port speaks HTTP/2, whose connections begin with a preface")
        self._has_preface = len(begun) == len(PREFACE)
        return len(begun) if self._has_preface else 0

    def _receive_frames(self, data: memoryview, at: int) -> int:
        end = len(data)
        self._left = FRAMES
        while end - at >= HEADER_SIZE and not self.is_closed:
            if self._left <= 0:
                self.has_more = True
                break
            upper, lower, kind, flags, stream = HEADER.unpack_from(data, at)
            size = upper << 8 | lower
            if size > MAX_FRAME_SIZE:
                text = f"a frame of {size} bytes, at most {MAX_FRAME_SIZE} are allowed"
                raise _ViolationError(ErrorCode.FRAME_SIZE_ERROR, text)
            start = at + HEADER_SIZE
            if start + size > end:
                break
            at = start + size
            self._left -= 1
            if self._expected is not None and kind != self._expected:
                raise DecodeError(f"a frame of type {kind}, expected type {self._expected}")
            if kind == DATA:
                self._on_data(flags, stream & LAST_STREAM, data[start:at])
            elif kind in self._on:
                self._on[kind](flags, stream & LAST_STREAM, data[start:at])
            else:  # section 5.5: others are to be ignored
                self._spend(1, "unknown frames")
        return at

    def _on_data(self, flags: int, number: int, payload: memoryview) -> None:
        size = len(payload)
        self._room -= size
        if self._room < _CONNECTION_WINDOW // 2:
            self._out.append(frames.window_update(0, _CONNECTION_WINDOW - self._room))
            self._room = _CONNECTION_WINDOW
        stream = self.streams.get(number)
        if stream is None:
            self._dropped(number, "DATA")
            return
        ends = flags & END_STREAM > 0
        data = frames.unpadded(payload, "DATA", PADDED) if flags & PADDED else payload
        if len(data) < SMALL_DATA and not ends:
            self._spend(1, "DATA frames with next to nothing in them")
        if not stream.is_receiving:
            self._break(stream, ErrorCode.STREAM_CLOSED)
            return
        stream.room -= size
        if stream.room < 0:
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR)
            return
        stream.heard = self._now
        if stream.is_sending:
            self.events.append(Received(stream, data, ends))
        if ends:
            self._client_ended(stream)

    def completed_message(self, size: int) -> None:
        """`size` bytes that were Received, and did not end the request, completed a message. Few bytes were taken for
        nothing until then."""
        if size < SMALL_DATA:
            self._credit.earn(1)

    def _on_headers(self, flags: int, number: int, payload: memoryview) -> None:
        if flags & (PADDED | PRIORITIZED):
            payload = frames.unpadded(payload, "HEADERS", flags)
        if flags & END_HEADERS:
            self._headed(number, flags, payload.tobytes())
            return
        self._block = ContinuedBlock(number, flags, self._header_limit)
        self._block.add(payload)
        self.block_since = self._now
        self._expected = frames.CONTINUATION

    def _on_continuation(self, flags: int, number: int, payload: memoryview) -> None:
        block = self._block
        if block is None or number != block.stream:
            raise DecodeError(f"CONTINUATION of no header block, on stream {number}")
        self._spend(1, "CONTINUATION frames")
        block.add(payload)
        if flags & END_HEADERS:
            self._block = self._expected = self.block_since = None
            self._headed(number, block.flags, bytes(block.data))

    def _headed(self, number: int, flags: int, block: bytes) -> None:
        stream = self.streams.get(number)
        self._left -= len(block) // _BYTES_PER_FRAME
        if number % 2 == 0:
            raise DecodeError(f"HEADERS of stream {number}; clients open odd ones")
        try:
            if number > self._last and not self._is_full:
                self._open(number, flags, block)
            else:
                self._heads.skip(block)
                self._trailed(stream, flags)
        except DecodeError as error:
            raise _ViolationError(ErrorCode.COMPRESSION_ERROR, str(error)) from None

    def _open(self, number: int, flags: int, block: bytes) -> None:
        self._last = number
        try:
            head = self._heads.read(block)
        except MalformedError:
            self._refuse(number, ErrorCode.PROTOCOL_ERROR)
            return
        if len(self.streams) + self.still_running >= MAX_STREAMS:
            self._refuse(number, ErrorCode.REFUSED_STREAM)
            return
        self._credit.earn(_EARNED)
        stream = self.streams[number] = Stream(number, self._initial_window, self._now)
        self.events.append(Begun(stream, head))
        if flags & END_STREAM:
            self.events.append(Received(stream, _NOTHING, True))
            self._client_ended(stream)

    def _trailed(self, stream: Stream | None, flags: int) -> None:
        """A request has trailers, which end it; gRPC has none, and nobody reads them."""
        if stream is None:
            self._spend(1, "frames of closed streams")
        elif not stream.is_receiving or not flags & END_STREAM:
            self._break(stream, ErrorCode.PROTOCOL_ERROR if stream.is_receiving else ErrorCode.STREAM_CLOSED)
        else:
            if stream.is_sending:
                self.events.append(Received(stream, _NOTHING, True))
            self._client_ended(stream)

    def _on_priority(self, flags: int, number: int, payload: memoryview) -> None:
        if not number or len(payload) != 5:
            raise DecodeError(f"PRIORITY of {len(payload)} bytes and stream {number}")
        self._spend(1, "PRIORITY frames")

    def _on_reset(self, flags: int, number: int, payload: memoryview) -> None:
        frames.number(payload, "RST_STREAM")
        stream = self.streams.get(number)
        if stream is None:
            self._dropped(number, "RST_STREAM")
            return
        self._close(stream)
        self.events.append(Reset(stream))
        self._count_reset()

    def _on_push(self, flags: int, number: int, payload: memoryview) -> None:
        raise DecodeError("PUSH_PROMISE of a client")

    def _on_window_update(self, flags: int, number: int, payload: memoryview) -> None:
        increment = frames.number(payload, "WINDOW_UPDATE")
        self._spend(1, "WINDOW_UPDATE frames")
        if not number:
            self._window += increment
            if not increment or self._window > MAX_WINDOW:
                raise _ViolationError(ErrorCode.FLOW_CONTROL_ERROR, f"WINDOW_UPDATE by {increment} to {self._window}")
            return
        stream = self.streams.get(number)
        if stream is None:
            self._dropped(number, "WINDOW_UPDATE")
            return
        stream.window += increment
        if not increment or stream.window > MAX_WINDOW:
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR)

    def _on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        if number:
            raise DecodeError(f"SETTINGS of stream {number}")
        if flags & ACK:
            if self._expected is not None or len(payload):
                raise DecodeError("an acknowledgement of SETTINGS that is none")
            self._spend(1, "SETTINGS frames")
            self._heads.settle()
            return
        self._spend(1 + len(payload) // 60, "SETTINGS frames")
        # One value of each counts in the end: a frame has room for thousands.
        for name, amount in dict(frames.read_settings(payload)).items():
            self._set(name, amount)
        self._out.append(_SETTINGS_ACK)
        self._expected = None
        self.is_open = True

    def _set(self, name: int, amount: int) -> None:
        """Section 6.5.2: those that are not known are to be ignored."""
        match name:
            case Setting.INITIAL_WINDOW_SIZE if amount <= MAX_WINDOW:
                difference = amount - self._initial_window
                self._initial_window = amount
                for stream in self.streams.values():
                    stream.window += difference
                    if stream.window > MAX_WINDOW:
                        raise _ViolationError(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
            case Setting.MAX_FRAME_SIZE if MAX_FRAME_SIZE <= amount < 2**24:
                self._frame_size = min(amount, _LARGEST_FRAME)
            case Setting.INITIAL_WINDOW_SIZE | Setting.MAX_FRAME_SIZE:
                raise DecodeError(f"SETTINGS set {Setting(name).name} to {amount}")

    def _on_ping(self, flags: int, number: int, payload: memoryview) -> None:
        if number or len(payload) != 8:
            raise DecodeError(f"PING of {len(payload)} bytes and stream {number}, it has 8 and 0")
        self._spend(1, "PING frames")
        if flags & ACK:
            if payload == _DRAINED_PING:
                self.refuse_new_streams()
            return
        self._out.append(frames.frame(frames.PING, ACK, 0, payload))
        if self._now - self._pinged < PING_INTERVAL:
            self._ping_strikes += 1
            if self._ping_strikes > _MOST_PING_STRIKES:
                raise _ViolationError(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        else:
            self._ping_strikes = 0
        self._pinged = self._now

    def _on_go_away(self, flags: int, number: int, payload: memoryview) -> None:
        """The client opens no more streams by itself, and closes when the last one is over."""
        if number or len(payload) < 8:
            raise DecodeError(f"GOAWAY of {len(payload)} bytes and stream {number}, it has 8 at least and 0")
        self._spend(1, "GOAWAY frames")

    # What it may do.

    def _dropped(self, number: int, what: str) -> None:
        """A frame of a stream that is closed, or of one that never was: section 5.1."""
        if number % 2 == 0 or (number > self._last and not self._is_full):
            raise DecodeError(f"{what} of stream {number}, which was never opened")
        self._spend(1, "frames of closed streams")

    def _spend(self, cost: float, what: str) -> None:
        self._credit.spend(cost, self._now, what)

    def _count_reset(self) -> None:
        """Streams that the client resets, or makes the gateway reset, cost more than they carry."""
        self._resets.spend(1, self._now, "streams were reset")

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """A stream is not even opened."""
        self._out.append(frames.reset(number, code))
        self._count_reset()

    def _break(self, stream: Stream, code: ErrorCode) -> None:
        """The client broke a rule on `stream`, which is all that it costs."""
        self.reset(stream, code)
        self.events.append(Reset(stream))
        self._count_reset()

    def _client_ended(self, stream: Stream) -> None:
        stream.is_receiving = False
        if not stream.is_sending:
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        stream.is_closed = True
        stream.is_receiving = stream.is_sending = False
        stream.trailers = None
        if stream.unsent is not None:
            stream.unsent = None
            self._waiting.remove(stream)
        self.streams.pop(stream.id, None)

    # What is sent to it.

    def respond(self, stream: Stream, head: bytes, parts: tuple[Buffer, ...], trailers: bytes) -> None:
        """A whole reply: the head, the one message of `parts`, and the trailers. Nothing, if the stream is closed."""
        if stream.is_closed:
            return
        size = PREFIX_SIZE + sum(map(len, parts))
        opening = frames.header_frames(stream.id, head, 0, self._frame_size)
        closing = frames.header_frames(stream.id, trailers, END_STREAM, self._frame_size)
        if size <= self._frame_size and size <= self._window and size <= stream.window and not self.is_paused:
            self._window -= size
            start = header(size, DATA, 0, stream.id) + PREFIX.pack(0, size - PREFIX_SIZE)
            self._out.append(b"".join((opening, start, *parts, closing)))
            self._end(stream)
            self._sends(size)
            return
        self._out.append(opening)
        self._wait(stream, parts)
        stream.trailers = closing

    def send_head(self, stream: Stream, block: bytes) -> None:
        """The head of a reply of any number of messages."""
        if not stream.is_closed:
            self._out.append(frames.header_frames(stream.id, block, 0, self._frame_size))
            self._sends(0)

    def send_message(self, stream: Stream, parts: tuple[Buffer, ...]) -> None:
        """One of them. While `stream.unsent`, no other may follow; Sent tells the end of it."""
        if stream.is_closed:
            return
        size = PREFIX_SIZE + sum(map(len, parts))
        if size <= self._frame_size and size <= self._window and size <= stream.window and not self.is_paused:
            self._window -= size
            stream.window -= size
            self._out.append(b"".join((header(size, DATA, 0, stream.id), PREFIX.pack(0, size - PREFIX_SIZE), *parts)))
            self._sends(size)
        else:
            self._wait(stream, parts)

    def send_end(self, stream: Stream, block: bytes) -> None:
        """Trailers, after what is unsent; or, where there was no head, all of the reply."""
        if stream.is_closed:
            return
        closing = frames.header_frames(stream.id, block, END_STREAM, self._frame_size)
        if stream.unsent is not None:
            stream.trailers = closing
            return
        self._out.append(closing)
        self._end(stream)
        self._sends(0)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Break `stream` off."""
        if not stream.is_closed:
            self._out.append(frames.reset(stream.id, code))
            self._close(stream)

    def grant(self, stream: Stream, held: int, window: int = WINDOW) -> None:
        """Let the client send as much as makes `window` with the bytes that are `held`: those that came and were not
        taken. It is told when that is half a window at least."""
        due = window - stream.room - held
        if due >= WINDOW // 2 and stream.is_receiving and stream.is_sending:
            stream.room += due
            self._out.append(frames.window_update(stream.id, due))

    def begin_drain(self) -> None:
        """Ask the client to open no more streams. What it opened before it knew is still answered: when it answers a
        ping that follows, `refuse_new_streams` is called; the owner does so if it does not."""
        self._out.append(frames.go_away(ErrorCode.NO_ERROR, LAST_STREAM))
        self._out.append(frames.frame(frames.PING, 0, 0, _DRAINED_PING))

    def refuse_new_streams(self) -> None:
        """Tell the client which stream was the last; what it opens later is dropped, and it knows."""
        if not self._is_full:
            self._is_full = True
            self._out.append(frames.go_away(ErrorCode.NO_ERROR, self._last))

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight, and nothing more will be."""
        return self._is_full and not self.streams and not self.still_running

    def close(self, code: ErrorCode, text: str = "") -> None:
        """End the connection with what has been queued and GOAWAY. Streams that are not over end so."""
        if not self.is_closed:
            self.is_closed = True
            self._out.append(frames.go_away(code, self._last, text))

    def data_to_send(self) -> list[Buffer]:
        """What to write now, of large replies about a frame; to be asked again until there is nothing, unless the
        client reads too slowly."""
        if self._ended_early:
            self._reset_ended()
        if self._waiting and not self.is_paused and not self.is_closed:
            self._write_waiting()
        out, self._out = self._out, []
        return out

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for windows, or for the client to read."""
        return bool(self._waiting)

    @property
    def unsent_bytes(self) -> int:
        """Of these messages."""
        return sum(stream.unsent.size for stream in self._waiting if stream.unsent is not None)

    def _reset_ended(self) -> None:
        """RFC 9113 section 8.1: after a whole reply, RST_STREAM(NO_ERROR) asks the client to stop sending."""
        for stream in self._ended_early:
            self.reset(stream, ErrorCode.NO_ERROR)
        self._ended_early = []

    def _write_waiting(self) -> None:
        """A frame of each in turn, as far as windows and a budget go."""
        waiting, budget = 0, _LARGEST_FRAME
        while waiting < len(self._waiting) and self._window > 0 and budget > 0:
            stream = self._waiting.popleft()
            if stream.window <= 0:
                waiting += 1
                self._waiting.append(stream)
                continue
            waiting = 0
            budget -= self._write_frame(stream)

    def _write_frame(self, stream: Stream) -> int:
        unsent = stream.unsent
        assert unsent is not None
        size = min(unsent.size, stream.window, self._window, self._frame_size)
        pieces = unsent.take(size)
        self._window -= size
        stream.window -= size
        stream.moved = self._now
        self._out.append(header(size, DATA, 0, stream.id))
        self._out += pieces
        self._sends(size)
        if unsent.size:
            self._waiting.append(stream)
            return size
        stream.unsent = None
        if stream.trailers is None:
            self.events.append(Sent(stream))
        else:
            self._out.append(stream.trailers)
            self._end(stream)
        return size

    def _wait(self, stream: Stream, parts: tuple[Buffer, ...]) -> None:
        stream.unsent = Unsent(parts)
        stream.moved = self._now
        self._waiting.append(stream)

    def _end(self, stream: Stream) -> None:
        stream.is_sending = False
        if stream.is_receiving:
            self._ended_early.append(stream)
        else:
            self._close(stream)

    def _sends(self, size: int) -> None:
        self._ping_strikes = 0
        self._pinged = -inf
        self._credit.earn(_EARNED + size / _BYTES_PER_CREDIT)


_NOTHING = memoryview(b"")
_SETTINGS_ACK = frames.frame(frames.SETTINGS, ACK, 0, b"")


def _opening(header_limit: int) -> bytes:
    """What a server sends first. Without a dynamic table what a header block means depends on its bytes alone."""
    return frames.settings(
        {
            Setting.HEADER_TABLE_SIZE: 0,
            Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            Setting.INITIAL_WINDOW_SIZE: WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: header_limit,
        }
    ) + frames.window_update(0, _CONNECTION_WINDOW - DEFAULT_WINDOW)
