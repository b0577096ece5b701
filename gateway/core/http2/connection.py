"""The common part of `server` and `client`: one HTTP/2 connection (RFC 9113).

The code performs no I/O: it converts received bytes to events, and method calls to bytes to send. The caller passes the
current time.

`receive` processes the peer's bytes and appends to `events`. The methods of Http2Server and Http2Client queue bytes for
the peer. `data_to_send` returns as many of the queued bytes as the peer's windows allow.

Both sides follow three rules:

- **Flow control.** Each stream has two windows: `window` limits the data that this side sends, and `room` limits the
  data that the peer sends. Data that exceeds `window` waits in `unsent`. Waiting streams take turns, and each stream
  sends one frame per turn. The connection's own receive window is as large as HTTP/2 allows, so a stream with a slow
  consumer does not block the others.
- **Closed streams are forgotten.** A stream is closed if it is missing from `streams` and has a lower number than the
  newest stream. Late frames for a closed stream affect only the connection (windows, header tables), and are otherwise
  ignored.
- **The peer's use of resources is limited.** `receive` stops after FRAMES frames, so the caller can serve other
  connections. Frames without content (pings, settings, DATA with few bytes, window updates, frames of closed streams)
  cost credit, which grows with time and with useful work. When no credit is left, the connection ends with
  GOAWAY(ENHANCE_YOUR_CALM).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gateway.core.errors import DecodeError
from gateway.core.http2 import frames
from gateway.core.http2.bounds import CREDIT_PER_SECOND, FRAMES, MOST_CREDIT, SMALL_DATA, Credit, FloodError
from gateway.core.http2.frames import (
    ACK,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER_SIZE,
    HEADERS,
    LARGEST_FRAME,
    LAST_STREAM,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    PADDED,
    PRIORITIZED,
    UNSIGNED,
    WIDENING,
    ErrorCode,
    PeerSettings,
    ViolationError,
    header,
    read_header,
)
from gateway.core.messages import Buffer

WIDEN_CONNECTION = frames.window_update(0, MAX_WINDOW - DEFAULT_WINDOW)
"""A frame that both sides send first, to make the connection's receive window as large as HTTP/2 allows."""

BYTES_PER_FRAME = 256
"""Number of header block bytes that take as much processing time as a frame."""
EARNED = 4.0
"""Credit for each piece of data sent, because peers respond to data with window updates and pings."""
_MOST_OWED = 2**16
"""Maximum size, in bytes, of the queued responses to the peer's own frames (such as pings) while the peer does not
read."""
_TOO_LARGE = (MAX_FRAME_SIZE + 1) << 8
"""The smallest first number in a frame's `HEADER` that indicates a payload that is too large."""
LEAST_ROOM = MAX_WINDOW // 2
"""Number of bytes left in the connection's receive window below which this side widens the window."""
_SETTINGS_ACK = frames.frame(frames.SETTINGS, ACK, 0, b"")


class UnsentData:
    """The unwritten part of a stream's data. Only the code that detects stalled streams uses `progress`."""

    __slots__ = ("_pieces", "progress", "size")

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self.progress: Any = None
        self._pieces = deque(memoryview(piece) for piece in pieces if len(piece))
        self.size = sum(map(len, self._pieces))

    def take(self, size: int) -> list[memoryview]:
        """Return the next `size` bytes, or all remaining bytes."""
        taken = []
        while size and self._pieces:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
            self.size -= len(piece)
        return taken


class Stream:
    """One request and its reply. Only the code that handles events uses `handler`."""

    __slots__ = (
        "announced",
        "closing",
        "handler",
        "heard",
        "id",
        "is_closed",
        "is_receiving",
        "is_sending",
        "room",
        "unsent",
        "window",
    )

    def __init__(self, number: int, window: int, room: int, now: float) -> None:
        self.id = number
        self.window = window
        """Number of bytes that this side can still send."""
        self.room = room
        """Number of bytes that the peer can still send."""
        self.is_receiving = True
        """True if the peer can send more frames."""
        self.is_sending = True
        """True if this side can send more frames."""
        self.is_closed = False
        self.announced: int | None = None
        """Number of data bytes that the peer must still send according to its content-length header; None without this
        header."""
        self.unsent: UnsentData | None = None
        self.closing: bytes | None = None
        """The frames that end this side of the stream after `unsent`. The value is empty if the last DATA frame ends
        this side, and None if more data follows."""
        self.heard = now
        """The time when the peer last sent data."""
        self.handler: Any = None


class DataReceived(NamedTuple):
    """Bytes of a stream, valid until the next `receive`. `ends` is True if the stream ends with these bytes."""

    stream: Stream
    data: memoryview
    ends: bool


class StreamReset(NamedTuple):
    """The peer cancelled the stream, or broke a rule on it.

    `code` is the peer's ErrorCode, or the code that this side has sent."""

    stream: Stream
    code: int


class DataSent(NamedTuple):
    """All of a stream's unsent data has been written, and this side of the stream has not ended."""

    stream: Stream


new_event: Callable[[type[Any], tuple[Any, ...]], Any] = tuple.__new__
"""Creates a NamedTuple from its fields in a third of the time that its constructor takes."""


class _ContinuedBlock:
    """A header block that continues in CONTINUATION frames (section 6.10).

    This class stores only as much of the block as is needed to detect that it is too large. If a block is too large,
    this side skips it, and the connection's other streams continue. If the block is longer than _MOST times the limit,
    the connection ends."""

    _MOST = 16
    """Maximum size of a skipped block, as a multiple of the limit."""
    _PER_FRAME = 16
    """Number of bytes to add for each frame, because a frame's payload can be empty."""

    __slots__ = ("_left", "_limit", "data", "flags", "stream")

    def __init__(self, stream: int, flags: int, limit: int) -> None:
        self.stream = stream
        self.flags = flags
        self.data = bytearray()
        self._limit = limit
        self._left = self._MOST * limit

    def add(self, payload: memoryview) -> None:
        """Add the payload of a frame. Raises DecodeError if the block is too long."""
        self._left -= len(payload) + self._PER_FRAME
        if self._left < 0:
            raise DecodeError("a header block without an end")
        if len(self.data) <= self._limit:
            self.data += payload


class Http2Connection(ABC):
    """The common part of both sides.

    `opening` contains the first bytes that this side sends. `room` is the initial number of bytes that the peer can
    send on each stream, as announced in `opening`. `header_limit` is the maximum size of a header block's fields, in
    bytes. For each `bytes_per_credit` bytes that this side sends, the peer can send one more frame without content.

    A subclass implements the abstract methods. It can also extend the frame handlers (`on_data` and others), `dropped`,
    `unexpected` and `sends`, and must then call this class's method."""

    def __init__(self, opening: bytes, room: int, header_limit: int, bytes_per_credit: int, now: float) -> None:
        self.events: deque[Any] = deque()
        """The events from the received bytes. The caller removes them."""
        self.streams: dict[int, Stream] = {}
        """The streams that are not closed, by number."""
        self.is_open = False
        """True after the peer has sent valid HTTP/2."""
        self.is_closed = False
        """True if this side ignores all further received bytes. The remaining bytes to send end with GOAWAY."""
        self.is_paused = False
        """True if the peer reads too slowly. The caller sets this field, and the connection then writes no data."""
        self.has_more = False
        """True if `receive` might have left complete frames unprocessed."""
        self.violation = ""
        """The rule whose violation by the peer closed the connection, if any."""
        self.block_since: float | None = None
        """The time when the current header block began; None if no header block is incomplete."""
        self.peer = PeerSettings()
        self._now = now
        self.queued: list[Buffer] = [opening]
        """The bytes that `data_to_send` returns next, before data of the `waiting` streams."""
        self._stream_room = room
        self._header_limit = header_limit
        self._bytes_per_credit = bytes_per_credit
        self._expected: int | None = frames.SETTINGS
        """The only valid type of the next frame; None if several types are valid."""
        self._is_begun = True
        """True if the connection preface, which comes before the first frame, has arrived."""
        self._frames_left = 0
        """Maximum number of frames that the current call of `receive` still processes."""
        self._block: _ContinuedBlock | None = None
        self._room = MAX_WINDOW
        self._window = DEFAULT_WINDOW
        self.waiting: deque[Stream] = deque()
        """Streams whose data waits until windows allow it, or until the peer reads."""
        self._ended_early: list[Stream] = []
        """Only for servers: streams with a complete reply to a request that has not ended."""
        self._owed = 0
        self._credit = Credit(MOST_CREDIT, CREDIT_PER_SECOND, now)
        self._on = {
            DATA: self.on_data,
            HEADERS: self.on_headers,
            frames.PRIORITY: self.on_priority,
            frames.RST_STREAM: self.on_reset,
            frames.SETTINGS: self.on_settings,
            frames.PUSH_PROMISE: self.on_push,
            frames.PING: self.on_ping,
            frames.GOAWAY: self.on_go_away,
            frames.WINDOW_UPDATE: self.on_window_update,
            frames.CONTINUATION: self.on_continuation,
        }

    # Differences between the sides.

    def receive_preface(self, data: memoryview) -> int:
        """Process the connection preface, which comes before the first frame. Return the number of processed bytes.

        Only servers implement this method, because only clients send a preface."""
        raise NotImplementedError

    @abstractmethod
    def headed(self, number: int, flags: int, block: bytes) -> None:
        """Handle a complete header block. Raises DecodeError or ViolationError."""

    @abstractmethod
    def peer_ended(self, stream: Stream) -> None:
        """Handle the end of the peer's side of the stream."""

    @abstractmethod
    def self_ended(self, stream: Stream) -> None:
        """Handle the end of this side of the stream, after writing all of its data."""

    @abstractmethod
    def break_off(self, stream: Stream, code: ErrorCode, text: str) -> None:
        """Handle the peer's violation of a rule on one stream."""

    @abstractmethod
    def was_opened(self, number: int) -> bool:
        """Return whether a stream that is not open was open before."""

    @abstractmethod
    def close(self, code: ErrorCode, text: str = "") -> None:
        """End the connection with the queued bytes and GOAWAY. This also ends all open streams."""

    # Receiving.

    def receive(self, data: memoryview, now: float) -> int:
        """Process the complete frames at the start of `data`, and append their events to `events`.

        Return the number of processed bytes. In the next call, pass the unprocessed bytes followed by newly received
        bytes. If `has_more` is True, call again with the unprocessed bytes alone."""
        self._now = now
        self.has_more = False
        if self.is_closed:
            return len(data)
        try:
            if self._is_begun:
                return self._receive_frames(data, 0)
            at = self.receive_preface(data)
            return self._receive_frames(data, at) if self._is_begun else at
        except (ViolationError, FloodError, DecodeError) as error:
            code = ErrorCode.ENHANCE_YOUR_CALM if isinstance(error, FloodError) else ErrorCode.PROTOCOL_ERROR
            self.violation = str(error)
            self.close(getattr(error, "code", code), self.violation)
        return len(data)

    def _receive_frames(self, data: memoryview, at: int) -> int:
        end = len(data)
        self._frames_left = FRAMES
        while (start := at + HEADER_SIZE) <= end:
            if self._frames_left <= 0:
                self.has_more = True
                break
            first, flags, number = read_header(data, at)
            if first >= _TOO_LARGE:
                raise _oversized(data[at:], first >> 8)
            following: int = start + (first >> 8)
            if following > end:
                break
            at, kind = following, first & 0xFF
            self._frames_left -= 1
            if self._expected is not None and kind != self._expected:
                raise DecodeError(self.unexpected(kind, data[start:at]))
            if kind == HEADERS and flags == END_HEADERS and (taken := self.receive_whole(number, data, start, at)):
                at = taken
            elif first == WIDENING:  # clients send several of these frames with each call
                self._widen(number & LAST_STREAM, UNSIGNED.unpack_from(data, start)[0] & MAX_WINDOW)
            elif (handle := self._on.get(kind)) is not None:
                handle(flags, number & LAST_STREAM, data[start:at])
            else:  # section 5.5: ignore frames of unknown types
                self._spend(1, "unknown frames")
        return at

    def unexpected(self, kind: int, payload: memoryview) -> str:
        """Return the error message for a frame of an unexpected type."""
        return f"a frame of type {kind}, expected type {self._expected}"

    @abstractmethod
    def receive_whole(self, number: int, data: memoryview, start: int, at: int) -> int:
        """Process an entire message in one step, which is possible for most messages. The message consists of its
        HEADERS frame, whose header block is from `start` to `at`, and the frames directly after it. Return the offset
        at which these frames end; 0 if they do not have the usual pattern and must be processed one by one."""

    def _widen_room(self) -> None:
        """Let the peer send more data on the connection, because fewer than LEAST_ROOM bytes of the receive window are
        left."""
        self.queued.append(frames.window_update(0, MAX_WINDOW - self._room))
        self._room = MAX_WINDOW

    def on_data(self, flags: int, number: int, payload: memoryview) -> None:
        size = len(payload)
        self._room -= size
        if self._room < LEAST_ROOM:
            self._widen_room()
        stream = self.streams.get(number)
        if stream is None:
            self.dropped(number, "DATA", size)
            return
        ends = flags & END_STREAM > 0
        data = frames.unpadded(payload, "DATA", PADDED) if flags & PADDED else payload
        if len(data) < SMALL_DATA and not ends:
            self._spend(1, "DATA frames with next to nothing in them")
        if not stream.is_receiving:
            self.break_off(stream, ErrorCode.STREAM_CLOSED, "it sent data after the end of a stream")
            return
        stream.room -= size
        if stream.room < 0:
            self.break_off(stream, ErrorCode.FLOW_CONTROL_ERROR, "it sent more than the window of a stream")
            return
        stream.heard = self._now
        if stream.announced is not None and self._breaks_length(stream, len(data), ends):
            return
        self.events.append(new_event(DataReceived, (stream, data, ends)))
        if ends:
            self.peer_ended(stream)

    def _breaks_length(self, stream: Stream, size: int, ends: bool) -> bool:
        """Return whether `size` more bytes of data violate the head's content-length.

        In this case, call `break_off` for the stream (section 8.1.1)."""
        assert stream.announced is not None
        stream.announced -= size
        if stream.announced < 0 or (ends and stream.announced):
            text = "the size of a stream's data differs from its content-length"
            self.break_off(stream, ErrorCode.PROTOCOL_ERROR, text)
            return True
        return False

    def refund_small_data(self) -> None:
        """Refund the credit for useful data: a DataReceived event with fewer than SMALL_DATA bytes that does not end
        its stream."""
        self._credit.earn(1)

    def on_headers(self, flags: int, number: int, payload: memoryview) -> None:
        if flags & (PADDED | PRIORITIZED):
            payload = frames.unpadded(payload, "HEADERS", flags)
        if flags & END_HEADERS:
            self._frames_left -= len(payload) // BYTES_PER_FRAME
            self.headed(number, flags, payload.tobytes())
            return
        self._block = _ContinuedBlock(number, flags, self._header_limit)
        self._block.add(payload)
        self.block_since = self._now
        self._expected = frames.CONTINUATION

    def on_continuation(self, flags: int, number: int, payload: memoryview) -> None:
        block = self._block
        if block is None or number != block.stream:
            raise DecodeError(f"CONTINUATION of no header block, on stream {number}")
        block.add(payload)
        if flags & END_HEADERS:
            self._block = self._expected = self.block_since = None
            self._frames_left -= len(block.data) // BYTES_PER_FRAME
            self.headed(number, block.flags, bytes(block.data))

    def on_priority(self, flags: int, number: int, payload: memoryview) -> None:
        if not number:
            raise DecodeError("PRIORITY of stream 0")
        self._spend(1, "PRIORITY frames")
        stream = self.streams.get(number)
        if len(payload) != 5 and stream is not None:  # an error of this stream only
            self.break_off(stream, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes, it has 5")
        elif len(payload) != 5:
            raise frames.FrameSizeError(f"PRIORITY of {len(payload)} bytes, it has 5")

    def on_reset(self, flags: int, number: int, payload: memoryview) -> None:
        code = frames.number(payload, "RST_STREAM")
        stream = self.streams.get(number)
        if stream is None:
            self.dropped(number, "RST_STREAM")
            return
        self._close_stream(stream)
        self.events.append(StreamReset(stream, code))

    def on_push(self, flags: int, number: int, payload: memoryview) -> None:
        raise DecodeError("PUSH_PROMISE, which this side does not accept")

    def on_window_update(self, flags: int, number: int, payload: memoryview) -> None:
        self._widen(number, frames.number(payload, "WINDOW_UPDATE"))

    def _widen(self, number: int, increment: int) -> None:
        """Add `increment` bytes to the peer's window of a stream, or of the connection if `number` is 0."""
        self._credit.spend(1, self._now, "WINDOW_UPDATE frames")
        if not number:
            if not increment:
                raise DecodeError("WINDOW_UPDATE by 0")
            self._window += increment
            if self._window > MAX_WINDOW:
                raise ViolationError(ErrorCode.FLOW_CONTROL_ERROR, f"WINDOW_UPDATE by {increment} to {self._window}")
            return
        stream = self.streams.get(number)
        if stream is None:
            self.dropped(number, "WINDOW_UPDATE")
        elif not increment:
            self.break_off(stream, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        elif stream.is_sending:  # not counted for data that was sent immediately
            stream.window += increment
            if stream.window > MAX_WINDOW:
                text = f"WINDOW_UPDATE by {increment} to {stream.window}"
                self.break_off(stream, ErrorCode.FLOW_CONTROL_ERROR, text)

    def on_settings(self, flags: int, number: int, payload: memoryview) -> None:
        if number:
            raise DecodeError(f"SETTINGS of stream {number}")
        if flags & ACK:
            if self._expected is not None:
                raise DecodeError("SETTINGS that acknowledge something, but come first")
            if len(payload):
                raise frames.FrameSizeError("SETTINGS that acknowledge something, and have values")
            self._spend(1, "SETTINGS frames")
            return
        self._spend(1 + len(payload) // 60, "SETTINGS frames")
        if widened := self.peer.take(payload):
            for stream in self.streams.values():
                stream.window += widened  # a window can become negative
                if stream.window > MAX_WINDOW and stream.is_sending:
                    raise ViolationError(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window larger than 2^31-1")
        self._answer(_SETTINGS_ACK)
        self._expected = None
        self.is_open = True

    def on_ping(self, flags: int, number: int, payload: memoryview) -> None:
        frames.check_ping(number, payload)
        self._spend(1, "PING frames")
        if not flags & ACK:
            self._answer(frames.frame(frames.PING, ACK, 0, payload))

    def on_go_away(self, flags: int, number: int, payload: memoryview) -> None:
        frames.check_go_away(number, payload)
        self._spend(1, "GOAWAY frames")

    def dropped(self, number: int, what: str, size: int = 0) -> None:
        """Handle a frame for a stream that is closed or never existed (section 5.1)."""
        if not self.was_opened(number):
            raise DecodeError(f"{what} of stream {number}, which was never opened")
        self._spend(1, "frames of closed streams")

    def _spend(self, cost: float, what: str) -> None:
        self._credit.spend(cost, self._now, what)

    def _answer(self, frame: bytes) -> None:
        """Queue the response to a frame.

        Raises DecodeError if too many responses are queued because the peer does not read them."""
        self.queued.append(frame)
        if self.is_paused:
            self._owed += len(frame)
            if self._owed > _MOST_OWED:
                raise DecodeError("it does not read the responses to its frames")
        else:
            self._owed = 0

    def _close_stream(self, stream: Stream) -> None:
        stream.is_closed = True
        stream.is_receiving = stream.is_sending = False
        if stream.unsent is not None:
            stream.unsent = None
            self.waiting.remove(stream)
        self.streams.pop(stream.id, None)

    # Sending.

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset the stream, unless it is closed."""
        if not stream.is_closed:
            self.queued.append(frames.reset(stream.id, code))
            self._close_stream(stream)

    def grant(self, stream: Stream, held: int, window: int = 0) -> None:
        """Widen the peer's window to let the stream's unread data grow to `window` bytes (default: the initial window
        of streams). `held` bytes have arrived and have not been consumed yet. This side sends a window update only if
        the update is at least half of the initial window."""
        due = (window or self._stream_room) - stream.room - held
        if due >= self._stream_room // 2 and stream.is_receiving:
            stream.room += due
            self.queued.append(frames.window_update(stream.id, due))

    def data_to_send(self) -> list[Buffer]:
        """Return the bytes to write now: about one frame if the data is large. Call this method again until it returns
        nothing, unless the peer reads too slowly."""
        if self.waiting and not self.is_paused and not self.is_closed:
            self._write_waiting()
        if self._ended_early:
            self._stop_senders()
        out, self.queued = self.queued, []
        return out

    def _stop_senders(self) -> None:
        """Send RST_STREAM(NO_ERROR) to ask clients to stop sending a request that already has a complete reply (RFC
        9113 section 8.1)."""
        for stream in self._ended_early:
            self.reset(stream, ErrorCode.NO_ERROR)
        self._ended_early = []

    @property
    def unsent_bytes(self) -> int:
        """The total number of waiting data bytes of all streams."""
        return sum(stream.unsent.size for stream in self.waiting if stream.unsent is not None)

    def _wait(self, stream: Stream, data: tuple[Buffer, ...]) -> None:
        stream.unsent = UnsentData(data)
        self.waiting.append(stream)

    def _write_waiting(self) -> None:
        """Write one frame of each waiting stream in turn, until the windows or a byte budget are exhausted."""
        waiting, budget = 0, LARGEST_FRAME
        while waiting < len(self.waiting) and self._window > 0 and budget > 0:
            stream = self.waiting.popleft()
            if stream.window <= 0:
                waiting += 1
                self.waiting.append(stream)
                continue
            waiting = 0
            budget -= self._write_frame(stream)

    def _write_frame(self, stream: Stream) -> int:
        unsent = stream.unsent
        assert unsent is not None
        size = min(unsent.size, stream.window, self._window, self.peer.frame_size)
        pieces = unsent.take(size)
        self._window -= size
        stream.window -= size
        is_last = not unsent.size
        self.queued.append(header(size, DATA, END_STREAM if is_last and stream.closing == b"" else 0, stream.id))
        self.queued += pieces
        self.sends(size)
        if not is_last:
            self.waiting.append(stream)
            return size
        stream.unsent = None
        if stream.closing is None:
            self.events.append(DataSent(stream))
        else:
            if stream.closing:
                self.queued.append(stream.closing)
            self.self_ended(stream)
        return size

    def sends(self, size: int) -> None:
        """Add credit for sent data or headers."""
        self._credit.earn(EARNED + size / self._bytes_per_credit)


def _oversized(data: memoryview, size: int) -> Exception:
    if data[:5].tobytes() == b"HTTP/" or data[:1].tobytes() == b"<":  # a page without a head, as in HTTP/0.9
        return DecodeError("it speaks HTTP/1, not HTTP/2")
    text = f"a frame of {size} bytes, at most {MAX_FRAME_SIZE} are allowed"
    return ViolationError(ErrorCode.FRAME_SIZE_ERROR, text)
