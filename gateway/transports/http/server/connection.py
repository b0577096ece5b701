"""One client's HTTP/1.1 connection.

The connection receives requests one at a time, passes each request to the exchange, and writes the reply before it
handles the next request.

`lifecycle` describes the phases and their time limits. The following table lists the events and the methods that handle
them.

    phase            event                                       method             next phase
    IDLE             a part of a head arrived                    _head_begun        HEAD
    IDLE, HEAD       the head is complete, a body follows        request_begun      BODY
    IDLE             a whole request arrived in one read         receive_whole      ANSWERING
    IDLE, HEAD, BODY the request is complete                     _request_received  ANSWERING
    ANSWERING        the reply is written, but not read by now   _send              FLUSHING
    ANSWERING,       the reply is written, and the connection    _reply_written     IDLE
    FLUSHING           is kept, or this was the last reply                          LINGERING
    any              the request cannot be received to its end   reject             LINGERING
    ANSWERING        the client ends its side (`half_close`)     eof_received       ANSWERING, then CLOSED

Bytes that arrive while an earlier request is served wait in `_ahead`. Separate modules without sockets parse requests
(`whole_heads`, `request_head`, `request_body`) and format replies (`reply_bytes`, `streamed_reply`).
"""

import asyncio
from collections.abc import Awaitable
from time import perf_counter

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.http2.bounds import SHORT_TURN, TURN
from gateway.core.messages import Buffer, Message
from gateway.core.record import GIVEN_UP, UNRECORDED
from gateway.core.tasks import keep, spawn
from gateway.core.transport import EventualReply
from gateway.transports.half_close import HalfClose, can_wait
from gateway.transports.http.server import reply_bytes
from gateway.transports.http.server.content_coding import deflated_reply, exchange_inflated, request_stream
from gateway.transports.http.server.context import HttpContext
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.http2_refusal import FIRST_LINE, Http2Refusal
from gateway.transports.http.server.request_body import ChunkedBody, SizedBody, arriving_body
from gateway.transports.http.server.request_head import HeadReader, Http2PrefaceError, RequestHead
from gateway.transports.http.server.streamed_reply import StreamedReplyWriter
from gateway.transports.lifecycle import Lifecycle, Phase
from gateway.transports.memory import ConnectionMemory

REQUESTS_PER_TURN = 32
"""The maximum number of requests that a connection receives before other connections have their turn.

The turn also ends after TURN seconds. These limits are necessary because a client can send thousands of requests
together, and each request takes at least 0.1 ms. A head with 2,000 fields takes 2 ms.
"""

# In Python 3.11, a lookup in the class takes ten times as long.
_IDLE, _HEAD, _BODY, _ANSWERING = Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.ANSWERING
_FLUSHING, _LINGERING = Phase.FLUSHING, Phase.LINGERING
_RECEIVING = frozenset({_IDLE, _HEAD, _BODY})
_SERVING = frozenset({_IDLE, _HEAD, _BODY, _ANSWERING, _FLUSHING})
_UNANSWERED = frozenset({_HEAD, _BODY, _ANSWERING, _FLUSHING})
_NONE: frozenset[bytes] = frozenset()


class HttpServerConnection(Lifecycle, asyncio.BufferedProtocol):
    """Serves one client.

    `_head` and `_dispatch` belong to the current request, and are None until its head is parsed."""

    HEAD_NAME, BODY_NAME = "the request's head", "the request's body"

    _context: HttpContext

    def __init__(self, context: HttpContext) -> None:
        super().__init__(context)
        self._head_reader = HeadReader(context.limits.headers)
        self._head: RequestHead | None = None
        self._dispatch: Dispatch | None = None
        self._body: SizedBody | ChunkedBody | None = None
        """The body that is arriving."""
        self._filling: SizedBody | None = None
        """The body into which the connection receives the next bytes directly."""
        self._ahead = _BytesAhead()
        self._keep_alive = False
        """True if the connection stays open after the reply."""
        self._task: asyncio.Task[None] | None = None
        """The task that serves the request, if serving takes time."""
        self._half_close: HalfClose | None = None
        """Detects whether a half-closed client still waits for its reply; None until the client has half-closed the
        connection."""
        self._stream: StreamedReplyWriter | None = None
        """The writer of the reply, if the reply is streamed."""
        self._record = UNRECORDED
        """The record of the request, from the time when the connection serves or rejects it."""

    # Callbacks of the event loop and the listener. Lifecycle contains more of them.

    @property
    def unanswered(self) -> int:
        """The number of unanswered requests: 1 from the first byte of a request to the last byte of its reply,
        otherwise 0."""
        return int(self._phase in _UNANSWERED)

    def renew(self, context: HttpContext) -> "asyncio.Task[None] | None":
        """Use `context` for the next request, or for a request that is still arriving.

        Return the task of the request in flight, or None."""
        self._context = context
        self._head_reader.limit = context.limits.headers
        if self._phase is _BODY and self._head is not None:
            self._dispatch = Dispatch(self._head, context.table, context.cross_origin)
        return self._task

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes, which is the rest of a large body, or else the buffer that all
        connections share."""
        self._filling = None  # uvloop might have called this before without receiving bytes
        if self._phase is _BODY and isinstance(self._body, SizedBody) and not self._ahead.data:
            room = self._body.room
            if room is not None:
                self._filling = self._body
                return room
        return self._context.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the client."""
        if self._filling is not None:
            self._fill_body(self._filling, nbytes)
        elif self._phase in _RECEIVING and not self._ahead.data:
            self._receive(self._context.scratch[:nbytes].tobytes())
        elif self._phase is _LINGERING:
            self._drop(nbytes)
        else:
            data = self._context.scratch[:nbytes].tobytes()
            self._ahead.store(data, self.connection_memory, self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        if self._half_close is not None:
            self._half_close.stop()
        self._head_reader.stop()
        self._record.give_up(GIVEN_UP["http"])
        self._record = UNRECORDED
        self._body = self._filling = self._stream = None
        self._ahead.data.clear()
        if self._task is not None:
            keep(self._task)
            self._task.cancel()
            self._task = None

    def eof_received(self) -> bool:
        """Handle a client that will send no more bytes. Return True to keep the connection open, if complete requests
        have arrived and the client might be waiting for the replies. If a streamed reply has begun, the client counts
        as disconnected."""
        if self._half_close is not None:  # uvloop calls this again after `resume_reading`
            return True
        is_answering = self._phase in (_ANSWERING, _FLUSHING) or (self._phase is _IDLE and bool(self._ahead.data))
        has_begun = self._stream is not None and self._stream.begun
        if not is_answering or has_begun or not can_wait(self._transport):
            return False
        self._half_close = HalfClose(self._loop, self._transport, b"H")
        self._has_peer_ended = True
        if self._phase is _ANSWERING:
            self._half_close.watch()
        return True

    def _close_after_last(self) -> None:
        """Close a connection that the client has half-closed, unless a complete request is still waiting."""
        if self._phase in _RECEIVING and not self._ahead.data:
            self.close()

    def proceed(self) -> None:
        if self._phase is _FLUSHING:
            self._reply_written()
            self._receive_ahead()

    # Receiving.

    def _receive(self, data: bytes) -> None:
        try:
            if self._phase is _IDLE and self.receive_whole(data):
                return
            at, end = 0, len(data)
            steps = 2 * REQUESTS_PER_TURN  # a request is a head and a body
            begun = perf_counter()
            while at < end and steps and self._phase in _RECEIVING:
                steps = steps - 1 if perf_counter() - begun < TURN else 0
                at = self._receive_body(data, at) if self._phase is _BODY else self._receive_head(data, at)
        except DecodeError as error:
            self.reject(refusal(Reason.INVALID_INPUT, str(error)))
        except Http2PrefaceError as preface:
            self._refuse_http2(FIRST_LINE + data[preface.at :])
        except GatewayError as error:
            mistake = self._tls_mistake(data)
            self.reject(refusal(Reason.INVALID_INPUT, mistake) if mistake else error)
        else:
            if self._phase is _BODY and self._body_begun is None:
                self._await_body(0)
            if at < end and self._phase is _LINGERING:
                self._drop(end - at)
            elif at < end:
                self._ahead.store(data[at:], self.connection_memory, self._transport)
                if not steps:
                    self._yield()
            elif perf_counter() - begun > SHORT_TURN and self._phase is not _LINGERING:
                self._yield()

    def receive_whole(self, data: bytes) -> bool:
        """Receive `data` if it consists of exactly one request with a simple head (`WholeHeads`), which is the usual
        case.

        Return False for all other data, which the connection then receives in parts."""
        cached = self._context.heads.find(data, 0)
        if cached is None:
            return False
        head, dispatch, size, whole = cached
        if whole != len(data):
            return False
        self._head, self._dispatch = head, dispatch
        self._keep_alive = head.keep_alive
        self._request_received(head, dispatch, data[size:])
        return True

    def _receive_head(self, data: bytes, at: int) -> int:
        """Continue to read at `at`. Return the position in `data` after the last byte read."""
        reader = self._head_reader
        cached = self._context.heads.find(data, at) if self._phase is _IDLE else None
        if cached is not None:
            self._head, self._dispatch, size, _ = cached
            self.request_begun(self._head, self._dispatch)
            return at + size
        at = reader.feed(data, at)
        if reader.size:
            reader.hold(self.connection_memory)
        if reader.complete:
            self._head = RequestHead(reader)
            self._head.check()
            self._dispatch = Dispatch(self._head, self._context.table, self._context.cross_origin)
            self.request_begun(self._head, self._dispatch)
        elif reader.size and self._phase is _IDLE:
            self._phase = _HEAD
            self._alarm.set(self._context.timeouts.head)
        return at

    def request_begun(self, head: RequestHead, dispatch: Dispatch) -> None:
        """Handle a complete head: reject the request, serve it, or wait for its body."""
        self._context.check_early(head, dispatch, self._identity, self._peer)
        self._keep_alive = head.keep_alive
        if head.length == 0:
            self._request_received(head, dispatch, b"")
            return
        if head.expects_continue:
            self._transport.write(reply_bytes.CONTINUE)
        self._body = arriving_body(head.length, self._context.limits, self.memory)
        self._phase = _BODY
        self._body_begun = None

    def _receive_body(self, data: bytes, at: int) -> int:
        """Continue to read at `at`. Return the position in `data` after the last byte read."""
        body = self._body
        assert body is not None
        end = body.feed(data, at)
        self._body_received(body, end - at)
        return end

    def _fill_body(self, body: SizedBody, count: int) -> None:
        self._filling = None
        try:
            body.filled(count)
            self._body_received(body, count)
        except GatewayError as error:
            self.reject(error)

    def _body_received(self, body: SizedBody | ChunkedBody, count: int) -> None:
        """Handle `count` more bytes of the body."""
        if body.complete:
            self._body = None  # a persistent connection must not keep its last body in memory
            assert self._head is not None
            assert self._dispatch is not None
            self._request_received(self._head, self._dispatch, body.body)
        else:
            self._await_body(count)

    def _receive_ahead(self) -> None:
        """Process the bytes that arrived before their turn, if their turn has come."""
        if self._phase not in _RECEIVING or self._is_yielding:
            return
        if self._ahead.error is not None:
            self.reject(self._ahead.error)
        elif self._ahead.data:
            data = self._ahead.take(self.connection_memory, self._transport)
            self._receive(data)
            if self._half_close is not None:
                self._loop.call_soon(self._close_after_last)

    def take_turn(self) -> None:
        super().take_turn()
        if self._phase in _RECEIVING and (self._ahead.data or self._ahead.error is not None):
            self._receive_ahead()
        elif self._phase in _SERVING and not self._ahead.is_full:
            self._transport.resume_reading()

    # Serving requests.

    def _request_received(self, head: RequestHead, dispatch: Dispatch, body: Buffer) -> None:
        self._phase = _ANSWERING
        self._alarm.silence()
        reply: EventualReply
        if dispatch.refused is not None:
            reply = self._error_reply(dispatch.refused) if dispatch.preflight is None else dispatch.preflight
        else:
            context, protocol, coding = self._context, dispatch.protocol, dispatch.coding
            message = dispatch.message(head, body, self._peer, self._loop.time(), self._identity)
            if context.record is not None:
                self._record = context.record(message, protocol, len(body))
            try:
                if dispatch.streams or (dispatch.asks_body and dispatch.body_wants_stream(message)):
                    messages = request_stream(message, coding, context.limits, self.memory)
                    own = _NONE if context.cross_origin is None else context.cross_origin.names
                    self._stream = StreamedReplyWriter(messages, context.stream, protocol, head, self._record, own)
                    self._task = spawn(self._send_stream(self._stream))
                    if self._half_close is not None:
                        self._half_close.watch()
                    return
                if coding:
                    reply = exchange_inflated(message, coding, context.limits, self.memory, context.exchange, protocol)
                else:
                    reply = context.exchange(message, protocol)
            except Exception as error:
                reply = self._error_reply(as_gateway_error(error, self._record))
        if head.accepted_coding:
            reply = deflated_reply(reply, head.accepted_coding)
        if isinstance(reply, Message):
            self._send(reply)
        else:
            # Without this name, asyncio would generate one.
            self._task = asyncio.Task(self._send_later(reply), loop=self._loop, name="reply")
            if self._half_close is not None:
                self._half_close.watch()

    async def _send_later(self, reply: Awaitable[Message]) -> None:
        try:
            message = await reply
        except asyncio.CancelledError:
            # The exception is not raised again, because a cancelled task would keep the exception, and with it the
            # request, in memory.
            self._transport.abort()
            return
        except Exception as error:
            message = self._error_reply(as_gateway_error(error, self._record))
        self._task = None
        self._send(message)
        if self._ahead.data or self._ahead.error is not None:
            self._receive_ahead()

    async def _send_stream(self, stream: StreamedReplyWriter) -> None:
        self._keep_alive = self._keep_alive and stream.is_delimited
        error = await stream.write(self._rest_of, self._transport, self.connection_line, self._until_read)
        self._task = self._stream = None
        if error is not None:
            self._send(self._error_reply(error))
        elif not self._transport.is_closing():
            self._reply_written()
        self._receive_ahead()

    def _rest_of(self, begin: Buffer) -> Buffer:
        """Return the unwritten part of a reply's first buffer."""
        return begin if self._half_close is None else self._half_close.rest_of(begin)

    # Writing.

    def _send(self, reply: Message) -> None:
        """Write `reply`, and then wait for the next request or close the connection."""
        self._write(reply)
        if not self._writable:
            self._phase = _FLUSHING
            self._await_progress()
        elif self._keep_alive:
            self._await_request()
        else:
            self.linger()

    def _write(self, reply: Message) -> None:
        head = self._head
        try:
            buffers, size = reply_bytes.whole(reply, self.connection_line(), head is not None and head.method == "HEAD")
        except ValueError as error:
            self._keep_alive = False
            self._write(self._error_reply(as_gateway_error(error, self._record)))
            return
        if self._half_close is not None:
            buffers = (self._half_close.rest_of(buffers[0]), *buffers[1:])
        for each in buffers:
            self._transport.write(each)
        if self._record is not UNRECORDED:
            self._record.end(reply.status, size)

    def connection_line(self) -> bytes:
        """Return the Connection line for the next head, followed by the lines for the request's record and for CORS.

        The line determines whether the connection stays open. After a reply that does not announce a close, the client
        can send another request (RFC 9112, section 9.6), and the gateway must respond to it."""
        if self._context.connections.ending:
            self._keep_alive = False
        head = self._head
        line = head.keep_line if self._keep_alive and head is not None else reply_bytes.CLOSE
        if self._record.tells:
            line += reply_bytes.lines(self._record.reply_fields())
        if self._context.cross_origin is not None:
            line += self._context.cross_origin.lines(head)
        return line

    def _reply_written(self) -> None:
        if self._keep_alive:
            self._await_request()
        else:
            self.linger()

    def _await_request(self) -> None:
        self._phase = _IDLE
        self._keep_alive = False
        self._head = self._dispatch = None
        self._record = UNRECORDED
        if self._head_reader.size:
            self._head_reader.release(self.connection_memory)
        self._alarm.set(self._idle_seconds)
        if self._half_close is not None:
            self._loop.call_soon(self._close_after_last)

    # Refusing.

    def reject(self, error: GatewayError) -> None:
        self._keep_alive = False
        self._body = self._filling = None
        self._head_reader.start()  # drops the received part of the head
        self._write(self._error_reply(error))
        self.linger()

    def _refuse_http2(self, data: bytes) -> None:
        """Hand over the client to a connection that rejects HTTP/2 requests. `data` contains the bytes received so
        far."""
        self._head_reader.stop()
        refusing = Http2Refusal(self._context)
        self._hand_over_to(refusing)
        refusing.take_over(self._transport, data)

    def _error_reply(self, error: GatewayError) -> Message:
        message = Message(peer=self._peer, received=self._loop.time(), identity=self._identity, record=self._record)
        reply, self._record = self._context.error_reply(error, message, self._head, self._dispatch)
        return reply


_MAX_AHEAD = 64 * 2**10
"""The number of stored bytes above which the connection stops reading. Further bytes stay in the kernel, so the client
must wait."""


class _BytesAhead:
    """Stores the bytes that a client sends before their turn, such as pipelined requests during an earlier request. The
    connection's `connection_memory` counts these bytes."""

    __slots__ = ("data", "error", "is_full")

    def __init__(self) -> None:
        self.data = bytearray()
        self.error: GatewayError | None = None
        """The error for bytes that were dropped. The error ends the connection when the replies before it are
        written."""
        self.is_full = False
        """True if the connection should stop reading from the client."""

    def store(self, data: bytes, connection_memory: ConnectionMemory, transport: asyncio.Transport) -> None:
        """Store `data` or, if memory is exhausted, the error. If too many bytes are stored, stop reading from the
        client."""
        try:
            connection_memory.add(len(data))
        except GatewayError as error:
            self.error = error.with_traceback(None)  # the frames of the exception refer to the bytes
        else:
            self.data += data
        self.is_full = self.error is not None or len(self.data) > _MAX_AHEAD
        if self.is_full:
            transport.pause_reading()

    def take(self, connection_memory: ConnectionMemory, transport: asyncio.Transport) -> bytes:
        """Return the bytes, whose turn has come, and resume reading from the client."""
        taken, self.data = bytes(self.data), bytearray()
        self.is_full = False
        connection_memory.free(len(taken))
        transport.resume_reading()
        return taken
