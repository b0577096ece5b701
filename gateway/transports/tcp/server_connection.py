"""One client's byte stream, which receives messages, passes each message to the exchange, and writes the reply.

`lifecycle` describes the phases. For byte streams, the phase is the first phase in this list that applies:

    FLUSHING   the client reads too slowly
    ANSWERING  requests are in flight
    BODY       a header is complete, its message is not
    HEAD       a header has begun to arrive
    IDLE       none of these

If replies have a tag (`Framing.tag`), many requests can be in flight in parallel, and the gateway writes replies as
they arrive. Otherwise, one request at a time is in flight. Messages that arrive before their turn wait in `_waiting`.
In the meantime, the gateway stops reading, so the client must wait. If the gateway cannot separate a message from the
stream, it responds to the earlier requests and closes the connection.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import frozen, replace, set_field
from gateway.core.messages import NO_HEADERS, Message, bytes_of
from gateway.core.protocol import Protocol, StreamBinding
from gateway.core.record import GIVEN_UP, UNRECORDED
from gateway.core.tasks import spawn
from gateway.core.transport import Admit, EventualReply, Exchange, Refuse, StartRecord, awaited
from gateway.transports.half_close import HalfClose, can_wait
from gateway.transports.inflate import inflate_message, is_compressed
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase
from gateway.transports.memory import CALL_BYTES, waiting_bytes
from gateway.transports.tcp.packets import Packet, PacketReader, write

_LAST = frozenset({Phase.LINGERING, Phase.CLOSED})

MESSAGES_PER_TURN = 32
"""Maximum number of messages on one connection before other connections have their turn.

The limit is necessary because a client can send thousands of messages together, and many messages take at least 0.1 ms
each."""

LARGEST_IN_FLIGHT = 2
"""The number of requests of `limits.message` bytes (or more smaller requests with the same total size) that one
connection can have in flight. The gateway still begins the request that exceeds this size, but the next request
waits."""


@frozen
class TcpContext(ConnectionContext):
    """The data that all connections of one listener share.

    `max_in_flight` is the maximum number of requests in flight on one connection. It exceeds one only if replies have a
    tag."""

    protocol: Protocol
    exchange: Exchange
    refuse: Refuse
    record: StartRecord | None
    scratch: memoryview
    max_in_flight: int
    admit: Admit | None = None


class TcpServerConnection(Lifecycle, asyncio.BufferedProtocol):
    """Serves one client."""

    HEAD_NAME = "the message's header"

    _context: TcpContext

    def __init__(self, context: TcpContext) -> None:
        assert isinstance(context.protocol.binding, StreamBinding)
        super().__init__(context)
        self._framing = context.protocol.binding.framing
        self._reader = PacketReader(self._framing, context.limits, context.scratch)
        self._waiting: deque[Message] = deque()
        """Messages that wait for the exchange."""
        self._to_refuse: deque[Message] = deque()
        """Messages to reject without waiting for the requests in flight."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """The tasks of the requests in flight. The value is the size of the request without its header, in bytes."""
        self._in_flight_bytes = 0
        """The sum of the sizes in `_tasks`."""
        self._max_in_flight_bytes = LARGEST_IN_FLIGHT * context.limits.message
        self._received = 0
        """The number of bytes in the last read."""
        self._stream_error: GatewayError | None = None
        """The error that prevents splitting further messages from the stream."""
        self._rejection: GatewayError | None = None
        """The error for each request on a connection that was not admitted."""
        self._half_close: HalfClose | None = None
        """Detects whether a half-closed client still waits for its replies; None until the client has half-closed the
        connection."""
        self._next_turn: asyncio.Handle | None = None
        """The callback that continues with the messages that were waiting at the end of the connection's turn."""
        self._ends_at = math.inf
        """The time when the connection ends if no request is in flight. The time is finite only while the connection
        drains."""

    @property
    def protocol(self) -> str:
        """The name of the served protocol."""
        return self._context.protocol.name

    @property
    def unanswered(self) -> int:
        """The number of requests in flight or waiting, plus one if a request is arriving or its reply is unread."""
        partly = self._reader.header or (self._phase is Phase.FLUSHING and not self._tasks)
        return len(self._tasks) + len(self._waiting) + len(self._to_refuse) + bool(partly)

    def renew(self, context: TcpContext) -> "list[asyncio.Task[None]]":
        """Use `context`, which has the same framing, for all requests that begin later, and return the tasks of the
        requests in flight."""
        self._context = context
        self._reader.limits = context.limits
        self._max_in_flight_bytes = LARGEST_IN_FLIGHT * context.limits.message
        return list(self._tasks)

    def drain(self) -> None:
        """Close the connection after its last reply. If replies have a tag, reject new requests from now on."""
        self._ends_at = self._loop.time() + self._context.timeouts.grace
        super().drain()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client."""
        super().connection_made(transport)
        self._reader.memory = self.memory

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._context.scratch if self._phase in _LAST else self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the client."""
        if self._phase in _LAST:
            self._drop(nbytes)
            return
        self._received = nbytes
        try:
            messages = self._to_refuse if self._refuses_new() else self._waiting
            for packet in self._reader.received(nbytes):
                self.connection_memory.add(waiting_bytes(len(packet[1])))
                messages.append(self._message(packet))
        except (DecodeError, GatewayError) as error:
            mistake = self._tls_mistake(self._reader.header)
            self._stream_error = refusal(Reason.INVALID_INPUT, mistake) if mistake else as_gateway_error(error)
        if self._rejection is not None and not self._to_refuse and self._stream_error is None:
            return  # its first request has not arrived yet, and must arrive before the current alarm
        self.proceed()

    def eof_received(self) -> bool:
        """Handle a client that will send no more bytes. Return True to keep the connection open, if complete requests
        have arrived and the client might be waiting for the replies."""
        if self._half_close is not None:  # uvloop calls this again after `resume_reading`
            return True
        has_requests = self._tasks or self._waiting or self._to_refuse
        first = self._framing.magic[:1]
        if has_requests and self._phase not in _LAST and first and can_wait(self._transport):
            self._half_close = HalfClose(self._loop, self._transport, first)
            self._has_peer_ended = True
            self.proceed()
            return True
        if self._phase not in _LAST and not has_requests:
            try:
                self._reader.check_end()
            except DecodeError as error:
                self._write_error(as_gateway_error(error))
        self.close()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        if self._half_close is not None:
            self._half_close.stop()
        for task in self._tasks:
            task.cancel()
        self._waiting.clear()
        self._to_refuse.clear()
        self._reader.forget()

    def resume_writing(self) -> None:
        """Resume writing after the client has read most of the data, and restart the client's time limits: further
        replies can fill the buffer before the gateway next measures the client's progress."""
        if self._phase is Phase.FLUSHING:
            self._phase = Phase.ANSWERING
        super().resume_writing()

    # Requests and replies.

    def proceed(self) -> None:
        """Begin the requests whose turn has come, and then continue to read, wait, or close the connection."""
        if self._phase in _LAST:
            return
        if self._next_turn is None:
            self._begin_waiting()
        if not self._tasks and not self._waiting and not self._to_refuse:
            if self._stream_error is not None:
                self.reject(self._stream_error)
                return
            if self._rejection is not None or self._half_close is not None:
                self.linger()
                return
            # Without tags, the reply that was just written is the last reply. With tags, more requests might be in
            # transit.
            if self._ends_at < math.inf and self._framing.tag is None and not self._reader.header:
                self.linger()
                return
        elif self._half_close is not None and not all(task.done() for task in self._tasks):
            self._half_close.watch()
        self._update_phase()

    def _begin_waiting(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            if self._to_refuse and self._writable:
                message, go_on = self._to_refuse.popleft(), self._refuse_new
            elif self._waiting and self._writable and self._may_begin():
                message, go_on = self._waiting.popleft(), self.begin
            else:
                return
            self.connection_memory.free(waiting_bytes(len(message.parts[1])))
            go_on(message)
        self._next_turn = self._loop.call_soon(self._take_next_turn)

    def _take_next_turn(self) -> None:
        self._next_turn = None
        self.proceed()

    def _may_begin(self) -> bool:
        return self._in_flight_bytes < self._max_in_flight_bytes and len(self._tasks) < self._context.max_in_flight

    def _count_in_flight(self, task: "asyncio.Task[None]", size: int) -> None:
        self._in_flight_bytes += size - self._tasks.get(task, 0)
        self._tasks[task] = size

    def _message(self, packet: Packet) -> Message:
        """Return the Message that a packet contains.

        Raises:
            DecodeError: replies have a tag, and this request has no readable tag.
        """
        self._body_begun = None
        message = Message(parts=packet, peer=self._peer, received=self._loop.time(), identity=self._identity)
        if self._framing.tag is not None:
            self._framing.tag(message)
        return message

    def begin(self, message: Message) -> None:
        context, size, held = self._context, len(message.parts[1]), 0
        if context.record is not None:
            self._start_record(context.record, message)
        try:
            self.connection_memory.add(CALL_BYTES)
            held = CALL_BYTES
            if is_compressed(message, self._framing):
                self._admit(message)
                reply: EventualReply = self._exchange_inflated(message)
                size += context.limits.message  # the maximum decompressed size
            else:
                reply = context.exchange(message, context.protocol)
        except Exception as error:
            reply = context.refuse(as_gateway_error(error, message.record), context.protocol, message)
        if isinstance(reply, Message):
            self.connection_memory.free(held)
            self._write(reply, message)
            return
        task = spawn(self._answer(reply, message))
        self._count_in_flight(task, size)
        task.add_done_callback(self._answered)

    def _start_record(self, start: StartRecord, message: Message) -> None:
        form = self._context.protocol.binding
        assert isinstance(form, StreamBinding)
        if form.context is not None:
            set_field(message, "headers", form.context(message))
        start(message, self._context.protocol, bytes_of(message))

    def _admit(self, message: Message) -> None:
        """Check the credentials in a compressed message before decompression. In other messages, the exchange checks
        the credentials."""
        admit, form = self._context.admit, self._context.protocol.binding
        assert isinstance(form, StreamBinding)
        if admit is not None:
            headers = NO_HEADERS if form.credential is None else form.credential(message)
            admit(headers, self._identity, self._peer)

    async def _exchange_inflated(self, message: Message) -> Message:
        context, task = self._context, asyncio.current_task()
        inflated = await inflate_message(message, self._framing, context.limits, self.memory)
        assert task is not None
        self._count_in_flight(task, len(message.parts[1]) + len(inflated.parts[1]))
        self.proceed()
        reply = context.exchange(inflated, context.protocol)
        return await awaited(reply)

    async def _answer(self, reply: Awaitable[Message], message: Message) -> None:
        try:
            answer = await reply
        except asyncio.CancelledError:
            # The exception is not raised again, because a cancelled task would keep the exception, and with it the
            # request, in memory.
            self._transport.abort()
            message.record.give_up(GIVEN_UP["tcp"])
            return
        except Exception as error:
            answer = self._context.refuse(as_gateway_error(error, message.record), self._context.protocol, message)
        self._write(answer, message)

    def _write(self, reply: Message, request: Message) -> None:
        rest = reply
        if self._half_close is not None:
            begin, *others = reply.parts
            rest = replace(reply, parts=(self._half_close.rest_of(begin), *others))
        write(self._transport, rest)
        if (record := request.record) is not UNRECORDED:
            record.end(reply.status, bytes_of(reply))

    def _refuse(self, error: GatewayError, message: Message) -> None:
        """Write an error reply to a message that does not reach the exchange."""
        context = self._context
        if context.record is not None:
            self._start_record(context.record, message)
        self._write(context.refuse(error, context.protocol, message), message)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._in_flight_bytes -= self._tasks.pop(task)
        self.connection_memory.free(CALL_BYTES)
        if self._ends_at < math.inf:
            self._ends_at = self._loop.time() + self._context.timeouts.grace
        self.proceed()

    # Refusing.

    def _refuses_new(self) -> bool:
        """Return True if the connection rejects all requests that arrive now, which requires that replies have a
        tag."""
        return self._rejection is not None or (self._ends_at < math.inf and self._framing.tag is not None)

    def _refuse_new(self, message: Message) -> None:
        error = self._rejection or refusal(Reason.NOT_READY, "the gateway is stopping")
        self._refuse(error, message)

    def reject_connection(self, error: GatewayError) -> None:
        """Reject the connection.

        If replies have a tag, reject the first requests instead, because clients drop a reply with an unknown tag."""
        if self._framing.tag is None:
            super().reject_connection(error)
        else:
            self._rejection = error
            self._idle_seconds = self._context.timeouts.grace
            self._alarm.set(self._idle_seconds)

    def reject(self, error: GatewayError) -> None:
        self._write_error(error)
        self.linger()

    def _write_error(self, error: GatewayError) -> None:
        """Report `error`, which concerns the arriving message, in the format of the protocol."""
        message = Message(parts=(self._reader.header, b""), peer=self._peer, received=self._loop.time())
        self._refuse(error, message)

    # Phases.

    def _update_phase(self) -> None:
        """Set the phase and its time limit. Continue to read if no message waits, otherwise pause."""
        has_waiting = self._waiting or self._to_refuse or self._stream_error is not None
        if has_waiting or not (self._writable or self._ends_at == math.inf):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        phase = self._current_phase()
        if phase is Phase.FLUSHING:
            self._count_unread()
        if phase is self._phase and phase in (Phase.HEAD, Phase.FLUSHING):
            return  # the previous time limits continue
        self._phase = phase
        timeouts = self._context.timeouts
        match phase:
            case Phase.IDLE if self._ends_at < math.inf:
                self._alarm.set(max(0, self._ends_at - self._loop.time()))
            case Phase.IDLE if self._framing.tag is None:
                self._alarm.set(timeouts.idle)
            case Phase.HEAD:
                self._alarm.set(timeouts.head)
            case Phase.BODY:
                self._await_body(self._received)
            case Phase.FLUSHING:
                self._await_progress()
            case _:
                self._alarm.silence()

    def _current_phase(self) -> Phase:
        if not self._writable:
            return Phase.FLUSHING
        if self._tasks:
            return Phase.ANSWERING
        if self._reader.in_body:
            return Phase.BODY
        return Phase.HEAD if self._reader.header else Phase.IDLE

    def close_idle(self) -> None:
        """Close an idle connection. While draining, also close the connection of a client that continues to send
        although its requests have been rejected for some time."""
        if self._ends_at < math.inf and self._framing.tag is not None:
            self.linger()
        else:
            super().close_idle()
