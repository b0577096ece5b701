"""One client's connection: messages in, replies out."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from enum import Enum

from gateway.core.address import of_peer
from gateway.core.alarm import Alarm
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.protocol import Limits, Protocol
from gateway.core.tasks import spawn
from gateway.core.transport import Exchange, Refuse
from gateway.core.types import Message
from gateway.core.values import value
from gateway.transports.tcp.inflating import inflate, is_compressed
from gateway.transports.tcp.reader import Packet, Reader
from gateway.transports.tcp.timeouts import Timeouts
from gateway.transports.tcp.writing import write


class _Phase(Enum):
    IDLE = "the next message is awaited"
    HEADER = "its header is arriving"
    BODY = "the rest of it is arriving"
    ANSWERING = "requests are in flight"
    WRITING = "the client reads its replies more slowly than they come"
    LINGERING = "the reply was the last; what the client still sends is dropped"
    CLOSED = "closed, or closing once the reply is flushed"

    # Members are singletons: identity is equality.
    __hash__ = object.__hash__


@value
class Site:
    """What all connections of one listener share. `at_once`: how many requests of one connection may be in flight;
    more than one only where replies carry a tag, for they are written as they come."""

    protocol: Protocol
    limits: Limits
    timeouts: Timeouts
    exchange: Exchange
    refuse: Refuse
    scratch: memoryview
    at_once: int
    connections: "set[Connection]"


class Connection(asyncio.BufferedProtocol):
    """Receives messages, hands each to the exchange, and writes its reply.

    What arrives before its turn waits, and nothing more is read meanwhile: that is what holds the client back.
    """

    def __init__(self, site: Site) -> None:
        assert site.protocol.framing is not None
        self._site = site
        self._framing = site.protocol.framing
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._expire)
        self._reader = Reader(self._framing, site.limits, site.scratch)
        self._arrived: deque[Message] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._phase = _Phase.IDLE
        self._refused: GatewayError | None = None
        self._gone: asyncio.Future[None] | None = None
        self._writable = True
        self._draining = False

    def drain(self) -> "asyncio.Future[None]":
        """Close once what is in flight or arriving is answered, at once if nothing is. The future is done when it is
        closed."""
        self._draining = True
        self._gone = self._loop.create_future()
        self._advance()
        return self._gone

    def abort(self) -> None:
        """Close now, whatever is in flight."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._peer = of_peer(transport.get_extra_info("peername"))
        self._site.connections.add(self)
        self._alarm.set(self._site.timeouts.idle)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into."""
        return self._site.scratch if self._phase in _LAST else self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The client sent something."""
        if self._phase in _LAST:
            self._drop(nbytes)
            return
        try:
            self._arrived.extend(map(self._message, self._reader.received(nbytes)))
        except (DecodeError, GatewayError) as error:
            self._refused = as_gateway_error(error)
        self._advance()

    def eof_received(self) -> None:
        """The client has closed, or half-closed: the two look the same, and what nobody reads is not computed."""
        if self._phase not in _LAST and not self._tasks and not self._arrived:
            try:
                self._reader.check_end()
            except DecodeError as error:
                self._write_refusal(as_gateway_error(error))
        self._close()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        self._phase = _Phase.CLOSED
        self._site.connections.discard(self)
        self._alarm.stop()
        for task in self._tasks:
            task.cancel()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """The client has read most of what there was."""
        self._writable = True
        self._advance()

    # Requests and replies.

    def _advance(self) -> None:
        """Begin what has its turn; then read on, wait, or close."""
        if self._phase in _LAST:
            return
        while self._arrived and self._writable and len(self._tasks) < self._site.at_once:
            self._begin(self._arrived.popleft())
        if not self._tasks and not self._arrived:
            if self._refused is not None:
                self._write_refusal(self._refused)
                self._linger()
                return
            if self._draining and not self._reader.header:
                self._close()
                return
        self._watch()

    def _message(self, packet: Packet) -> Message:
        """Raises DecodeError where replies carry a tag and this has none to be read: none could be told from others."""
        message = Message(parts=packet, peer=self._peer, received=self._loop.time())
        if self._framing.tag is not None:
            self._framing.tag(message)
        return message

    def _begin(self, message: Message) -> None:
        site = self._site
        try:
            if is_compressed(message, self._framing):
                reply: Message | Awaitable[Message] = self._exchange_inflated(message)
            else:
                reply = site.exchange(message, site.protocol)
        except Exception as error:
            reply = site.refuse(as_gateway_error(error), site.protocol, message)
        if isinstance(reply, Message):
            write(self._transport, reply)
            return
        task = spawn(self._answer(reply, message))
        self._tasks.add(task)
        task.add_done_callback(self._answered)

    async def _exchange_inflated(self, message: Message) -> Message:
        site = self._site
        reply = site.exchange(await inflate(message, self._framing, site.limits.message), site.protocol)
        return reply if isinstance(reply, Message) else await reply

    async def _answer(self, reply: Awaitable[Message], message: Message) -> None:
        try:
            answer = await reply
        except Exception as error:
            answer = self._site.refuse(as_gateway_error(error), self._site.protocol, message)
        write(self._transport, answer)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._advance()

    def _write_refusal(self, error: GatewayError) -> None:
        """The listener's own error, in the protocol's form, about the message that is arriving."""
        message = Message(parts=(self._reader.header, b""), peer=self._peer)
        write(self._transport, self._site.refuse(error, self._site.protocol, message))

    # Waiting, giving up and closing.

    def _watch(self) -> None:
        """Read on if there is room, and mind the time of what is waited for."""
        if self._arrived or self._refused is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        phase = self._awaited()
        if phase is self._phase and phase in (_Phase.HEADER, _Phase.WRITING):
            return
        self._phase = phase
        timeouts = self._site.timeouts
        match phase:
            case _Phase.IDLE if self._framing.tag is None:
                self._alarm.set(timeouts.idle)
            case _Phase.HEADER:
                self._alarm.set(timeouts.header)
            case _Phase.BODY:
                self._alarm.set(timeouts.body)
            case _Phase.WRITING:
                self._await_progress()
            case _:
                self._alarm.silence()

    def _awaited(self) -> _Phase:
        if not self._writable:
            return _Phase.WRITING
        if self._tasks:
            return _Phase.ANSWERING
        if self._reader.in_body:
            return _Phase.BODY
        return _Phase.HEADER if self._reader.header else _Phase.IDLE

    def _linger(self) -> None:
        """Close without a reset, which would take the reply from a client that is still sending: no more is written,
        and what comes is dropped until the client closes too, or for a while."""
        self._phase = _Phase.LINGERING
        self._may_drop = self._site.limits.message
        self._alarm.set(self._site.timeouts.linger)
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._transport.resume_reading()

    def _drop(self, size: int) -> None:
        self._may_drop -= size
        if self._may_drop < 0:
            self._close()

    def _close(self) -> None:
        self._phase = _Phase.CLOSED
        self._alarm.set(self._site.timeouts.write)
        self._transport.close()

    def _await_progress(self) -> None:
        self._unread = self._transport.get_write_buffer_size()
        self._alarm.set(self._site.timeouts.write)

    def _expire(self) -> None:
        timeouts = self._site.timeouts
        match self._phase:
            case _Phase.IDLE:
                self._close()
            case _Phase.HEADER:
                self._give_up(f"the message's header did not arrive within {timeouts.header:g} s")
            case _Phase.BODY:
                self._give_up(f"nothing of the message came for {timeouts.body:g} s")
            case _Phase.WRITING if self._transport.get_write_buffer_size() < self._unread:
                self._await_progress()
            case _:
                self._transport.abort()

    def _give_up(self, text: str) -> None:
        self._write_refusal(refusal(Reason.REQUEST_TIMEOUT, text))
        self._linger()


_LAST = frozenset({_Phase.LINGERING, _Phase.CLOSED})
