"""One client call, from the request's head to the end of the reply. `connection` creates the calls.

No part of a request stays in memory after the reply. A call drops each message after passing it on, and drops its
stream, task and timer when the call ends. Therefore, no reference cycle keeps a body in memory until the garbage
collector runs.
"""

import asyncio
import typing
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeAlias

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, error_fields, refusal
from gateway.core.exchange import as_gateway_error, deadline_passed
from gateway.core.frozen import frozen
from gateway.core.http2.bounds import SMALL_DATA
from gateway.core.http2.connection import Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.server import WINDOW, Http2Server
from gateway.core.messages import Buffer, Headers, Message, bytes_of
from gateway.core.protocol import Limits
from gateway.core.record import GIVEN_UP, UNRECORDED, Record
from gateway.core.tasks import keep
from gateway.core.transport import EventualReply
from gateway.transports.grpc.inflating import Compressed, inflated
from gateway.transports.grpc.messages import PREFIX_SIZE, MessageReader, Received, TooLargeError, framed, only_message
from gateway.transports.grpc.server import replies
from gateway.transports.grpc.server.call_deadlines import CallDeadlines
from gateway.transports.grpc.server.heads import CallHead
from gateway.transports.grpc.server.large_messages import LargeMessages
from gateway.transports.memory import CALL_BYTES, ConnectionMemory, Memory, waiting_bytes

_LARGE_WINDOW = 2**23
"""The window size for large messages, in bytes, which is larger than the usual window."""

_GRACE = 0.5
"""If the deadline of a unary call has passed, the connection waits for this number of seconds, and then ends the call.

Usually, the exchange has already ended the call, with an error in the format of the protocol. This error can be
`deadlines.FAR_GRAIN` late, and states how long the call waited for a free slot."""

Answer: TypeAlias = Callable[[Message], EventualReply]
StartRecord: TypeAlias = Callable[[Message, int], Record]
"""Creates the record for a request in one protocol. By contrast, `transport.StartRecord` takes the protocol as an
argument."""
AnswerStream: TypeAlias = Callable[[AsyncIterator[Message]], AsyncGenerator[Message, None]]


@frozen
class Method:
    """The functions that serve a method. `answer` handles one request with one reply, and `stream` handles any number
    of requests and replies. `refuse` creates the reply to a request that failed unexpectedly, and is None for gRPC's
    own services. `record` is None without observers."""

    name: str
    answer: Answer | None = None
    stream: AnswerStream | None = None
    refuse: Callable[[GatewayError, Message], Message] | None = None
    record: StartRecord | None = None


class CallConnection(typing.Protocol):
    """The part of a connection that its calls use."""

    http2: Http2Server[CallHead]
    limits: Limits
    memory: Memory
    connection_memory: ConnectionMemory
    loop: asyncio.AbstractEventLoop
    deadlines: CallDeadlines
    large_messages: LargeMessages
    peer: str
    identity: str
    is_stopping: bool
    """True if streams end after the current message."""

    def flush(self) -> None:
        """Write the queued data."""

    def flush_together(self) -> None:
        """Write a reply together with other replies that are ready before the loop's next turn."""

    def ended(self, task: object) -> None:
        """Handle the end of a cancelled request whose stream is already closed."""


class ServerCall:
    """The base class of all calls."""

    __slots__ = (
        "_body", "_deadline", "_head", "_held_in_memory", "_is_admitted", "_method", "_owner", "_read_so_far",
        "_record", "_stream", "_task", "_unstarted", "arrived_bytes", "arriving_since", "due",
    )  # fmt: skip

    def __init__(self, owner: CallConnection, stream: Stream, method: Method, head: CallHead) -> None:
        self._owner = owner
        self._stream = stream
        self._method = method
        self._head = head
        self._held_in_memory = CALL_BYTES + head.size
        """The number of bytes that `connection_memory` counts for this call."""
        self._read_so_far: MessageReader | None = None
        """The message reader; None until the first data that is not a complete request."""
        self._task: asyncio.Task[None] | None = None
        # The next two attributes belong to unary calls. They are here because most calls are unary, and a second
        # constructor would take as long as this one.
        self._body: Received | None = None
        self._unstarted: Any = None
        """The reply for the task to await; None after the task has started."""
        self._deadline: float | None = None
        self._is_admitted = False
        self._record = UNRECORDED
        """The record of the last message that was passed on."""
        self.arriving_since = stream.heard
        """The time when the arriving message began, or when the client was last allowed to continue sending it."""
        self.arrived_bytes = 0
        """The number of bytes of the arriving message that have arrived since `arriving_since`."""
        self.due: float | None = None
        """The time at which to end the call; None without a deadline."""
        if head.timeout is not None:
            self._deadline = self.due = due = stream.heard + head.timeout
            if due < owner.deadlines.next_due:
                owner.deadlines.ring_at(due)

    @property
    def _reader(self) -> MessageReader:
        if self._read_so_far is None:
            self._read_so_far = MessageReader(self._owner.limits.message, self._owner.memory)
        return self._read_so_far

    @property
    def path(self) -> bytes:
        """The method's path."""
        return self._head.path

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task that serves the call, if it has started."""
        return self._task

    def renew(self, method: Method) -> None:
        """Use `method` for messages that have not been passed on yet."""
        self._method = method

    @property
    def is_arriving(self) -> bool:
        """True if a message has arrived only in part."""
        raise NotImplementedError

    @property
    def may_be_shed(self) -> bool:
        """True if the gateway can reject the call because the process is overloaded.

        This requires that only the head has arrived, and that the call is not for one of gRPC's own services, such as
        the health service.
        """
        return not self.arrived_bytes and self._reader.is_between and self._method.refuse is not None

    def received_whole(self, data: memoryview) -> None:
        """Handle a request whose bytes have all arrived together. See `received`."""
        self.received(data, ends=True)

    def received(self, data: memoryview, *, ends: bool) -> None:
        """Handle bytes of the request, which are valid only during this call.

        If `ends` is True, no more bytes follow."""
        if self._reader.is_between and self._method.stream is not None:  # otherwise, the message begins with the head
            self._begin_arriving()
        self.arrived_bytes += len(data)
        try:
            messages = self._reader.read(data)
        except TooLargeError as error:
            self._refuse_message(_too_large(error.size, self._owner.limits))
            return
        except GatewayError as error:
            self._refuse_message(error)
            return
        except DecodeError as error:
            self._refuse_message(_malformed(str(error)))
            return
        if ends and not self._reader.is_between:
            self._refuse_message(_malformed("the request ends within a message"))
            return
        if messages and not ends and len(data) < SMALL_DATA:
            self._owner.http2.refund_small_data()
        if self._is_admitted and not self._reader.missing:
            self._let_others()
        self.arrived(messages, ends)
        if not ends:
            self.grant()

    def grant(self) -> None:
        """Allow the client to send more data, if space is available."""
        if not self._stream.is_sending:
            return
        missing = self._reader.missing
        if missing <= WINDOW:
            self._owner.http2.grant(self._stream, self.held())
        elif self._is_admitted or self._owner.large_messages.admits(self, missing):
            if not self._is_admitted:
                self._begin_arriving()
            self._is_admitted = True
            self._owner.http2.grant(self._stream, self.held(), min(missing, _LARGE_WINDOW))

    def _begin_arriving(self) -> None:
        self.arriving_since, self.arrived_bytes = self._stream.heard, 0

    def _refuse_message(self, error: GatewayError) -> None:
        """End the call because of a message that is not passed on.

        Like all earlier messages of a stream, the message has its own record."""
        self._record = UNRECORDED
        self.fail(error)

    def fail(self, error: GatewayError) -> None:
        """End the call with an error that the listener itself reports."""
        task, self._task = self._task, None
        if self._record is UNRECORDED:
            self._message(b"", self._stream.heard)
        self._record.failed(error)
        self._end(refused(error))
        self.stop(task)

    def cancel(self) -> None:
        """Stop the running task, because the client has disconnected or the stream is closed."""
        task, self._task = self._task, None
        self._record.give_up(GIVEN_UP["grpc"])
        self._over()
        self.stop(task)

    def stop(self, task: "asyncio.Task[None] | None") -> None:
        """Cancel the task that served the call, after the end of the call."""
        if task is not None:
            keep(task)
            self._owner.http2.still_running += 1
            task.add_done_callback(self._owner.ended)
            task.cancel()

    def drain(self) -> None:
        """Stop waiting for messages, because the listener is stopping."""

    def went_on(self) -> None:
        """Continue with the next reply, because the client has read most of the unsent data."""

    def arrived(self, messages: list[Received], ends: bool) -> None:
        """Handle complete messages of the request. If `ends` is True, no more messages follow."""
        raise NotImplementedError

    def idle_for_too_long(self, now: float) -> str | None:
        """Return the reason to end a stream on which neither side sends messages.

        Return None if the stream can continue, and for all other calls."""
        return None

    def held(self) -> int:
        """Return the number of bytes that have arrived but have not been passed on yet."""
        return 0

    def _message(self, body: Buffer, now: float) -> Message:
        name, owner = self._method.name, self._owner
        message = Message(
            name,
            name,
            self._head.metadata,
            (body,),
            pattern=name,
            peer=owner.peer,
            received=now,
            deadline=self._deadline,
            identity=owner.identity,
        )
        if self._method.record is not None:
            self._record = self._method.record(message, len(body))
        return message

    async def _inflated(self, message: Compressed) -> Buffer:
        """Return the decompressed message.

        Raises GatewayError if the message does not have the declared encoding or is too large."""
        encoding, owner = self._head.encoding, self._owner
        if not encoding:
            raise _malformed("a message is compressed, but grpc-encoding is missing")
        try:
            return await inflated(message, encoding, owner.limits, owner.memory)
        except DecodeError as error:
            raise _malformed(str(error)) from None

    def _refuse(self, error: Exception) -> Message:
        """Return the reply that reports `error` in the format of the protocol."""
        known, name = as_gateway_error(error, self._record), self._method.name
        error.__traceback__ = None  # its frames can refer to the request and to the error
        if self._method.refuse is None:
            self._record.failed(known)
            return refused(known)
        return self._method.refuse(known, Message(name, name, pattern=name, record=self._record))

    def _end(self, reply: Message) -> None:
        """End the call's reply with the status and headers of `reply`. If the head has not been sent yet, send a head
        first."""
        http2, stream = self._owner.http2, self._stream
        if stream.unsent is not None:
            http2.reset(stream, ErrorCode.CANCEL)  # a status cannot be sent within a message
        else:
            block = replies.trailers(reply) + self._end_record(reply)
            http2.send_end(stream, block if self.has_head() else replies.HEAD + block)
        self._over()
        self._owner.flush()

    def _end_record(self, reply: Message) -> bytes:
        """End the record, and return its fields for the trailers.

        A stream has one set of trailers for all its messages, which contains the fields of the last message."""
        self._record.end(reply.status, bytes_of(reply))
        return replies.more_trailers(self._record)

    def has_head(self) -> bool:
        """Return whether the head of the reply has been sent."""
        return False

    def ring(self) -> None:
        """Handle the deadline of the call, which has passed. A unary call gets a little more time."""
        if self._deadline is not None and self.due == self._deadline and self._method.stream is None:
            self.due = self._owner.loop.time() + _GRACE
        else:
            self.fail(deadline_passed())

    def _let_others(self) -> None:
        self._is_admitted = False
        self._owner.large_messages.release(self)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        # The stream refers to the call, and the call to its task, until one of them ends. `stop` keeps the task longer.
        # The loop's `create_task` would generate a name, which takes a third of the time of creating a task.
        self._task = asyncio.Task(work, loop=self._owner.loop, name="gRPC call")

    def _over(self) -> None:
        """Drop all references. The connection does not need the call to send the rest of a complete reply."""
        self._stream.handler = None
        self._task = None
        held, self._held_in_memory = self._held_in_memory, 0
        self._owner.connection_memory.free(held)
        if self._read_so_far is not None and self._read_so_far.missing:
            self._let_others()


class UnaryCall(ServerCall):
    """A call with one request and one reply. If the exchange cannot respond immediately, a task serves the request."""

    __slots__ = ()

    @property
    def is_arriving(self) -> bool:
        return self._stream.is_receiving

    def stop(self, task: "asyncio.Task[None] | None") -> None:
        unstarted, self._unstarted = self._unstarted, None
        self._body = None
        if asyncio.iscoroutine(unstarted):
            unstarted.close()
        super().stop(task)

    def received_whole(self, data: memoryview) -> None:
        message = only_message(data, self._owner.limits.message)
        if message is None:
            self.received(data, ends=True)
        else:
            self._answer(message)  # not counted in memory, because a frame has fewer than MIN_COUNTED bytes

    def arrived(self, messages: list[Received], ends: bool) -> None:
        if len(messages) + (self._body is not None) > 1:
            self.fail(_malformed("the method takes one message, the request has more"))
            return
        if messages:
            self._body = messages[0]
        if ends:
            body, self._body = self._body, None
            if body is None:
                self.fail(_malformed("the method takes one message, the request has no message"))
            elif isinstance(body, Compressed):
                self._run(self._answer_inflated(body))
            else:
                self._answer(body)

    def _answer(self, body: Buffer) -> None:
        assert self._method.answer is not None
        try:
            reply = self._method.answer(self._message(body, self._stream.heard))
        except Exception as error:
            reply = self._refuse(error)
        if isinstance(reply, Message):
            self._reply(reply)
        else:
            self._unstarted = reply
            self._run(self._answer_later())

    async def _answer_later(self) -> None:
        reply, self._unstarted = self._unstarted, None
        try:
            answered = await reply
        except asyncio.CancelledError:
            return  # as in every task: a cancelled task would keep the error, and with it the request
        except Exception as error:
            answered = self._refuse(error)
        self._reply(answered)

    async def _answer_inflated(self, body: Compressed) -> None:
        try:
            inflated = await self._inflated(body)
        except GatewayError as error:
            self._task = None  # the current task, which ends by itself and must not be cancelled
            self._refuse_message(error)
            return
        except asyncio.CancelledError:
            return  # as in `_answer_later`
        except Exception as error:
            self._reply(self._refuse(error))
            return
        del body
        self._task = None
        self._answer(inflated)

    def _reply(self, reply: Message) -> None:
        if reply.status:
            self._end(reply)
            return
        trailers = replies.trailers(reply)
        if self._record is not UNRECORDED:
            trailers += self._end_record(reply)
        self._owner.http2.respond(self._stream, replies.HEAD, framed(reply.parts), trailers)
        self._over()
        self._owner.flush_together()


class StreamCall(ServerCall):
    """A call with any number of messages in both directions.

    The gateway pulls a reply, writes it, and pulls the next reply when the client has received this reply. A reply with
    a status other than 0 ends the call. Requests that the exchange has not pulled yet reduce the stream's window."""

    __slots__ = (
        "_began", "_ended", "_held_bytes", "_idle_since", "_is_cut_off", "_messages_pulled", "_queue", "_reading",
        "_trailers", "_writing",
    )  # fmt: skip

    def __init__(self, owner: CallConnection, stream: Stream, method: Method, head: CallHead) -> None:
        super().__init__(owner, stream, method, head)
        self._queue: deque[Received] = deque()
        self._held_bytes = 0
        self._ended = False
        self._idle_since: float | None = None
        """The time when the call began to wait for the next message, after all requested replies; None while it does
        not wait."""
        self._messages_pulled = 0
        self._is_cut_off = False
        """True if the client could not send all messages, because the listener is draining."""
        self._began = False
        self._trailers = Message()
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._run(self._serve())

    @property
    def is_arriving(self) -> bool:
        return self._stream.is_receiving and not self._reader.is_between

    def idle_for_too_long(self, now: float) -> str | None:
        if self._idle_since is None:
            return None
        limits, idle = self._owner.limits, now - max(self._idle_since, self._stream.heard)
        if not self._messages_pulled and idle > limits.stream_first_message:
            text = f"no message came for {limits.stream_first_message:g} s (limits.stream_first_message)"
            return f"{text}; send one sooner, or raise the limit"
        if idle > limits.stream_idle:
            text = f"no message came from either side for {limits.stream_idle:g} s (limits.stream_idle)"
            return f"{text}; send one sooner, or raise the limit"
        return None

    def drain(self) -> None:
        _wake(self._reading)

    def went_on(self) -> None:
        _wake(self._writing)

    def arrived(self, messages: list[Received], ends: bool) -> None:
        try:
            self._owner.connection_memory.add(waiting := sum(waiting_bytes(len(each)) for each in messages))
        except GatewayError as error:
            self._refuse_message(error)
            return
        self._held_in_memory += waiting
        self._queue += messages
        self._held_bytes += PREFIX_SIZE * len(messages) + sum(map(len, messages))
        self._ended = ends
        if messages or ends:
            _wake(self._reading)

    def held(self) -> int:
        return self._held_bytes

    def has_head(self) -> bool:
        return self._began

    async def _serve(self) -> None:
        assert self._method.stream is not None
        try:
            async with aclosing(self._messages()) as messages, aclosing(self._method.stream(messages)) as answers:
                async for reply in answers:
                    if reply.status:
                        self._trailers = reply
                        break
                    await self._write(reply)
                    del reply  # it would stay in memory until the next message
        except asyncio.CancelledError:
            return  # as in every task: a cancelled task would keep the error, and with it the request
        except _RefusedError as error:
            self._task = None  # the current task, which ends by itself and must not be cancelled
            self._refuse_message(error.why)
            return
        except Exception as error:
            await self._break_off(self._refuse(error))
        if self._is_cut_off and not self._trailers.status:
            self._trailers = refused(stopping())
        self._end(self._trailers)

    async def _break_off(self, reply: Message) -> None:
        """Send a stream's error. Some protocols report errors in a message, others in the status."""
        if reply.status:
            self._trailers = reply
        else:
            await self._write(reply)

    async def _messages(self) -> AsyncGenerator[Message, None]:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue and not self._ended and not self._owner.is_stopping:
                self._reading, self._idle_since = loop.create_future(), loop.time()
                await self._reading
                self._idle_since = None
            if not self._queue and self._ended:
                return
            if self._owner.is_stopping:
                self._is_cut_off = True
                return
            yield await self._pulled()

    async def _pulled(self) -> Message:
        body, now = self._queue.popleft(), self._owner.loop.time()
        self._messages_pulled += 1
        self._held_bytes -= PREFIX_SIZE + len(body)
        if self._held_in_memory:  # the call has not ended
            self._held_in_memory -= (waited := waiting_bytes(len(body)))
            self._owner.connection_memory.free(waited)
        self.grant()
        self._owner.flush()
        if not isinstance(body, Compressed):
            return self._message(body, now)
        try:
            return self._message(await self._inflated(body), now)
        except GatewayError as error:
            raise _RefusedError(error) from None

    async def _write(self, reply: Message) -> None:
        """Write one reply, and wait until the client has received it, or for at least one turn of the event loop."""
        http2, stream = self._owner.http2, self._stream
        if not self._began:
            self._began = True
            http2.send_head(stream, replies.HEAD)
        if reply.headers.raw:
            self._trailers = Message(headers=reply.headers)
        http2.send_data(stream, framed(reply.parts))
        del reply
        self._owner.flush()
        await asyncio.sleep(0)
        while not stream.is_closed and (stream.unsent is not None or http2.is_paused):
            self._writing = asyncio.get_running_loop().create_future()
            await self._writing


class _RefusedError(Exception):
    """The listener itself rejected a message of a stream, which ends the stream."""

    def __init__(self, why: GatewayError) -> None:
        super().__init__(why)
        self.why = why


def refused(error: GatewayError) -> Message:
    """Return the reply for an error that the listener itself reports, with the gRPC status."""
    return Message(
        headers=Headers(error_fields(error)), parts=(error.message.encode("utf-8", "replace"),), status=error.status
    )


def stopping() -> GatewayError:
    """Return the error for requests that are in flight when the listener stops."""
    return refusal(Reason.NOT_READY, "the gateway is stopping")


def _too_large(size: int, limits: Limits) -> GatewayError:
    text = f"the message of {size} bytes"
    text = f"{text} is larger than limits.message, {limits.message} bytes"
    return refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")


def _malformed(text: str) -> GatewayError:
    return GatewayError(Status.INTERNAL, Reason.INVALID_INPUT, text)


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
