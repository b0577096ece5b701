"""Functions and classes that find what has stalled on a connection:

- a request that has stopped arriving, or arrives too slowly,
- a stream in which neither side sends messages,
- a reply that the client receives too slowly,
- a frame or header block that does not end. The connection monitors it, because the gateway cannot assign an incomplete
  frame to a call.

The caller passes the time.
"""

import typing
from math import inf

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.http2.connection import Http2Connection, Stream
from gateway.core.http2.frames import DATA, END_HEADERS, HEADER_SIZE, HEADERS, ErrorCode
from gateway.core.messages import Buffer
from gateway.core.surviving import log_and_continue
from gateway.transports.timeouts import ReplyProgress, Timeouts


class _Call(typing.Protocol):
    """The attributes of a call that this module checks (see ServerCall)."""

    arriving_since: float
    arrived_bytes: int

    @property
    def is_arriving(self) -> bool: ...
    def idle_for_too_long(self, now: float) -> str | None: ...
    def fail(self, error: GatewayError) -> None: ...
    def cancel(self) -> None: ...


def end_stalled(http2: Http2Connection, timeouts: Timeouts, looked: float, now: float) -> None:
    """End the streams of `http2` that have stalled for longer than `timeouts` allow.

    `looked` is the time of the previous check. While the client does not read from the connection, the elapsed time
    does not count against any stream's reply. The connection's own check then applies."""
    for stream in list(http2.streams.values()):
        with log_and_continue("checking a gRPC stream"):
            _end_if_stalled(stream, http2, timeouts, looked, now)


def _end_if_stalled(stream: Stream, http2: Http2Connection, timeouts: Timeouts, looked: float, now: float) -> None:
    call: _Call | None = stream.handler
    if call is not None:
        late = _too_slow(call, stream, now, timeouts) if call.is_arriving else call.idle_for_too_long(now)
        if late is not None:
            call.fail(refusal(Reason.REQUEST_TIMEOUT, late))
            return
    unsent = stream.unsent
    if unsent is None:
        return
    if unsent.progress is None:
        unsent.progress = ReplyProgress(unsent.size, now)
        return
    if http2.is_paused:
        unsent.progress.excuse(now - looked)
    if unsent.progress.is_too_slow(unsent.size, now, timeouts):
        http2.reset(stream, ErrorCode.CANCEL)
        if call is not None:
            call.cancel()


def _too_slow(call: _Call, stream: Stream, now: float, timeouts: Timeouts) -> str | None:
    """Return the reason to end the arriving message, or None if the message can continue. While the stream's window is
    closed, the client cannot send data, so only the time limit for the entire message applies."""
    if stream.room > 0 and now - stream.heard > timeouts.body:
        return f"nothing of the message came for {timeouts.body:g} s"
    waited = now - call.arriving_since
    if waited > timeouts.message:
        return f"the message did not arrive within {timeouts.message:g} s"
    if stream.room > 0 and waited > timeouts.body + call.arrived_bytes / timeouts.rate:
        return f"the message came at less than {timeouts.rate:g} bytes a second"
    return None


_TYPE, _FLAGS = 3, 4
"""The positions of the type and the flags in a frame's header."""


class ArrivingFrame:
    """The incomplete frame or header block, if any, that is arriving on one connection."""

    __slots__ = ("_block_since", "_data_bytes", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """The time when the frame or block began; None if all frames are complete."""
        self._block_since: float | None = None
        """The most recent `block_since` from the connection."""
        self._data_bytes = 0
        """The size of the incomplete frame in bytes, if it is DATA."""

    def note(self, read: Buffer, rest: bytes, block_since: float | None, now: float) -> None:
        """Record received bytes. `read` contains all of them, from the start of a frame, and `rest` is the incomplete
        frame at the end. `block_since` is the time when the first complete frame of the arriving header block was
        received."""
        goes_on = self.since is not None and len(rest) == len(read)
        is_block, is_same_block = block_since is not None, block_since == self._block_since
        self._block_since = block_since
        self._data_bytes = len(rest) if len(rest) > _TYPE and rest[_TYPE] == DATA else 0
        if is_block:
            if not is_same_block and not (self.since is not None and _opens_block(read)):
                self.since = block_since
        elif not rest:
            self.since = None
        elif not goes_on:
            self.since = now

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, during which the gateway did not read from the client."""
        if self.since is not None:
            self.since += seconds

    def seconds_left(self, now: float, timeouts: Timeouts) -> float:
        """Return the number of seconds until the frame or block must be complete; infinity if all frames are complete.

        A DATA frame has the time limit of a message. All other frames have the time limit of a head."""
        if self.since is None:
            return inf
        seconds = timeouts.body + self._data_bytes / timeouts.rate if self._data_bytes else timeouts.head
        return self.since + seconds - now

    def why_late(self, timeouts: Timeouts) -> str:
        """Return the error message for a frame or header block that is too late."""
        if self._data_bytes:
            return f"a DATA frame came at less than {timeouts.rate:g} bytes a second"
        what = "a frame" if self._block_since is None else "a header block"
        return f"{what} did not end within {timeouts.head:g} s"


def _opens_block(read: Buffer) -> bool:
    """Return whether the first frame in `read` begins a header block that consists of several frames."""
    is_open = len(read) >= HEADER_SIZE and read[_TYPE] == HEADERS
    return is_open and not read[_FLAGS] & END_HEADERS
