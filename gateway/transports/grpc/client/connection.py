"""One connection to a gRPC server: what the event loop says of it, handed to HTTP/2 and to the calls; and its times.

    connecting --transport--> opening --the server's SETTINGS--> ready --GOAWAY, or its address is gone--> retired
                                 |                                 |                                          |
                                 +---- broken off, aborted, or the server breaks HTTP/2 ----> closed <--------+
                                                                                            the last call is over

Calls begin only while it is ready. A retired connection lets its calls end. While calls run and nothing comes for
`timeouts.silence` seconds, the server is asked by a PING whether it is there.
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
from gateway.core.errors import Status, TransportError
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
from gateway.core.http2.frames import MAX_FRAME_SIZE, ErrorCode, error_name
from gateway.core.protocol import Limits
from gateway.core.types import Buffer
from gateway.transports.errors import connector_closed, deadline_passed, how_lost, unreachable
from gateway.transports.grpc.client import failures
from gateway.transports.grpc.client.call import ClientCall
from gateway.transports.grpc.client.timeouts import EndpointTimeouts
from gateway.transports.grpc.messages import framed
from gateway.transports.protocol_hints import FIRST_BYTES, foreign
from gateway.transports.sockets import keep_probing

_SCRATCH_BYTES = 8 * MAX_FRAME_SIZE
"""Bytes received at a time."""

_STUCK = 2**20
"""Bytes that wait to be written. Messages are no more than a frame of them: the heads and resets of calls have piled
up before a server that does not read."""

_ENDS_AT_DEADLINE = frozenset({Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""The statuses with which servers end calls whose deadline has passed."""


class GrpcConnectionObserver(typing.Protocol):
    """The observer that a GrpcClientConnection reports its state to."""

    def opened(self, connection: "GrpcClientConnection") -> None: ...
    def changed(self) -> None: ...
    def freed(self) -> None: ...
    def retired(self, connection: "GrpcClientConnection") -> None: ...
    def lost(self, connection: "GrpcClientConnection") -> None: ...


class GrpcClientConnection(asyncio.BufferedProtocol):
    """`ready` is done once the server has spoken HTTP/2, or fails with a TransportError."""

    def __init__(
        self, place: Address, limits: Limits, timeouts: EndpointTimeouts, owner: GrpcConnectionObserver
    ) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._owner = owner
        self._transport: asyncio.Transport
        self._http2 = Http2Client(limits.headers, self.loop.time())
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._taken = 0
        """Where the bytes begin that had no turn yet, or are an incomplete frame."""
        self._filled = 0
        """Where they end."""
        self._alarm = Alarm(self.loop, self._expire)
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self._is_yielding = False
        self._unwritten = 0
        """Calls that have begun and wait to be written together."""
        self.is_retired = False
        """Whether it begins no more calls."""
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
        """Whether the server takes a further call now."""
        http2 = self._http2
        if len(http2.streams) >= http2.peer.most_streams or self.is_retired:
            return False
        return not http2.is_paused or self._transport.get_write_buffer_size() <= _STUCK

    def begin(self, call: ClientCall, head: bytes, parts: tuple[Buffer, ...], deadline: float | None) -> None:
        """Write `call` with the header block `head` and the message of `parts`. Whoever waits for it no more says
        `give_up`; at the `deadline` a streamed call is given up anyway."""
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
        if http2.is_used_up:
            self.retire()

    def give_up(self, call: ClientCall) -> None:
        """Nobody waits any more: the server is told, unless the call is over."""
        if call.stream.handler is not None:
            self._http2.cancel(call.stream)
            self._end(call)
            self._flush()

    def pulled(self, call: ClientCall) -> None:
        """There is room for more of a streamed call."""
        if call.stream.handler is not None:
            self._http2.grant(call.stream, call.held)
            self._flush()

    def retire(self) -> None:
        """Begin no more calls; close when the last one is over."""
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self._http2.streams:
            self._close()

    def abort(self, error: TransportError | None = None) -> None:
        """Close at once; calls that are not over fail with `error`, by default that the connector is closed."""
        self._transport.abort()
        self._fail(error or connector_closed(sent=True))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        keep_probing(transport.get_extra_info("socket"))
        self._flush()
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into: behind what is incomplete."""
        return self._scratch[self._filled :] if self._filled else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """The server sent something."""
        if self._http2.is_closed:
            return
        self._is_pinged = False
        self._filled += nbytes
        self._work(TURN)

    def eof_received(self) -> None:
        """The server has closed."""
        self._work(inf)
        self._fail(self._broken_off("closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side."""
        self._work(inf)
        self._fail(self._broken_off(how_lost(exc)))
        self._alarm.stop()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The server reads too slowly."""
        self._http2.is_paused = True

    def resume_writing(self) -> None:
        """The server has read most of what there was."""
        self._http2.is_paused = False
        self._flush()
        self._owner.changed()

    # Work.

    def _work(self, seconds: float) -> None:
        """Take the frames that have come, for so long; then let others go on."""
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
                self._fail(unreachable(f"the connection was given up: {http2.violation}{self._foreign}", sent=True))
            return
        if self._taken == self._filled:
            self._taken = self._filled = 0
        elif not http2.has_more:
            self._keep_incomplete()
        if http2.streams:
            self._alarm.set(self._timeouts.silence)
        if seconds == inf:  # it is closed: nothing can be written
            return
        if http2.queued or http2.waiting:
            self._flush()
        if http2.has_more or perf_counter() - begun > SHORT_TURN:
            self._yield()

    def _keep_incomplete(self) -> None:
        """Move the beginning of a frame to where the rest of it can be received."""
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
        """Write what is queued, as far as the server reads it."""
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
        """Write a call together with those that begin before the loop's next turn, at most TOGETHER at once."""
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
            if call.end.status and call.end.status in _ENDS_AT_DEADLINE and call.is_late(self.loop.time()):
                call.fail(deadline_passed(sent=True))  # the server was only the first to notice
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
        """It is over. The stream lets go of it, so that no cycle keeps its replies until the collector runs."""
        call.stream.handler = None
        if call.deadline is not None:
            call.deadline.drop()
        self._owner.freed()
        if not self._http2.streams:
            self._alarm.silence()
            if self.is_retired:
                self._close()

    def _fail(self, error: TransportError) -> None:
        """Nothing more comes."""
        self._http2.is_closed = True
        if not self.is_retired:
            self.is_retired = True
            self._owner.retired(self)
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # nobody may be waiting for it
        for stream in list(self._http2.streams.values()):
            call: ClientCall | None = stream.handler
            if call is not None:
                call.fail(error)
                self._end(call)
        self._http2.streams.clear()

    def _close(self) -> None:
        self._http2.close(ErrorCode.NO_ERROR)  # unless the server broke HTTP/2: then it is told so
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()
            self._alarm.set(self._timeouts.close)

    def _broken_off(self, how: str) -> TransportError:
        return unreachable(f"the connection was {how} without a reply{self._foreign}", sent=True)

    @property
    def _foreign(self) -> str:
        """The protocol that seems to answer in place of an HTTP/2 server, in words for the end of an error."""
        return "" if self.ready.done() else foreign(bytes(self._scratch[: min(self._filled, FIRST_BYTES)]), "grpc")

    def _expire(self) -> None:
        """Nothing came for a while, though there are calls; or the transport does not close."""
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
