"""One connection to a gRPC server.

The connection forwards the event loop's callbacks to HTTP/2 and to the calls, and enforces time limits.

    connecting --transport--> opening --the server's SETTINGS--> ready --GOAWAY, or its address is gone--> retired
                                 |                                 |                                          |
                                 +---- broken off, aborted, or the server breaks HTTP/2 ----> closed <--------+
                                                                                            the last call is over

Calls begin only in the state `ready`. A retired connection completes its calls. If calls are in flight and no data
arrives for `timeouts.silence` seconds, the gateway sends a PING to check the server.
"""

import asyncio
import typing
from collections.abc import Callable, Mapping
from math import inf
from time import perf_counter
from typing import Any, cast

from gateway.core.address import Address
from gateway.core.alarm import Alarm
from gateway.core.deadlines import deadlines
from gateway.core.errors import RETRY_HEADER, Status, TransportError
from gateway.core.http2.bounds import SHORT_TURN, SMALL_DATA, TOGETHER, TURN
from gateway.core.http2.client import (
    Event,
    GoneAway,
    HeadersReceived,
    Http2Client,
    ReplyReceived,
    SettingsReceived,
)
from gateway.core.http2.connection import DataReceived, StreamReset
from gateway.core.http2.frames import LAST_STREAM, MAX_FRAME_SIZE, ErrorCode, error_name
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.transports.errors import connector_closed, deadline_passed, how_lost, unreachable
from gateway.transports.grpc.client import failures
from gateway.transports.grpc.client.call import ClientCall
from gateway.transports.grpc.client.heads import ResponseHead
from gateway.transports.grpc.messages import framed
from gateway.transports.protocol_hints import FIRST_BYTES, foreign
from gateway.transports.sockets import keep_probing
from gateway.transports.timeouts import GrpcEndpointTimeouts

_SCRATCH_BYTES = 8 * MAX_FRAME_SIZE
"""The number of bytes to receive in one step."""

_STUCK = 2**20
"""The number of unwritten bytes above which the connection accepts no more calls.

At most one frame of these bytes belongs to messages. The rest consists of heads and resets of calls, which accumulate
if the server does not read."""

_ENDS_AT_DEADLINE = frozenset({Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""The statuses with which servers end calls after the deadline."""


def _says_deadline_passed(end: ResponseHead) -> bool:
    """Return True if the server has ended the call only because of the deadline.

    The result is False for an error with a retry delay, because this error is more informative. Another gateway sends
    this error for a call that waited for a free slot until the deadline."""
    return end.status in _ENDS_AT_DEADLINE and not end.metadata.get(RETRY_HEADER)


class GrpcConnectionObserver(typing.Protocol):
    """The observer (the pool) to which a GrpcClientConnection reports its state."""

    def opened(self, connection: "GrpcClientConnection") -> None: ...
    def changed(self) -> None: ...
    def freed(self) -> None: ...
    def retired(self, connection: "GrpcClientConnection") -> None: ...
    def lost(self, connection: "GrpcClientConnection") -> None: ...


class GrpcClientConnection(asyncio.BufferedProtocol):
    """One connection. The future `ready` is done when the server has sent valid HTTP/2. If the connection fails before
    then, the future fails with a TransportError."""

    def __init__(
        self, place: Address, limits: Limits, timeouts: GrpcEndpointTimeouts, owner: GrpcConnectionObserver
    ) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._owner = owner
        self._transport: asyncio.Transport
        self._http2 = Http2Client(limits.headers, self.loop.time())
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._taken = 0
        """The start of the unprocessed bytes, which can be an incomplete frame."""
        self._filled = 0
        """The end of the unprocessed bytes."""
        self._alarm = Alarm(self.loop, self._expire)
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self._is_yielding = False
        self._unwritten = 0
        """The number of new calls that are waiting to be written together."""
        self.is_retired = False
        """True if the connection accepts no more calls."""
        self._is_pinged = False
        self._on: Mapping[type[Event], Callable[[Any], None]] = {
            ReplyReceived: self._on_reply,
            DataReceived: self._on_data,
            HeadersReceived: self._on_headers,
            StreamReset: self._on_reset,
            SettingsReceived: self._on_settings,
            GoneAway: self._on_gone_away,
        }

    # Calls.

    @property
    def has_room(self) -> bool:
        """True if the server accepts another call now."""
        http2 = self._http2
        if len(http2.streams) >= http2.peer.most_streams or self.is_retired:
            return False
        return not http2.is_paused or self._transport.get_write_buffer_size() <= _STUCK

    def begin(self, call: ClientCall, head: bytes, parts: tuple[Buffer, ...], deadline: float | None) -> None:
        """Write `call` with the header block `head` and a message that consists of `parts`. A caller that stops waiting
        must call `give_up`. The connection itself cancels a streamed call at the `deadline`."""
        http2 = self._http2
        call.stream = http2.request(head, framed(parts), call)
        if deadline is not None:
            call.ends_at = deadline
            if call.is_streamed:
                call.deadline = deadlines().add(deadline, self._too_late, call)
        if len(http2.streams) == 1:
            self._is_pinged = False
            self._alarm.set(self._timeouts.silence)
            self._flush()
        else:
            self._flush_together()
        if call.stream.id == LAST_STREAM:
            self.retire()

    def give_up(self, call: ClientCall) -> None:
        """Cancel the call and notify the server, because the caller no longer waits. If the call has already ended, do
        nothing."""
        if call.stream.handler is not None:
            self._http2.cancel(call.stream)
            self._end(call)
            self._flush()

    def pulled(self, call: ClientCall) -> None:
        """Allow the server to send more data of a streamed call, because the caller has pulled replies."""
        if call.stream.handler is not None:
            self._http2.grant(call.stream, call.held)
            self._flush()

    def retire(self) -> None:
        """Begin no more calls, and close the connection after the last call has ended."""
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self._http2.streams:
            self._close()

    def abort(self, error: TransportError | None = None) -> None:
        """Close the connection immediately. Calls in flight fail with `error` or, by default, with the error for a
        closed connector."""
        self._transport.abort()
        self._fail(error or connector_closed(sent=True))

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the new connection."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has the interface, but is no subclass
        keep_probing(transport.get_extra_info("socket"))
        self._flush()
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes, which follow the incomplete frame."""
        return self._scratch[self._filled :] if self._filled else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the server."""
        if self._http2.is_closed:
            return
        self._is_pinged = False
        self._filled += nbytes
        self._work(TURN)

    def eof_received(self) -> None:
        """Handle the end of the server's data."""
        self._work(inf)
        self._fail(self._broken_off("closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        self._work(inf)
        self._fail(self._broken_off(how_lost(exc)))
        self._alarm.stop()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """Pause writing, because the server reads too slowly."""
        self._http2.is_paused = True

    def resume_writing(self) -> None:
        """Resume writing after the server has read most of the data."""
        self._http2.is_paused = False
        self._flush()
        self._owner.changed()

    # Processing.

    def _work(self, seconds: float) -> None:
        """Process the received frames for up to `seconds`. After this time, let other connections run."""
        http2, now, begun = self._http2, self.loop.time(), perf_counter()
        events = http2.events
        while True:
            self._taken += http2.receive(self._scratch[self._taken : self._filled], now)
            while events:
                event = events.popleft()
                self._on[type(event)](event)
            if not http2.has_more or http2.is_closed or perf_counter() - begun > seconds:
                break
        if http2.is_closed:
            if http2.violation:
                self._close()
                self._fail(
                    unreachable(f"the gateway closed the connection: {http2.violation}{self._foreign}", sent=True)
                )
            return
        if self._taken == self._filled:
            self._taken = self._filled = 0
        elif not http2.has_more:
            self._keep_incomplete()
        if http2.streams:
            self._alarm.set(self._timeouts.silence)
        if seconds == inf:  # the connection is closed, so nothing can be written
            return
        if http2.queued or http2.waiting:
            self._flush()
        if http2.has_more or perf_counter() - begun > SHORT_TURN:
            self._yield()

    def _keep_incomplete(self) -> None:
        """Move an incomplete frame to the start of the buffer, where the rest of the frame is appended."""
        taken, filled = self._taken, self._filled
        self._taken, self._filled = 0, filled - taken
        self._scratch[: filled - taken] = self._scratch[taken:filled]

    def _yield(self) -> None:
        if not self._is_yielding:
            self._is_yielding = True
            self._transport.pause_reading()
            self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_yielding = False
        if self._http2.is_closed:
            return
        self._work(TURN)
        if not self._is_yielding and not self._http2.is_closed:
            self._transport.resume_reading()

    def _flush(self) -> None:
        """Write the queued data as fast as the server reads it."""
        http2, transport = self._http2, self._transport
        self._unwritten = 0
        while pieces := http2.data_to_send():
            if len(pieces) == 1:
                transport.write(pieces[0])
            else:
                transport.writelines(pieces)
            if not http2.waiting:
                return

    def _flush_together(self) -> None:
        """Write a call together with other calls that begin before the loop's next turn. One write combines at most
        TOGETHER calls."""
        self._unwritten += 1
        if self._unwritten >= TOGETHER or self._http2.is_paused:
            self._flush()
        elif self._unwritten == 1:
            self.loop.call_soon(self._flush_unwritten)

    def _flush_unwritten(self) -> None:
        if self._unwritten and not self._http2.is_closed:
            self._flush()

    def _on_reply(self, event: ReplyReceived) -> None:
        stream, head, data, trailers = event
        call: ClientCall | None = stream.handler
        if call is None:
            return
        if call.replied(head, data, trailers):
            self._end(call)
            return
        self._on_headers(HeadersReceived(stream, head, False))
        self._on_data(DataReceived(stream, data, False))
        self._on_headers(HeadersReceived(stream, trailers, True))

    def _on_data(self, event: DataReceived) -> None:
        stream = event.stream
        call: ClientCall | None = stream.handler
        if call is None:
            return
        try:
            is_complete = call.received(event.data, ends=event.ends)
        except TransportError as error:
            self._give_up(call, error)
            return
        if is_complete and len(event.data) < SMALL_DATA:
            self._http2.refund_small_data()
        self._http2.grant(stream, call.held)

    def _on_headers(self, event: HeadersReceived) -> None:
        call: ClientCall | None = event.stream.handler
        if call is None:
            return
        try:
            call.headed(event.block, ends=event.ends)
        except TransportError as error:
            self._give_up(call, error)
            return
        if call.end is not None:
            if call.end.status and _says_deadline_passed(call.end) and call.is_late(self.loop.time()):
                call.fail(deadline_passed(sent=True))  # the server only detected the deadline first
            self._end(call)

    def _on_reset(self, event: StreamReset) -> None:
        call: ClientCall | None = event.stream.handler
        if call is not None:
            is_end = event.code == ErrorCode.CANCEL and call.is_late(self.loop.time())
            call.fail(deadline_passed(sent=True) if is_end else failures.reset(event.code))
            self._end(call)

    def _on_settings(self, event: SettingsReceived) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
        elif event.more_streams:
            self._owner.changed()

    def _on_gone_away(self, event: GoneAway) -> None:
        text = f"the endpoint takes no more calls on this connection: {error_name(event.code)}"
        for stream in event.refused:
            call: ClientCall | None = stream.handler
            if call is not None:
                call.fail(unreachable(text, sent=False))
                self._end(call)
        self.retire()

    # Ends.

    def _too_late(self, call: ClientCall) -> None:
        self._give_up(call, deadline_passed(sent=True))
        self._flush()

    def _give_up(self, call: ClientCall, error: TransportError) -> None:
        call.fail(error)
        self._http2.cancel(call.stream)
        self._end(call)

    def _end(self, call: ClientCall) -> None:
        """Handle the end of a call.

        The stream drops its reference to the call, so the replies can be freed without the garbage collector."""
        call.stream.handler = None
        if call.deadline is not None:
            call.deadline.drop()
        self._owner.freed()
        if not self._http2.streams:
            self._alarm.silence()
            if self.is_retired:
                self._close()

    def _fail(self, error: TransportError) -> None:
        """End all calls with `error`, because no more data will arrive."""
        self._http2.is_closed = True
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # no caller might be waiting for it
        for stream in list(self._http2.streams.values()):
            call: ClientCall | None = stream.handler
            if call is not None:
                call.fail(error)
                self._end(call)
        self._http2.streams.clear()

    def _close(self) -> None:
        self._http2.close(ErrorCode.NO_ERROR)  # if the server broke HTTP/2, the error is already queued
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()
            self._alarm.set(self._timeouts.close)

    def _broken_off(self, how: str) -> TransportError:
        return unreachable(f"the connection was {how} without a reply{self._foreign}", sent=True)

    @property
    def _foreign(self) -> str:
        """The end of an error message, which names the protocol that the server seems to use instead of HTTP/2."""
        return "" if self.ready.done() else foreign(bytes(self._scratch[: min(self._filled, FIRST_BYTES)]), "grpc")

    def _expire(self) -> None:
        """Handle a connection that is silent while calls are in flight, or a connection that does not close."""
        if self._http2.is_closed:
            self._transport.abort()
        elif self._is_pinged:
            text = f"no answer to a PING within {self._timeouts.answer:g} s"
            self.abort(unreachable(text, sent=True))
        else:
            self._is_pinged = True
            self._http2.ping()
            self._flush()
            self._alarm.set(self._timeouts.answer)
