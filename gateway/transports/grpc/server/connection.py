"""One client's connection: what the event loop says of it, handed to HTTP/2 and to the calls; and its times.

    HEAD --the client spoke HTTP/2--> IDLE --its first request--> ANSWERING
      |                                 |                             |
      +------ too late, too idle, drained, or the client broke HTTP/2 -----> LINGERING --> CLOSED

ANSWERING is for good: gRPC's clients keep their connections. What is waited for is then looked at stream by stream.
While it drains (`is_draining`), the client is asked to send no more requests; the connection ends with the last one.
While it also stops (`is_stopping`), streams end after the message in hand.
"""

import asyncio
from collections.abc import Mapping
from math import inf
from time import perf_counter
from typing import TypeAlias

from gateway.core.alarm import Alarm
from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.frozen import frozen
from gateway.core.protocol import Limits
from gateway.core.record import UNRECORDED, Record
from gateway.core.transport import Admit, is_admitted
from gateway.core.types import Message
from gateway.http2.bounds import SHORT_TURN, TOGETHER, TURN
from gateway.http2.connection import DataReceived, DataSent, Stream, StreamReset
from gateway.http2.frames import ErrorCode
from gateway.http2.heads import RequestHeads
from gateway.http2.server import RequestReceived, RequestStarted, ServerConnection, http1_reply
from gateway.transports.grpc.server import replies
from gateway.transports.grpc.server.calls import (
    Method,
    ServerCall,
    StartRecord,
    StreamCall,
    UnaryCall,
    refused,
    stopping,
)
from gateway.transports.grpc.server.heads import RequestFault, RequestHead
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase
from gateway.transports.memory import CALL_BYTES
from gateway.transports.reply_progress import ReplyProgress
from gateway.transports.timeouts import Timeouts

SCRATCH_BYTES = 2**18
"""Bytes received at a time. A connection keeps of them only an incomplete frame, or what had no turn yet."""

_LARGEST_AT_ONCE = 2
"""How many messages of `limits.message` bytes, or smaller ones of as many bytes, may arrive at once on one connection,
beyond the window that each stream has."""

_HTTP1_REQUIRED = RequestFault("HTTP/2 is served for gRPC only: the client is told HTTP_1_1_REQUIRED", http_status=505)
"""Why a request that is no gRPC is refused at an address where HTTP/1.1 is served as well. Clients may then send it
over HTTP/1.1, RFC 9113 section 7; curl does."""

_HTTP1_REPLY = http1_reply("This port speaks gRPC, over HTTP/2\n")

Event: TypeAlias = RequestReceived[RequestHead] | RequestStarted[RequestHead] | DataReceived | StreamReset | DataSent

# Python 3.11 takes ten times as long to find a member in its class.
_IDLE, _HEAD, _ANSWERING, _CLOSED, _LINGERING = Phase.IDLE, Phase.HEAD, Phase.ANSWERING, Phase.CLOSED, Phase.LINGERING
_LAST = frozenset({_LINGERING, _CLOSED})
_MAX_METHOD = 200


@frozen
class Site(ConnectionContext):
    """The data that all connections of one listener share."""

    methods: Mapping[bytes, Method]
    heads: RequestHeads[RequestHead]
    scratch: memoryview
    record: StartRecord | None
    """Of requests that no method serves; None if nobody observes."""
    admit: Admit | None = None
    spoken: str = ""
    """The protocols of the listener, for errors."""
    shares_http1: bool = False
    """Whether requests that are no gRPC are served over HTTP/1.1 at the same address."""


class GrpcServerConnection(Lifecycle, asyncio.BufferedProtocol):
    """The asyncio protocol of one client's connection."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._site = site
        self.loop = self._loop
        self.next_due = inf
        self._deadlines = Alarm(self._loop, self._ring_calls)
        """Rings when the first of the deadlines is over. It is not set back when that call ends: calls mostly end long
        before their deadlines, so this takes a look at all of them now and then, and no step for each."""
        self.limits: Limits = site.limits
        self.peer = self.identity = ""
        self.is_draining = False
        self.is_stopping = False
        self._is_asked_to_stop = False
        """Whether the client has been asked to send no more requests. That has to wait until it has spoken HTTP/2."""
        self.http2: ServerConnection[RequestHead] = ServerConnection(site.heads, self._loop.time(), _HTTP1_REPLY)
        self.http2.ping_interval = site.limits.ping_interval
        self._rest = b""
        """Bytes that are an incomplete frame, or had no turn yet."""
        self._is_working = False
        self._is_yielding = False
        self._is_watching = False
        self._unwritten = 0
        """Replies that are ready and wait to be written together."""
        self._looked = 0.0
        """When everything that is waited for was last looked at."""
        self._arriving: dict[ServerCall, int] = {}
        """Calls whose large message may arrive now, and its size."""
        self._held_back: dict[ServerCall, None] = {}
        """Calls whose large message may not arrive yet, first come, first served: one that does not fit holds up those
        behind it."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection was accepted."""
        super().connection_made(transport)
        self.peer, self.identity = self._peer, self._identity
        if self._phase in _LAST:  # one too many
            return
        self._phase = _HEAD
        self._alarm.set(self._context.timeouts.grace if self.is_draining else self._context.timeouts.head)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into: after the bytes of an incomplete frame."""
        scratch, rest = self._site.scratch, self._rest
        if not rest or self._phase in _LAST:
            return scratch
        scratch[: len(rest)] = rest
        return scratch[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        """The client sent something."""
        if self._phase in _LAST:
            self._drop(nbytes)
        elif self._phase is _HEAD and not self._rest and (why := self._tls_mistake(self._site.scratch[:nbytes])):
            self.http2.close(ErrorCode.PROTOCOL_ERROR, why)
            self.flush()
        else:
            self._work(self._site.scratch[: len(self._rest) + nbytes])

    def eof_received(self) -> None:
        """The client has closed; HTTP/2 has no half-closed connections."""
        super()._close()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        super().connection_lost(error)
        self._deadlines.stop()
        self._rest = b""
        self._cancel_all()
        self.http2.is_closed = True

    def pause_writing(self) -> None:
        """The client reads too slowly. Nothing is read from it either: the answers would pile up."""
        super().pause_writing()
        self.http2.is_paused = True
        if self._phase not in _LAST:
            self._watch()
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read most of what there was."""
        self.http2.is_paused = False
        super().resume_writing()

    def _proceed(self) -> None:
        if self._phase in _LAST:
            return
        self.flush()
        for stream in list(self.http2.streams.values()):
            if stream.handler is not None:
                stream.handler.went_on()
        if not self.http2.is_paused and not self._is_yielding:
            self._transport.resume_reading()

    # Work.

    def _work(self, data: memoryview) -> None:
        """Take the frames in `data`, for at most a turn."""
        http2, now, begun = self.http2, self.loop.time(), perf_counter()
        events = http2.events
        self._is_working = True
        at = http2.receive(data, now)
        while True:
            while events:
                self._on(events.popleft())
            if not http2.has_more or http2.is_closed or perf_counter() - begun > TURN:
                break
            at += http2.receive(data[at:], now)
        self._is_working = False
        self._rest = b"" if http2.is_closed or at == len(data) else data[at:].tobytes()
        if self._phase is not _ANSWERING or self.is_draining or http2.block_since is not None:
            self._advance_phase()
        if http2.queued or http2.waiting or http2.is_closed or self.is_draining or self._counted:
            self.flush()
        if not http2.is_closed and (http2.has_more or perf_counter() - begun > SHORT_TURN):
            self._yield()

    def _yield(self) -> None:
        if not self._is_yielding:
            self._is_yielding = True
            self._transport.pause_reading()
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_yielding = False
        if self._phase in _LAST:
            return
        if self.http2.has_more:
            self._work(memoryview(self._rest))
        if not self._is_yielding and not self.http2.is_paused and self._phase not in _LAST:
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write what is queued, as far as the client reads it."""
        if self._is_working or self._phase is _CLOSED:
            return
        http2, transport = self.http2, self._transport
        self._unwritten = 0
        while pieces := http2.data_to_send():
            if len(pieces) == 1:
                transport.write(pieces[0])
            else:
                transport.writelines(pieces)
            if not http2.waiting:
                break
        while http2.events:  # DataSent
            self._on(http2.events.popleft())
        if http2.is_closed and self._phase not in _LAST:
            self._cancel_all()
            self._linger()
        elif self.is_draining and http2.is_drained and self._phase not in _LAST:
            http2.close(ErrorCode.NO_ERROR)
            self.flush()
        if http2.waiting or self._counted:
            self._count_unread()

    def flush_together(self) -> None:
        """Write a reply together with those that are ready before the loop's next turn, at most TOGETHER at once."""
        if self._is_working:
            return
        self._unwritten += 1
        if not self.http2.streams or self._unwritten >= TOGETHER or self.http2.is_paused:
            self.flush()
        elif self._unwritten == 1:
            self._loop.call_soon(self._flush_unwritten)

    def _flush_unwritten(self) -> None:
        if self._unwritten:
            self.flush()

    @property
    def _unread_bytes(self) -> int:
        """The bytes that the system has not sent, and of replies that wait for the client to widen its windows."""
        return super()._unread_bytes + (0 if self.http2.is_closed else self.http2.unsent_bytes)

    def _on(self, event: Event) -> None:
        if type(event) is RequestReceived:
            stream, head, data = event
            if not stream.is_closed:
                self._begin(stream, head)
                if stream.handler is not None:
                    stream.handler.received_whole(data)
            return
        stream = event.stream
        if type(event) is DataReceived:
            if stream.handler is not None:
                stream.handler.received(event.data, ends=event.ends)
        elif type(event) is RequestStarted:
            if not stream.is_closed:
                self._begin(stream, event.head)
        elif stream.handler is not None:
            if type(event) is StreamReset:
                stream.handler.cancel()
            else:
                stream.handler.went_on()

    def _begin(self, stream: Stream, head: RequestHead) -> None:
        if head.fault is not None:
            self._refuse(stream, head, head.fault)
            return
        method = self._site.methods.get(head.path)
        if method is None:
            is_told = is_admitted(self._site.admit, head.metadata, self._identity, self._peer)
            self._send_error(stream, head, _no_method(head.path, self._site.spoken if is_told else ""))
            return
        if self._site.admit is not None and method.refuse is not None:  # not gRPC's own services
            try:
                self._site.admit(head.metadata, self._identity, self._peer)
            except GatewayError as error:
                self._send_error(stream, head, error)
                return
        try:
            self.sundries.add(CALL_BYTES + head.size)
        except GatewayError as error:
            self._send_error(stream, head, error)
            return
        stream.handler = (UnaryCall if method.stream is None else StreamCall)(self, stream, method, head)
        if not self._is_watching:
            self._watch()

    def _send_error(self, stream: Stream, head: RequestHead, error: GatewayError) -> None:
        """Refuse a request that no call is made for."""
        reply, record = refused(error), self._begun(head)
        record.failed(error)
        record.end(reply.status, 0)
        self.http2.send_end(stream, replies.HEAD + replies.trailers(reply) + replies.more_trailers(record))

    def _begun(self, head: RequestHead) -> Record:
        """The record of a request that is refused."""
        if self._site.record is None:
            return UNRECORDED
        path = head.path.decode("utf-8", "replace")
        message = Message(path=path, headers=head.metadata, peer=self.peer, received=self._loop.time())
        return self._site.record(message, 0)

    def _refuse(self, stream: Stream, head: RequestHead, fault: RequestFault) -> None:
        if fault.http_status != 200 and self._site.shares_http1:
            fault = _HTTP1_REQUIRED
        record = self._begun(head)
        record.failed(GatewayError(fault.status or Status.INTERNAL, Reason.INVALID_INPUT, fault.text))
        record.end(fault.status or fault.http_status, 0)
        if fault is _HTTP1_REQUIRED:
            self.http2.reset(stream, ErrorCode.HTTP_1_1_REQUIRED)
        elif fault.http_status != 200:
            self.http2.send_end(stream, replies.fault_block(fault))
        else:
            self.http2.send_end(stream, replies.HEAD + replies.status_block(fault.status, fault.text))

    def _advance_phase(self) -> None:
        if self._phase is _HEAD and self.http2.is_open:
            self._phase = _IDLE
            self._alarm.set(self._context.timeouts.idle)
        if self.is_draining and self.http2.is_open and not self._is_asked_to_stop:
            self._begin_drain()
        if self.http2.block_since is not None and not self._is_watching:
            self._watch()

    # Large messages, of which only some may arrive at once.

    def admits(self, call: ServerCall, size: int) -> bool:
        """Whether so many more bytes of a message may arrive now. If not, `call.grant` is called when they may."""
        if call in self._held_back:
            return False
        if self._arriving and sum(self._arriving.values()) + size > _LARGEST_AT_ONCE * self.limits.message:
            self._held_back[call] = None
            return False
        self._arriving[call] = size
        return True

    def release(self, call: ServerCall) -> None:
        """The large message has arrived, or is not wanted any more: the next may arrive."""
        self._held_back.pop(call, None)
        if self._arriving.pop(call, None) is None:
            return
        while self._held_back:
            first = next(iter(self._held_back))
            del self._held_back[first]
            first.grant()
            if first in self._held_back:
                return

    # Time.

    def ring_calls_at(self, when: float) -> None:
        """Ring the calls that are due at this time, which is before `next_due`."""
        self.next_due = when
        self._deadlines.set(when - self._loop.time())

    def _ring_calls(self) -> None:
        now, self.next_due = self._loop.time(), inf
        for stream in list(self.http2.streams.values()):
            call: ServerCall | None = stream.handler
            if call is not None and call.due is not None and call.due <= now:
                call.ring()
        calls = [stream.handler for stream in self.http2.streams.values() if stream.handler is not None]
        first = min((call.due for call in calls if call.due is not None), default=inf)
        if first < inf:
            self.ring_calls_at(first)

    def _watch(self) -> None:
        """Look regularly at everything that is waited for, while there is anything."""
        self._is_watching, self._looked = True, self._loop.time()
        self._phase = _ANSWERING
        timeouts = self._context.timeouts
        self._alarm.set(min(timeouts.head, timeouts.body, timeouts.write) / 4)

    def _expire(self) -> None:
        if self._phase is _HEAD and self.is_draining:
            self.terminate()
            return
        if self._phase is not _ANSWERING:
            super()._expire()
            return
        self._is_watching = False
        now, timeouts = self._loop.time(), self._context.timeouts
        if self._end_overdue(now, timeouts):
            return
        for stream in list(self.http2.streams.values()):
            self._look_at(stream, now, timeouts)
        self.flush()
        if self.http2.streams or self.http2.block_since is not None or self.http2.is_paused:
            self._watch()

    def _end_overdue(self, now: float, timeouts: Timeouts) -> bool:
        """End the connection if the client does not go on with a header block, or reads too slowly. Returns whether."""
        began = self.http2.block_since
        if began is not None and now - began > timeouts.head:
            self._reject(refusal(Reason.REQUEST_TIMEOUT, f"a header block did not end within {timeouts.head:g} s"))
            return True
        unread = self._transport.get_write_buffer_size() + self.http2.unsent_bytes
        if not unread:
            self._progress = None
        elif self._progress is None:
            self._progress = ReplyProgress(unread, now)
        elif self._progress.is_too_slow(unread, now, timeouts) and self.http2.is_paused:
            self._transport.abort()
            return True
        return False

    def _look_at(self, stream: Stream, now: float, timeouts: Timeouts) -> None:
        """End a request that stopped arriving, or arrives too slowly, a stream in which nothing happens, and a reply
        that the client takes too slowly. While the client reads no stream, the connection's progress counts."""
        call: ServerCall | None = stream.handler
        late = None
        if call is not None:
            late = _too_slow(call, stream, now, timeouts) if call.is_arriving else call.idle_for_too_long(now)
        if call is not None and late is not None:
            call.fail(refusal(Reason.REQUEST_TIMEOUT, late))
            return
        unsent = stream.unsent
        if unsent is None:
            return
        if unsent.progress is None:
            unsent.progress = ReplyProgress(unsent.size, now)
            return
        if self.http2.is_paused:
            unsent.progress.excuse(now - self._looked)
        if unsent.progress.is_too_slow(unsent.size, now, timeouts):
            self.http2.reset(stream, ErrorCode.CANCEL)
            if call is not None:
                call.cancel()

    def renew(self, site: Site) -> "list[asyncio.Task[None]]":
        """Serve every request that begins after this call with `site`. Returns the tasks of the calls in flight that
        have one message each."""
        self._context = self._site = site
        self.limits = site.limits
        self.http2.ping_interval = site.limits.ping_interval
        running: list[asyncio.Task[None]] = []
        for stream in list(self.http2.streams.values()):
            call: ServerCall | None = stream.handler
            if call is None:
                continue
            method = site.methods.get(call.path)
            if method is not None:
                call.renew(method)
            elif call.task is None:
                call.fail(_no_method(call.path))
            if isinstance(call, UnaryCall) and call.task is not None:
                running.append(call.task)
        return running

    # Ends.

    @property
    def unanswered(self) -> int:
        """Requests that have begun to arrive, and whose replies are not handed to the system in full."""
        return 0 if self._phase in _LAST else len(self.http2.streams)

    def drain(self) -> None:
        """Ask the client to send no more requests, end streams after the message in hand, and close once what is in
        flight is answered."""
        if self.is_stopping or self._phase in _LAST:
            return
        self.is_stopping = True
        for stream in list(self.http2.streams.values()):
            if stream.handler is not None:
                stream.handler.drain()
        self.retire()

    def retire(self) -> None:
        """Ask the client to send no more requests, and close once what is in flight is over."""
        if self.is_draining or self._phase in _LAST:
            return
        self.is_draining = True
        if self.http2.is_open:
            self._begin_drain()
        else:
            self._alarm.set(self._context.timeouts.grace)

    def _begin_drain(self) -> None:
        self._is_asked_to_stop = True
        self.http2.begin_drain()
        self._loop.call_later(self._context.timeouts.linger, self._refuse_new)
        self.flush()

    def terminate(self) -> None:
        """End what is in flight with UNAVAILABLE, and close once the client has read it."""
        if self._phase in _LAST:
            self.abort()
        else:
            self.end_calls(stopping())

    def end_calls(self, error: GatewayError) -> None:
        """End what is in flight with `error`, and close once the client has read it."""
        for stream in list(self.http2.streams.values()):
            if stream.handler is not None:
                stream.handler.fail(error)
        self.http2.close(ErrorCode.NO_ERROR)
        self.flush()

    def ended(self, task: object) -> None:
        """A request whose stream was closed before does not run any more."""
        self.http2.still_running -= 1
        if self.is_draining:
            self.flush()

    def _refuse_new(self) -> None:
        if self._phase not in _LAST:
            self.http2.refuse_new_streams()
            self.flush()

    def _reject(self, error: GatewayError) -> None:
        self.http2.close(ErrorCode.ENHANCE_YOUR_CALM, error.message)
        self.flush()

    def _reject_connection(self, error: GatewayError) -> None:
        self.http2.refuse(error.message)
        self.flush()

    def _cancel_all(self) -> None:
        for stream in list(self.http2.streams.values()):
            if stream.handler is not None:
                stream.handler.cancel()

    def _close_idle(self) -> None:
        self._close()

    def _close(self) -> None:
        """An idle client is told by GOAWAY, so that it sends again elsewhere what it sent meanwhile."""
        if self._phase is _IDLE:
            self.http2.close(ErrorCode.NO_ERROR)
            self.flush()
        else:
            super()._close()


def _no_method(path: bytes, spoken: str = "") -> GatewayError:
    text = f"no method {path.decode('utf-8', 'backslashreplace')[:_MAX_METHOD]} here"
    return refusal(Reason.UNSUPPORTED, f"{text}; this listener speaks {spoken}" if spoken else text)


def _too_slow(call: ServerCall, stream: Stream, now: float, timeouts: Timeouts) -> str | None:
    """Why the message that is arriving is not waited for any longer; None if it is. While the stream's window is shut,
    the client cannot send: then only the time for the whole message counts."""
    if stream.room > 0 and now - stream.heard > timeouts.body:
        return f"nothing of the message came for {timeouts.body:g} s"
    waited = now - call.arriving_since
    if waited > timeouts.message:
        return f"the message did not arrive within {timeouts.message:g} s"
    if stream.room > 0 and waited > timeouts.body + call.arrived_bytes / timeouts.rate:
        return f"the message came at less than {timeouts.rate:g} bytes a second"
    return None
