"""One client's HTTP/1.1 connection: receives requests one at a time, hands each to the exchange, and writes its reply
before it looks at the next.

The phases and their time limits are drawn in `lifecycle`. This table has the events and the methods that handle them:

    phase            event                                       method             next phase
    IDLE             a part of a head arrived                    _head_begun        HEAD
    IDLE, HEAD       the head is complete, a body follows        _request_begun     BODY
    IDLE             a whole request arrived in one read         _receive_whole     ANSWERING
    IDLE, HEAD, BODY the request is complete                     _request_received  ANSWERING
    ANSWERING        the reply is written, but not read by now   _send              FLUSHING
    ANSWERING,       the reply is written, and the connection    _reply_written     IDLE
    FLUSHING           is kept, or this was the last reply                          LINGERING
    any              the request cannot be received to its end   _reject            LINGERING
    ANSWERING        the client ends its side (`half_close`)     eof_received       ANSWERING, then CLOSED

Bytes that arrive while an earlier request is answered wait in `_ahead`. Parsing (`request_head`, `request_body`) and
writing (`reply_bytes`, `streamed_reply`) are done without sockets in files of their own.
"""

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import frozen, replace
from gateway.core.patterns import PathTable
from gateway.core.record import GIVEN_UP, UNRECORDED, Record
from gateway.core.tasks import keep, spawn
from gateway.core.transport import (
    Admit,
    EventualReply,
    Exchange,
    ExchangeStream,
    Refuse,
    StartRecord,
    begun,
    is_admitted,
)
from gateway.core.types import Buffer, Headers, Message
from gateway.http2.bounds import SHORT_TURN, TURN
from gateway.transports.http.server import reply_bytes
from gateway.transports.http.server.content_coding import deflated_reply, exchange_inflated, request_stream
from gateway.transports.http.server.dispatch import Dispatch, allow_header, check_length, worth_receiving
from gateway.transports.http.server.half_close import HalfClose, can_wait
from gateway.transports.http.server.head_cache import HeadCache
from gateway.transports.http.server.http2_refusal import FIRST_LINE, Http2Refusal, NoteRefusal
from gateway.transports.http.server.request_body import ChunkedBody, SizedBody
from gateway.transports.http.server.request_head import (
    HeadReader,
    Http2PrefaceError,
    RequestHead,
    UnknownExpectationError,
)
from gateway.transports.http.server.streamed_reply import StreamedReplyWriter
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase

log = logging.getLogger(__name__)

# Bytes that a client may send while its request is answered. More stays in the kernel, which makes the client wait.
_MAX_AHEAD = 64 * 2**10

REQUESTS_PER_TURN = 32
"""Requests that one connection may have received before other connections have their turn, or fewer, if they take TURN
seconds. A client may send thousands at once, and many are answered in 0.1 ms each without waiting for anything; a head
with 2,000 fields takes 2 ms."""

# Python 3.11 takes ten times as long to find a member in its class.
_IDLE, _HEAD, _BODY, _ANSWERING = Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.ANSWERING
_FLUSHING, _LINGERING = Phase.FLUSHING, Phase.LINGERING
_RECEIVING = frozenset({_IDLE, _HEAD, _BODY})
_SERVING = frozenset({_IDLE, _HEAD, _BODY, _ANSWERING, _FLUSHING})
_UNANSWERED = frozenset({_HEAD, _BODY, _ANSWERING, _FLUSHING})


@frozen
class HttpContext(ConnectionContext):
    """The data that all connections of one HTTP listener share."""

    table: PathTable
    heads: HeadCache
    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    record: StartRecord | None
    admit: Admit | None = None


def refusal_noter(context: HttpContext) -> NoteRefusal:
    """Writes down the requests that a listener refuses since they come over HTTP/2."""

    def note(message: Message, error: GatewayError, status: int) -> str:
        record = begun(context.record, message, context.table.protocol_for_error(message.path), 0)
        record.failed(error)
        record.end(status, 0)
        is_told = is_admitted(context.admit, message.headers, message.identity, message.peer)
        return context.table.spoken if is_told else ""

    return note


class ServerConnection(Lifecycle, asyncio.Protocol):
    """Serves one client. `_head` and `_dispatch` belong to the request that is being received or answered; they are
    None until its head is parsed."""

    HEAD_NAME, BODY_NAME = "the request's head", "the request's body"

    _context: HttpContext

    def __init__(self, context: HttpContext) -> None:
        super().__init__(context)
        self._head_reader = HeadReader(context.limits.headers)
        self._head: RequestHead | None = None
        self._dispatch: Dispatch | None = None
        self._body: SizedBody | ChunkedBody | None = None
        """The body that is arriving."""
        self._ahead = bytearray()
        """Bytes that arrived before their turn."""
        self._ahead_error: GatewayError | None = None
        """Why bytes that arrived before their turn were not kept."""
        self._head_bytes = 0
        """What the request's head holds, counted in `sundries`; 0 for heads of the cache, which many requests share."""
        self._is_yielding = False
        """Whether others have their turn before this connection receives more."""
        self._keep_alive = False
        """Whether the connection is kept after the reply."""
        self._task: asyncio.Task[None] | None = None
        """Answers the request, where that takes time."""
        self._written: asyncio.Future[None] | None = None
        """What a streamed reply waits for while the client reads too slowly."""
        self._has_ended = False
        """Whether the client has said that it will send nothing more."""
        self._half_close: HalfClose | None = None
        """Finds out whether such a client waits for its reply; None before."""
        self._is_streaming = False
        """Whether some of a streamed reply is written."""
        self._record: Record = UNRECORDED
        """What becomes of the request, from the moment when it is answered or refused."""

    # What the event loop and the listener call; more in Lifecycle.

    @property
    def unanswered(self) -> int:
        """1 from the first byte of a request to the last byte of its reply."""
        return int(self._phase in _UNANSWERED)

    def renew(self, context: HttpContext) -> "asyncio.Task[None] | None":
        """Serve the next request, or the one that is still arriving, with `context`. Returns the task that answers the
        request in flight, if there is one."""
        self._context = context
        self._head_reader.limit = context.limits.headers
        if self._phase is _BODY and self._head is not None:
            self._dispatch = Dispatch(self._head, context.table)
        return self._task

    def data_received(self, data: bytes) -> None:
        """The client sent something."""
        if self._phase in _RECEIVING and not self._ahead:
            self._receive(data)
        elif self._phase is _LINGERING:
            self._drop(len(data))
        else:
            self._store_ahead(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed, by either side."""
        super().connection_lost(error)
        if self._half_close is not None:
            self._half_close.stop()
        self._head_reader.stop()
        self._record.give_up(GIVEN_UP["http"])
        self._record = UNRECORDED
        self._body = None
        self._ahead.clear()
        if self._task is not None:
            keep(self._task)
            self._task.cancel()
            self._task = None

    def eof_received(self) -> bool:
        """The client will send nothing more. Returns whether the connection stays open: while requests that are whole
        are answered, and the client may wait for that. It has left if a streamed reply has begun."""
        if self._has_ended:  # uvloop says it again after `resume_reading`
            return True
        is_answering = self._phase in (_ANSWERING, _FLUSHING) or (self._phase is _IDLE and bool(self._ahead))
        if not is_answering or self._is_streaming or not can_wait(self._transport):
            return False
        self._has_ended = True
        if self._phase is _ANSWERING:
            self._begin_reply()
        return True

    def _begin_reply(self) -> None:
        """Find out whether the client that will send nothing more waits for this reply."""
        try:
            self._half_close = HalfClose(self._loop, self._transport, self._transport.abort)
        except OSError:
            self._transport.abort()

    def _close_after_last(self) -> None:
        """Close after the client's end, unless a whole request is left to answer."""
        if self._phase in _RECEIVING and not self._ahead:
            self._close()

    def _proceed(self) -> None:
        if self._written is not None and not self._written.done():
            self._written.set_result(None)
        if self._phase is _FLUSHING:
            self._reply_written()
            self._receive_ahead()

    # Receiving.

    def _receive(self, data: bytes) -> None:
        try:
            if self._phase is _IDLE and self._receive_whole(data):
                return
            at, end = 0, len(data)
            steps = 2 * REQUESTS_PER_TURN  # a request is a head and a body
            begun = perf_counter()
            while at < end and steps and self._phase in _RECEIVING:
                steps = steps - 1 if perf_counter() - begun < TURN else 0
                at = self._receive_body(data, at) if self._phase is _BODY else self._receive_head(data, at)
        except DecodeError as error:
            self._reject(refusal(Reason.INVALID_INPUT, str(error)))
        except Http2PrefaceError as preface:
            self._refuse_http2(FIRST_LINE + data[preface.at :])
        except GatewayError as error:
            mistake = self._tls_mistake(data)
            self._reject(refusal(Reason.INVALID_INPUT, mistake) if mistake else error)
        else:
            if at < end and self._phase is _LINGERING:
                self._drop(end - at)
            elif at < end:
                self._store_ahead(data[at:])
                if not steps:
                    self._yield()
            elif perf_counter() - begun > SHORT_TURN and self._phase is not _LINGERING:
                self._yield()
            elif self._phase is _BODY and self._body_begun is None:
                self._await_body(0)

    def _receive_whole(self, data: bytes) -> bool:
        """Receive `data` if that is exactly one request, whose head is known and which is simple
        (`HeadCache.is_simple`): most requests are. False for all else, which is received by its parts."""
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
        """Read on from `at`. Returns the position in `data` up to which bytes were read."""
        reader = self._head_reader
        cached = self._context.heads.find(data, at) if self._phase is _IDLE else None
        if cached is not None:
            self._head, self._dispatch, size, _ = cached
            self._request_begun(self._head, self._dispatch)
            return at + size
        at = reader.feed(data, at)
        if reader.complete:
            self._hold_head(reader.held_bytes)
            self._head = RequestHead(reader)
            self._head.check()
            self._dispatch = Dispatch(self._head, self._context.table)
            self._request_begun(self._head, self._dispatch)
        elif reader.size:
            self._hold_head(reader.held_bytes)
            if self._phase is _IDLE:
                self._head_begun()
        return at

    def _hold_head(self, size: int) -> None:
        """Count what the head that has arrived so far holds. Raises GatewayError as Sundries.add."""
        self.sundries.add(size - self._head_bytes)
        self._head_bytes = size

    def _head_begun(self) -> None:
        self._phase = _HEAD
        self._alarm.set(self._context.timeouts.head)

    def _request_begun(self, head: RequestHead, dispatch: Dispatch) -> None:
        """The head has arrived: refuse the request, answer it, or wait for its body."""
        limits = self._context.limits
        check_length(head, limits.message)
        if dispatch.refused is not None and not worth_receiving(head):
            raise dispatch.refused
        admit = self._context.admit
        if admit is not None and dispatch.admits_first:
            admit(head.headers, self._identity, self._peer)  # for other requests the exchange does it, with the body
        self._keep_alive = head.keep_alive
        if head.length == 0:
            self._request_received(head, dispatch, b"")
            return
        if head.expects_continue:
            self._transport.write(reply_bytes.CONTINUE)
        memory = self.memory
        self._body = (
            ChunkedBody(limits.message, limits.headers, memory)
            if head.length is None
            else SizedBody(head.length, memory)
        )
        self._phase = _BODY
        self._body_begun = None

    def _receive_body(self, data: bytes, at: int) -> int:
        """Read on from `at`. Returns the position in `data` up to which bytes were read."""
        body = self._body
        assert body is not None
        end = body.feed(data, at)
        if body.complete:
            self._body = None  # a connection that is kept must not keep its last body in memory
            assert self._head is not None
            assert self._dispatch is not None
            self._request_received(self._head, self._dispatch, body.body)
        else:
            self._await_body(end - at)
        return end

    def _store_ahead(self, data: bytes) -> None:
        try:
            self.sundries.add(len(data))
        except GatewayError as error:
            self._ahead_error = error.with_traceback(None)  # whose frames hold the bytes
        else:
            self._ahead += data
        if len(self._ahead) > _MAX_AHEAD or self._ahead_error is not None:
            self._transport.pause_reading()

    def _receive_ahead(self) -> None:
        """Receive what arrived before its turn, if its turn has come."""
        if self._phase not in _RECEIVING or self._is_yielding:
            return
        if self._ahead_error is not None:
            self._reject(self._ahead_error)
        elif self._ahead:
            data, self._ahead = bytes(self._ahead), bytearray()
            self.sundries.free(len(data))
            self._transport.resume_reading()
            self._receive(data)
            if self._has_ended:
                self._loop.call_soon(self._close_after_last)

    def _yield(self) -> None:
        """Receive nothing more until other connections have had their turn."""
        if not self._is_yielding:
            self._is_yielding = True
            self._transport.pause_reading()
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_yielding = False
        if self._phase in _RECEIVING and (self._ahead or self._ahead_error is not None):
            self._receive_ahead()
        elif self._phase in _SERVING and self._ahead_error is None and len(self._ahead) <= _MAX_AHEAD:
            self._transport.resume_reading()

    # Answering.

    def _request_received(self, head: RequestHead, dispatch: Dispatch, body: Buffer) -> None:
        self._phase = _ANSWERING
        self._alarm.silence()
        reply: EventualReply
        if dispatch.refused is not None:
            reply = self._error_reply(dispatch.refused)
        else:
            context, protocol, coding = self._context, dispatch.protocol, dispatch.coding
            message = dispatch.message(head, body, self._peer, self._loop.time(), self._identity)
            if context.record is not None:
                self._record = context.record(message, protocol, len(body))
            try:
                if dispatch.streams or (dispatch.asks_body and dispatch.body_wants_stream(message)):
                    messages = request_stream(message, coding, context.limits, self.memory)
                    stream = StreamedReplyWriter(messages, context.stream, protocol, head, self._record)
                    self._task = spawn(self._send_stream(stream))
                    if self._has_ended:
                        self._begin_reply()
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
            # Without a name the task would make one.
            self._task = asyncio.Task(self._send_later(reply), loop=self._loop, name="reply")
            if self._has_ended:
                self._begin_reply()

    async def _send_later(self, reply: Awaitable[Message]) -> None:
        try:
            message = await reply
        except asyncio.CancelledError:
            # Not raised again: a cancelled task would keep the exception, and with it the request, in memory.
            self._transport.abort()
            return
        except Exception as error:
            message = self._error_reply(as_gateway_error(error, self._record))
        self._task = None
        self._send(message)
        if self._ahead or self._ahead_error is not None:
            self._receive_ahead()

    async def _send_stream(self, stream: StreamedReplyWriter) -> None:
        if not stream.is_delimited:
            self._keep_alive = False
        try:
            await stream.write(self._begin_stream, self._transport, self._connection_line, self._until_read)
        except asyncio.CancelledError:
            # Not raised again, as in _send_later.
            self._transport.abort()
            return
        except Exception as error:
            self._task, self._is_streaming = None, False
            self._break_off(as_gateway_error(error, self._record), begun=stream.begun)
        else:
            self._task, self._is_streaming = None, False
            self._reply_written()
        self._receive_ahead()

    def _begin_stream(self, head: Buffer) -> Buffer:
        self._is_streaming = True
        return head if self._half_close is None else self._half_close.rest_of(head)

    async def _until_read(self) -> None:
        """Wait until the client has read most of what was written; always let the loop run other tasks once."""
        await asyncio.sleep(0)
        if not self._writable:
            self._written = self._loop.create_future()
            self._await_progress()
            await self._written
            self._alarm.silence()

    def _break_off(self, error: GatewayError, *, begun: bool) -> None:
        """End a streamed reply that failed. Once some of it is written, the connection is reset: a clean end would make
        it look complete."""
        if begun:
            log.warning("a reply to %s broke off: %s", self._peer, error.message)
            self._transport.abort()
        else:
            self._send(self._error_reply(error))

    # Writing.

    def _send(self, reply: Message) -> None:
        """Write `reply`, then wait for the next request or close."""
        self._write(reply)
        if not self._writable:
            self._phase = _FLUSHING
            self._await_progress()
        elif self._keep_alive:
            self._await_request()
        else:
            self._linger()

    def _write(self, reply: Message) -> None:
        head = self._head
        try:
            buffers, size = reply_bytes.whole(
                reply, self._connection_line(), head is not None and head.method == "HEAD"
            )
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

    def _connection_line(self) -> bytes:
        """The Connection line of a head that is written now, and the lines of the request's record. It decides whether
        the connection is kept: a client that was not told to expect a close may send another request (RFC 9112 section
        9.6), which must be answered."""
        if self._context.connections.ending:
            self._keep_alive = False
        head = self._head
        line = head.keep_line if self._keep_alive and head is not None else reply_bytes.CLOSE
        if self._record.tells:
            line += reply_bytes.lines(self._record.reply_fields())
        return line

    def _reply_written(self) -> None:
        if self._keep_alive:
            self._await_request()
        else:
            self._linger()

    def _await_request(self) -> None:
        self._phase = _IDLE
        self._keep_alive = False
        self._head = self._dispatch = None
        self._record = UNRECORDED
        if self._head_reader.size:
            self._head_reader.start()
        if self._head_bytes:
            self.sundries.free(self._head_bytes)
            self._head_bytes = 0
        self._alarm.set(self._idle_seconds)
        if self._has_ended:
            self._loop.call_soon(self._close_after_last)

    def _linger(self) -> None:
        if self._has_ended:  # it has closed already
            self._close()
        else:
            super()._linger()

    # Refusing.

    def _reject(self, error: GatewayError) -> None:
        self._keep_alive = False
        self._head_reader.start()  # forgets what has arrived of the head
        self._write(self._error_reply(error))
        self._linger()

    def _refuse_http2(self, data: bytes) -> None:
        """Let a connection take over that refuses the requests of HTTP/2, `data` of which has come."""
        self._alarm.stop()
        self._phase = Phase.CLOSED
        self._head_reader.stop()
        Http2Refusal(self._context, refusal_noter(self._context)).take_over(self, self._transport, data)

    def _error_reply(self, error: GatewayError) -> Message:
        """The reply that reports `error`, in the form of the protocol that the request's path belongs to."""
        head, dispatch, context = self._head, self._dispatch, self._context
        message = Message(peer=self._peer, received=self._loop.time(), identity=self._identity, record=self._record)
        if head is not None:
            message = replace(message, method=head.method, path=head.path, query=head.query, headers=head.headers)
        protocol = context.table.protocol_for_error(message.path) if dispatch is None else dispatch.protocol
        if self._record is UNRECORDED:
            self._record = begun(context.record, message, protocol, 0)
        is_unknown = error.reason is Reason.PATH_NOT_FOUND
        if is_unknown and is_admitted(context.admit, message.headers, self._identity, self._peer):
            error = refusal(error.reason, f"{error.message}; this listener speaks {context.table.spoken}")
        reply = context.refuse(error, protocol, message)
        if dispatch is not None and dispatch.allow:
            reply = replace(reply, headers=Headers((*reply.headers.raw, allow_header(dispatch.allow))))
        return replace(reply, status=417) if isinstance(error, UnknownExpectationError) else reply
