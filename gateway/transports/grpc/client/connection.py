"""One HTTP/2 connection to an endpoint, RFC 9113, as a client of gRPC needs it."""

import asyncio
import typing
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import inf
from struct import Struct
from time import perf_counter
from typing import cast

from gateway.core.address import Address
from gateway.core.alarm import Alarm
from gateway.core.errors import DecodeError, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Buffer
from gateway.http2 import frames
from gateway.http2.bounds import (
    CREDIT_PER_SECOND,
    FRAMES,
    MOST_CREDIT,
    SHORT_TURN,
    SMALL_DATA,
    TURN,
    Credit,
    FloodError,
)
from gateway.http2.connection import _ContinuedBlock as ContinuedBlock
from gateway.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITIZED,
    ErrorCode,
    Frame,
    FrameReader,
    Setting,
)
from gateway.transports.errors import connector_closed, deadline_passed, unreachable
from gateway.transports.grpc.client import failures
from gateway.transports.grpc.client.call import WINDOW, Call
from gateway.transports.grpc.client.sending import Sender
from gateway.transports.grpc.client.timeouts import Timeouts
from gateway.transports.sockets import keep_probing

_CONNECTION_WINDOW = frames.MAX_WINDOW
"""Each stream has a window of its own; one that is not pulled from must not hold up the others."""

_OPENING = frames.PREFACE + frames.settings(
    {
        # What a header block means then depends on its bytes alone.
        Setting.HEADER_TABLE_SIZE: 0,
        Setting.ENABLE_PUSH: 0,
        Setting.INITIAL_WINDOW_SIZE: WINDOW,
    }
)
_WIDENING = frames.window_update(0, _CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
_GOING_AWAY = Struct(">LL")
"""The last stream, with a reserved bit, and the error code; then what is meant for people."""

_PING = frames.frame(frames.PING, 0, 0, b"gateway?")
_SETTINGS_ACK = frames.frame(frames.SETTINGS, ACK, 0, b"")


_EARNED = 4.0
"""Frames without content that a call may bring: window updates, pings, a reset behind its end."""
_BYTES_PER_CREDIT = 1024
"""The same of its message: servers widen their windows as they read it."""


class Owner(typing.Protocol):
    """Whom a Connection tells what became of it."""

    def opened(self, connection: "Connection") -> None: ...
    def changed(self) -> None: ...
    def freed(self) -> None: ...
    def retired(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """`ready` is done once the endpoint has spoken HTTP/2, or fails with a TransportError."""

    def __init__(self, place: Address, limits: Limits, timeouts: Timeouts, owner: Owner) -> None:
        self.place = place
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._timeouts = timeouts
        self._owner = owner
        self._transport: asyncio.Transport
        self._sender: Sender
        self._reader = FrameReader()
        self._alarm = Alarm(self._loop, self._expire)
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._calls: dict[int, Call] = {}
        self._next_stream = 1
        self._most_calls = frames.LAST_STREAM
        self._room = _CONNECTION_WINDOW
        self._expected: int | None = frames.SETTINGS
        """The only type that the next frame may have, if there is but one."""
        self._block: ContinuedBlock | None = None
        self._frames: Iterator[Frame] = iter(())
        """What was received and had no turn yet; nothing more is read meanwhile."""
        self._is_yielding = False
        self._credit = Credit(MOST_CREDIT, CREDIT_PER_SECOND, self._loop.time())
        self._strays = 0
        """Bytes that may still come of calls that were given up: what their windows had room for."""
        self.is_retired = False
        """Whether it begins no more calls."""
        self._is_pinged = False
        self._is_closed = False
        self._on: Mapping[int, Callable[[int, int, memoryview], None]] = {
            frames.DATA: self._on_data,
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

    # Calls.

    @property
    def has_room(self) -> bool:
        """Whether the endpoint takes a further call now."""
        return len(self._calls) < self._most_calls and not self.is_retired and not self._sender.is_stuck

    def begin(self, call: Call, head: bytes, parts: tuple[Buffer, ...], deadline: float | None) -> None:
        """Write `call` with the header block `head` and the message of `parts`. Whoever waits for it no more says
        `give_up`; at the `deadline` it is given up anyway."""
        call.stream = self._next_stream
        self._next_stream += 2
        self._calls[call.stream] = call
        if deadline is not None:
            call.timer = self._loop.call_at(deadline, self._too_late, call)
        self._credit.earn(_EARNED + sum(map(len, parts)) / _BYTES_PER_CREDIT)
        if len(self._calls) == 1:
            self._is_pinged = False
            self._alarm.set(self._timeouts.silence)
        self._sender.begin(call, head, parts)
        if self._next_stream > frames.LAST_STREAM:
            self.retire()

    def give_up(self, call: Call) -> None:
        """Nobody waits any more: the endpoint is told, unless the call is over."""
        if call.stream in self._calls:
            self._strays = min(self._strays + call.room, frames.MAX_WINDOW)
            self._write_reset(call, ErrorCode.CANCEL)
            self._end(call)

    def pulled(self, call: Call) -> None:
        """There is room for more of a streamed call."""
        if call.stream in self._calls:
            self._grant(call)

    def retire(self) -> None:
        """Begin no more calls; close when the last one is over."""
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self._calls:
            self._close(ErrorCode.NO_ERROR)

    def abort(self, error: TransportError | None = None) -> None:
        """Close at once; calls that are not over fail with `error`, by default that the connector is closed."""
        self._transport.abort()
        self._fail(error or connector_closed(sent=True))

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        keep_probing(transport.get_extra_info("socket"))
        self._sender = Sender(self._transport)
        self._transport.write(_OPENING + _WIDENING)
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into."""
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The endpoint sent something."""
        if self._is_closed:
            return
        self._is_pinged = False
        self._frames = self._reader.received(nbytes)
        self._work(TURN)

    def eof_received(self) -> None:
        """The endpoint has closed."""
        self._work(inf)
        self._fail(self._broken_off("closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side."""
        self._work(inf)
        self._fail(self._broken_off("closed" if exc is None else "reset"))
        self._alarm.stop()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The endpoint reads too slowly."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """The endpoint has read most of what there was."""
        self._sender.resume()
        self._owner.changed()

    # Work.

    def _work(self, seconds: float) -> None:
        """Take the frames that have come, for so long; then let others go on."""
        begun = perf_counter()
        try:
            while (has_more := self._take_frames()) and perf_counter() - begun < seconds:
                pass
        except DecodeError as error:
            self._break(error, ErrorCode.PROTOCOL_ERROR)
        except FloodError as error:
            self._break(error, ErrorCode.ENHANCE_YOUR_CALM)
        if self._is_closed:
            return
        if self._calls:
            self._alarm.set(self._timeouts.silence)
        if has_more or (seconds < inf and perf_counter() - begun > SHORT_TURN):
            self._yield()

    def _take_frames(self) -> bool:
        """Whether there may be more of them."""
        taken = 0
        for kind, flags, stream, payload in islice(self._frames, FRAMES):
            taken += 1
            if self._expected is not None and kind != self._expected:
                raise DecodeError(f"a frame of type {kind}, expected type {self._expected}")
            if kind in self._on:
                self._on[kind](flags, stream, payload)
            else:  # RFC 9113 section 5.5: they are to be ignored
                self._spend(1, "unknown frames")
        return taken == FRAMES and not self._is_closed

    def _yield(self) -> None:
        if not self._is_yielding:
            self._is_yielding = True
            self._transport.pause_reading()
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_yielding = False
        if self._is_closed:
            return
        self._work(TURN)
        if not self._is_yielding and not self._is_closed:
            self._transport.resume_reading()

    def _spend(self, cost: float, what: str) -> None:
        self._credit.spend(cost, self._loop.time(), what)

    # Frames of calls. Those of calls that are over may come for a while.

    def _on_data(self, flags: int, stream: int, payload: memoryview) -> None:
        size = len(payload)
        self._room -= size
        if self._room < _CONNECTION_WINDOW // 2:
            self._transport.write(frames.window_update(0, _CONNECTION_WINDOW - self._room))
            self._room = _CONNECTION_WINDOW
        call = self._calls.get(stream)
        if call is None:
            self._check_opened(stream, "DATA")
            self._strayed(size)
            return
        call.take_room(size)
        data = frames.unpadded(payload, "DATA", PADDED) if flags & PADDED else payload
        try:
            is_complete = call.received(data, ends=flags & END_STREAM > 0)
        except TransportError as error:
            self._give_up(call, error)
            return
        if len(data) < SMALL_DATA and not is_complete:
            self._spend(1, "DATA frames with next to nothing in them")
        self._grant(call)

    def _strayed(self, size: int) -> None:
        """DATA of a call that is over: of one that was given up, as much may come as its window had room for."""
        if 0 < size <= self._strays:
            self._strays -= size
        else:
            self._spend(1 + size / _BYTES_PER_CREDIT, "frames of closed streams")

    def _on_headers(self, flags: int, stream: int, payload: memoryview) -> None:
        if flags & (PADDED | PRIORITIZED):
            payload = frames.unpadded(payload, "HEADERS", flags)
        if not flags & END_HEADERS:
            self._block = ContinuedBlock(stream, flags, self._limits.headers)
            self._block.add(payload)
            self._expected = frames.CONTINUATION
        else:
            self._headed(stream, flags, payload.tobytes())

    def _on_continuation(self, flags: int, stream: int, payload: memoryview) -> None:
        block = self._block
        if block is None or stream != block.stream:
            raise DecodeError(f"CONTINUATION of no header block, on stream {stream}")
        block.add(payload)
        if flags & END_HEADERS:
            self._block = self._expected = None
            self._headed(stream, block.flags, bytes(block.data))

    def _headed(self, stream: int, flags: int, block: bytes) -> None:
        call = self._calls.get(stream)
        if call is None:
            self._check_opened(stream, "HEADERS")
            self._spend(1, "frames of closed streams")
            return
        try:
            call.headed(block, ends=flags & END_STREAM > 0)
        except TransportError as error:
            self._give_up(call, error)
            return
        if call.end is None:
            self._spend(1, "heads of one reply")
        else:
            if call.end.status == Status.DEADLINE_EXCEEDED and call.is_late(self._loop.time()):
                call.fail(deadline_passed(sent=True))  # the endpoint was only the first to notice
            if call.unsent is not None:  # it did not want to have it all
                self._write_reset(call, ErrorCode.NO_ERROR)
            self._end(call)

    def _on_priority(self, flags: int, stream: int, payload: memoryview) -> None:
        if not stream:
            raise DecodeError("PRIORITY of no stream")
        self._spend(1, "PRIORITY frames")

    def _on_reset(self, flags: int, stream: int, payload: memoryview) -> None:
        code = frames.number(payload, "RST_STREAM")
        self._check_opened(stream, "RST_STREAM")
        call = self._calls.get(stream)
        if call is None:
            self._spend(1, "frames of closed streams")
            return
        call.fail(failures.reset(code))
        self._end(call)

    def _on_push(self, flags: int, stream: int, payload: memoryview) -> None:
        raise DecodeError("PUSH_PROMISE, though pushing was refused")

    def _on_window_update(self, flags: int, stream: int, payload: memoryview) -> None:
        increment = frames.number(payload, "WINDOW_UPDATE")
        if not increment:
            raise DecodeError("WINDOW_UPDATE by 0")
        self._spend(1, "WINDOW_UPDATE frames")
        if not stream:
            self._sender.widen(increment)
            return
        self._check_opened(stream, "WINDOW_UPDATE")
        call = self._calls.get(stream)
        if call is not None and call.unsent is not None:
            self._sender.widen_call(call, increment)

    # Frames of the connection.

    def _on_settings(self, flags: int, stream: int, payload: memoryview) -> None:
        if stream:
            raise DecodeError(f"SETTINGS of stream {stream}")
        if flags & ACK:
            if self._expected is not None or len(payload):
                raise DecodeError("an acknowledgement of SETTINGS that is none")
            self._spend(1, "SETTINGS frames")
            return
        self._spend(1 + len(payload) / 60, "SETTINGS frames")
        most_calls = self._most_calls
        # Of each setting the last value counts: a frame has room for thousands.
        for name, number in dict(frames.read_settings(payload)).items():
            self._set(name, number)
        self._sender.control(_SETTINGS_ACK)
        self._sender.write_on()
        if self._expected is None:
            if self._most_calls > most_calls:
                self._owner.changed()
            return
        self._expected = None
        if not self.ready.done():
            self.ready.set_result(None)

    def _set(self, name: int, number: int) -> None:
        """RFC 9113 section 6.5.2: those that are not known are to be ignored."""
        match name:
            case Setting.MAX_CONCURRENT_STREAMS:
                self._most_calls = number
            case Setting.INITIAL_WINDOW_SIZE if number <= frames.MAX_WINDOW:
                self._sender.set_initial_window(number)
            case Setting.MAX_FRAME_SIZE if frames.MAX_FRAME_SIZE <= number < 2**24:
                self._sender.set_frame_size(number)
            case Setting.INITIAL_WINDOW_SIZE | Setting.MAX_FRAME_SIZE:
                raise DecodeError(f"it sets {Setting(name).name} to {number}")

    def _on_ping(self, flags: int, stream: int, payload: memoryview) -> None:
        if stream or len(payload) != 8:
            raise DecodeError(f"PING of {len(payload)} bytes and stream {stream}, it has 8 and 0")
        self._spend(1, "PING frames")
        if not flags & ACK:
            self._sender.control(frames.frame(frames.PING, ACK, 0, payload))

    def _on_go_away(self, flags: int, stream: int, payload: memoryview) -> None:
        """RFC 9113 section 6.8: streams above the last that it counts "were not or will not be processed"."""
        if stream or len(payload) < 8:
            raise DecodeError(f"GOAWAY of {len(payload)} bytes and stream {stream}, it has 8 at least and 0")
        self._spend(1, "GOAWAY frames")
        last, code = _GOING_AWAY.unpack_from(payload)
        text = f"the endpoint takes no more calls on this connection: {frames.error_name(code)}"
        for call in [call for each, call in self._calls.items() if each > last & frames.LAST_STREAM]:
            call.fail(unreachable(text, sent=False))
            self._end(call)
        self.retire()

    # Ends.

    def _check_opened(self, stream: int, what: str) -> None:
        """Raises DecodeError if there never was a call of `stream`."""
        if stream % 2 == 0 or stream >= self._next_stream:
            raise DecodeError(f"{what} of stream {stream}, which was never opened")

    def _grant(self, call: Call) -> None:
        size = call.grant()
        if size:
            self._transport.write(frames.window_update(call.stream, size))

    def _too_late(self, call: Call) -> None:
        self._give_up(call, deadline_passed(sent=True))

    def _give_up(self, call: Call, error: TransportError) -> None:
        call.fail(error)
        self.give_up(call)

    def _write_reset(self, call: Call, code: ErrorCode) -> None:
        self._transport.write(frames.reset(call.stream, code))

    def _end(self, call: Call) -> None:
        """It is over, and no more of it is written."""
        del self._calls[call.stream]
        if call.unsent is not None:
            self._sender.drop(call)
        if call.timer is not None:
            call.timer.cancel()
        self._owner.freed()
        if not self._calls:
            self._alarm.silence()
            if self.is_retired:
                self._close(ErrorCode.NO_ERROR)

    def _fail(self, error: TransportError) -> None:
        """Nothing more comes."""
        self._is_closed = True
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # nobody may be waiting for it
        for call in list(self._calls.values()):
            call.fail(error)
            self._end(call)

    def _break(self, error: DecodeError | FloodError, code: ErrorCode) -> None:
        """The endpoint does not keep to HTTP/2, or sends more than it may that carries nothing."""
        self._close(code)
        self._fail(unreachable(f"the connection was given up: {error}", sent=True))

    def _close(self, code: ErrorCode) -> None:
        self._is_closed = True
        if not self._transport.is_closing():
            self._transport.write(frames.go_away(code))
            self._transport.close()
            self._alarm.set(self._timeouts.close)

    def _broken_off(self, how: str) -> TransportError:
        return unreachable(f"the connection was {how} without a reply", sent=True)

    def _expire(self) -> None:
        """Nothing came for a while, though there are calls; or the transport does not close."""
        if self._is_closed:
            self._transport.abort()
        elif self._is_pinged:
            text = f"no answer to a PING within {self._timeouts.answer:g} s"
            self.abort(unreachable(text, sent=True))
        else:
            self._is_pinged = True
            self._transport.write(_PING)
            self._alarm.set(self._timeouts.answer)
