"""One client's connection, which forwards the event loop's callbacks to HTTP/2 and to the calls, and enforces time
limits.

    HEAD --the client spoke HTTP/2--> IDLE --its first request--> ANSWERING
      |                                 |                             |
      +------ too late, too idle, drained, or the client broke HTTP/2 -----> LINGERING --> CLOSED

After its first request, a connection stays in ANSWERING, because gRPC clients keep their connections open. In this
phase, the gateway checks the time limits for each stream. In IDLE and ANSWERING, it also checks the time limits for
incomplete frames and header blocks. Incomplete frames and header blocks do not extend the time limit of IDLE.

When the connection drains (`is_draining`), the gateway asks the client to send no more requests, and the connection
closes after the last request. When the connection also stops (`is_stopping`), streams end after the current message.
"""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import TypeAlias

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.http2.bounds import SHORT_TURN, TOGETHER, TURN
from gateway.core.http2.connection import DataReceived, DataSent, Stream, StreamReset
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.heads import RequestHeads
from gateway.core.http2.server import MAX_STREAMS, Http2Server, RequestReceived, RequestStarted, http1_reply
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.core.record import UNRECORDED, Record
from gateway.core.surviving import log_and_continue
from gateway.core.transport import Admit, is_admitted
from gateway.transports.grpc.server.call_deadlines import CallDeadlines
from gateway.transports.grpc.server.calls import Method, ServerCall, StartRecord, StreamCall, UnaryCall, stopping
from gateway.transports.grpc.server.heads import CallHead
from gateway.transports.grpc.server.large_messages import LargeMessages
from gateway.transports.grpc.server.refusals import no_method, refuse, refuse_fault
from gateway.transports.grpc.server.stalled import ArrivingFrame, end_stalled
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase
from gateway.transports.memory import CALL_BYTES
from gateway.transports.timeouts import ReplyProgress, Timeouts

SCRATCH_BYTES = 2**18
"""The number of bytes to receive in one step. Between steps, a connection stores only an incomplete frame or
unprocessed bytes."""

_HTTP1_REPLY = http1_reply("This port speaks gRPC, over HTTP/2\n")

Event: TypeAlias = RequestReceived[CallHead] | RequestStarted[CallHead] | DataReceived | StreamReset | DataSent

# In Python 3.11, a lookup in the class takes ten times as long.
_IDLE, _HEAD, _ANSWERING, _CLOSED, _LINGERING = Phase.IDLE, Phase.HEAD, Phase.ANSWERING, Phase.CLOSED, Phase.LINGERING
_LAST = frozenset({_LINGERING, _CLOSED})


@frozen
class Site(ConnectionContext):
    """The data that all connections of one listener share."""

    methods: Mapping[bytes, Method]
    heads: RequestHeads[CallHead]
    scratch: memoryview
    record: StartRecord | None
    """Creates the records for requests that match no method; None without observers."""
    admit: Admit | None = None
    spoken: str = ""
    """The protocols of the listener, for error messages."""
    shares_http1: bool = False
    """True if the same address also serves other requests over HTTP/1.1."""

    def start_record(self, head: CallHead, peer: str, now: float) -> Record:
        """Return the record for a request from `peer` that matches no method."""
        if self.record is None:
            return UNRECORDED
        path = head.path.decode("utf-8", "replace")
        return self.record(Message(path=path, headers=head.metadata, peer=peer, received=now), 0)


class GrpcServerConnection(Lifecycle, asyncio.BufferedProtocol):
    """The asyncio protocol of one client's connection."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._site = site
        self.loop = self._loop
        self.limits: Limits = site.limits
        self.peer = self.identity = ""
        self.is_draining = self.is_stopping = False
        self._is_asked_to_stop = False
        """True if the gateway has asked the client to send no more requests. The gateway asks only after the client has
        sent valid HTTP/2."""
        self.http2: Http2Server[CallHead] = Http2Server(site.heads, self._loop.time(), _HTTP1_REPLY)
        self.http2.ping_interval = site.limits.ping_interval
        self.deadlines = CallDeadlines(self._loop, self.http2.streams)
        self.large_messages = LargeMessages(site.limits)
        self._rest = b""
        """Bytes of an incomplete frame, or unprocessed bytes."""
        self._arriving = ArrivingFrame()
        self._idle_until = 0.0
        """The time when the gateway closes an IDLE connection."""
        self._is_working = False
        self._is_watching = False
        self._unwritten = 0
        """The number of replies that are waiting to be written together."""
        self._looked = 0.0
        """The time when the time limits were last checked."""

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the accepted connection."""
        super().connection_made(transport)
        self.peer, self.identity = self._peer, self._identity
        if self._phase in _LAST:  # the connection limit is exceeded
            return
        self._phase = _HEAD
        self._alarm.set(self._context.timeouts.grace if self.is_draining else self._context.timeouts.head)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes, after the bytes of an incomplete frame."""
        scratch, rest = self._site.scratch, self._rest
        if not rest or self._phase in _LAST:
            return scratch
        scratch[: len(rest)] = rest
        return scratch[len(rest) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the client."""
        if self._phase in _LAST:
            self._drop(nbytes)
        elif self._phase is _HEAD and not self._rest and (why := self._tls_mistake(self._site.scratch[:nbytes])):
            self.http2.close(ErrorCode.PROTOCOL_ERROR, why)
            self.flush()
        else:
            self._work(self._site.scratch[: len(self._rest) + nbytes])

    def eof_received(self) -> None:
        """Close the connection because the client has closed it. HTTP/2 connections cannot be half-closed."""
        super().close()

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        self.deadlines.stop()
        self._rest = b""
        self._cancel_all()
        self.http2.is_closed = True

    def pause_writing(self) -> None:
        """Pause writing, because the client reads too slowly. Also pause reading, because replies would accumulate."""
        super().pause_writing()
        self.http2.is_paused = True
        if self._phase not in _LAST:
            self._phase = _ANSWERING
            self._watch()
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume writing after the client has read most of the data, and forget its progress, because further replies
        can fill the buffer before the next check."""
        self.http2.is_paused = False
        self._progress = None
        super().resume_writing()

    def proceed(self) -> None:
        if self._phase in _LAST:
            return
        self.flush()
        for stream in list(self.http2.streams.values()):
            if stream.handler is not None:
                stream.handler.went_on()
        if not self.http2.is_paused and not self._is_yielding:
            self._transport.resume_reading()

    # Processing.

    def _work(self, data: memoryview) -> None:
        """Process the frames in `data`, for at most one turn."""
        http2, now, begun = self.http2, self.loop.time(), perf_counter()
        events = http2.events
        self._is_working = True
        at = http2.receive(data, now)
        while True:
            while events:
                self.handle(events.popleft())
            if not http2.has_more or http2.is_closed:
                break
            if http2.still_running >= MAX_STREAMS or perf_counter() - begun > TURN:
                break
            at += http2.receive(data[at:], now)
        self._is_working = False
        self._rest = b"" if http2.is_closed or at == len(data) else data[at:].tobytes()
        if self._rest or self._arriving.since is not None or http2.block_since is not None:
            self._arriving.note(data, b"" if http2.has_more else self._rest, http2.block_since, now)
        if self._phase is not _ANSWERING or self.is_draining or self._arriving.since is not None:
            self._advance_phase()
        if http2.queued or http2.waiting or http2.is_closed or self.is_draining or self._counted:
            self.flush()
        if http2.is_closed:
            return
        if http2.has_more or http2.still_running >= MAX_STREAMS or perf_counter() - begun > SHORT_TURN:
            self._yield()

    def take_turn(self) -> None:
        super().take_turn()
        if self._phase in _LAST:
            return
        if self.http2.has_more:
            self._work(memoryview(self._rest))
        if not self._is_yielding and not self.http2.is_paused and self._phase not in _LAST:
            self._transport.resume_reading()

    def flush(self) -> None:
        """Write the queued data as fast as the client reads it."""
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
            self.handle(http2.events.popleft())
        if http2.is_closed and self._phase not in _LAST:
            self._cancel_all()
            self.linger()
        elif self.is_draining and http2.is_drained and self._phase not in _LAST:
            http2.close(ErrorCode.NO_ERROR)
            self.flush()
        if http2.waiting or self._counted:
            self._count_unread()

    def flush_together(self) -> None:
        """Write a reply together with other replies that are ready before the loop's next turn. One write combines at
        most TOGETHER replies."""
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
    def unread_bytes(self) -> int:
        """The number of bytes that the gateway has not passed to the operating system, including replies that wait for
        larger windows."""
        return super().unread_bytes + (0 if self.http2.is_closed else self.http2.unsent_bytes)

    def handle(self, event: Event) -> None:
        """Handle an event of the client's requests."""
        if type(event) is RequestReceived:
            stream, head, data = event
            if not stream.is_closed:
                self.begin(stream, head)
                if stream.handler is not None:
                    stream.handler.received_whole(data)
            return
        stream = event.stream
        if type(event) is DataReceived:
            if stream.handler is not None:
                stream.handler.received(event.data, ends=event.ends)
        elif type(event) is RequestStarted:
            if not stream.is_closed:
                self.begin(stream, event.head)
        elif stream.handler is not None:
            if type(event) is StreamReset:
                stream.handler.cancel()
            else:
                stream.handler.went_on()

    def begin(self, stream: Stream, head: CallHead) -> None:
        """Begin a call whose head has arrived, or reject it."""
        site = self._site
        if head.fault is not None:
            record = site.start_record(head, self.peer, self._loop.time())
            refuse_fault(self.http2, stream, head.fault, record, shares_http1=site.shares_http1)
            return
        method = site.methods.get(head.path)
        if method is None:
            is_told = is_admitted(site.admit, head.metadata, self._identity, self._peer)
            self._refuse(stream, head, no_method(head.path, site.spoken if is_told else ""))
            return
        try:
            if site.admit is not None and method.refuse is not None:  # not one of gRPC's own services
                site.admit(head.metadata, self._identity, self._peer)
            self.connection_memory.add(CALL_BYTES + head.size)
        except GatewayError as error:
            self._refuse(stream, head, error)
            return
        stream.handler = (UnaryCall if method.stream is None else StreamCall)(self, stream, method, head)
        self._phase = _ANSWERING
        if not self._is_watching:
            self._watch()

    def _refuse(self, stream: Stream, head: CallHead, error: GatewayError) -> None:
        """Reject a request without creating a call for it."""
        refuse(self.http2, stream, error, self._site.start_record(head, self.peer, self._loop.time()))

    def _advance_phase(self) -> None:
        if self._phase is _HEAD and self.http2.is_open:
            self._phase = _IDLE
            self._idle_until = self._loop.time() + self._context.timeouts.idle
            self._alarm.set(self._context.timeouts.idle)
        if self.is_draining and self.http2.is_open and not self._is_asked_to_stop:
            self._begin_drain()
        if self._arriving.since is not None and self._phase is not _HEAD and not self._is_watching:
            self._watch()

    # Time.

    def _watch(self) -> None:
        """Check the time limits regularly while any limit applies."""
        self._is_watching, self._looked = True, self._loop.time()
        timeouts = self._context.timeouts
        interval = min(timeouts.head, timeouts.body, timeouts.write) / 4
        self._alarm.set(min(interval, self._arriving.seconds_left(self._looked, timeouts)))

    def expire(self) -> None:
        if self._phase is _HEAD and self.is_draining:
            self.terminate()
            return
        now, timeouts = self._loop.time(), self._context.timeouts
        is_idle = self._phase is _IDLE and now < self._idle_until
        if self._phase is not _ANSWERING and not is_idle:
            super().expire()
            return
        self._is_watching = False
        if self.http2.is_paused:
            self._arriving.excuse(now - self._looked)
        end_stalled(self.http2, timeouts, self._looked, now)
        if self._phase in _LAST or self._end_overdue(now, timeouts):
            return
        self.flush()
        if self.http2.streams or self._arriving.since is not None or self.http2.is_paused:
            self._watch()
        elif is_idle:
            self._alarm.set(self._idle_until - now)

    def _end_overdue(self, now: float, timeouts: Timeouts) -> bool:
        """End the connection if the client sends a frame or header block too slowly, or reads too slowly.

        Return whether the connection ended."""
        if self._arriving.seconds_left(now, timeouts) <= 0:
            self.reject(refusal(Reason.REQUEST_TIMEOUT, self._arriving.why_late(timeouts)))
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

    def renew(self, site: Site) -> "list[asyncio.Task[None]]":
        """Use `site` for all requests that begin later. Return the tasks of the unary calls in flight."""
        self._context = self._site = site
        self.limits = self.large_messages.limits = site.limits
        self.http2.ping_interval = site.limits.ping_interval
        running: list[asyncio.Task[None]] = []
        for call in self._calls():
            method = site.methods.get(call.path)
            if method is not None:
                call.renew(method)
            elif call.task is None:
                call.fail(no_method(call.path))
            if isinstance(call, UnaryCall) and call.task is not None:
                running.append(call.task)
        return running

    # Ends.

    @property
    def unanswered(self) -> int:
        """The number of requests that have begun to arrive and whose replies have not been completely passed to the
        operating system."""
        return 0 if self._phase in _LAST else len(self.http2.streams)

    def drain(self) -> None:
        """Ask the client to send no more requests, end streams after the current message, and close the connection
        after the last reply."""
        if self.is_stopping or self._phase in _LAST:
            return
        self.is_stopping = True
        for call in self._calls():
            call.drain()
        self.retire()

    def retire(self) -> None:
        """Ask the client to send no more requests, and close the connection after the last call has ended."""
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
        """End the calls in flight with UNAVAILABLE, and close the connection when the client has read the errors."""
        if self._phase in _LAST:
            self.abort()
        else:
            self.end_calls(stopping())

    def end_calls(self, error: GatewayError) -> None:
        """End the calls in flight with `error`, and close the connection when the client has read it."""
        for call in self._calls():
            call.fail(error)
        self.http2.close(ErrorCode.NO_ERROR)
        self.flush()

    def ended(self, task: object) -> None:
        """Handle the end of a request whose stream is already closed."""
        self.http2.still_running -= 1
        if self.is_draining:
            self.flush()

    def _refuse_new(self) -> None:
        if self._phase not in _LAST:
            self.http2.refuse_new_streams()
            self.flush()

    def reject(self, error: GatewayError) -> None:
        self.http2.close(ErrorCode.ENHANCE_YOUR_CALM, error.message)
        self.flush()

    def reject_connection(self, error: GatewayError) -> None:
        self.http2.refuse(error.message)
        self.flush()

    def _cancel_all(self) -> None:
        for call in self._calls():
            with log_and_continue("cancelling a gRPC call"):
                call.cancel()

    def _calls(self) -> list[ServerCall]:
        return [stream.handler for stream in self.http2.streams.values() if stream.handler is not None]

    def close_idle(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection.

        An idle client receives a GOAWAY. If it is sending a request at this moment, it repeats the request on another
        connection."""
        if self._phase is _IDLE:
            self.http2.close(ErrorCode.NO_ERROR)
            self.flush()
        else:
            super().close()
