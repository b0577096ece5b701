"""One client's connection: messages in, replies out."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol, StreamForm
from gateway.core.tasks import spawn
from gateway.core.transport import EventualReply, Exchange, Refuse, awaited
from gateway.core.types import Message
from gateway.transports.inflate import inflate_message, is_compressed
from gateway.transports.lifecycle import Lifecycle, Phase, Terms
from gateway.transports.tcp.packets import Packet, Reader
from gateway.transports.tcp.writing import write

_LAST = frozenset({Phase.LINGERING, Phase.CLOSED})

MESSAGES_A_TURN = 32
"""Messages that one connection may have handled before others have their turn: many are answered at once, in 0.1 ms
each, and a client may send thousands together."""

LARGEST_AT_ONCE = 2
"""Requests of `limits.message` bytes that one connection may have in flight, or smaller ones of as many bytes. What
puts them beyond that is still let in, and the next waits."""


@frozen
class Site(Terms):
    """What all connections of one listener share. `at_once`: how many requests of one connection may be in flight;
    more than one only where replies carry a tag, for they are written as they come."""

    protocol: Protocol
    exchange: Exchange
    refuse: Refuse
    scratch: memoryview
    at_once: int


class Connection(Lifecycle, asyncio.BufferedProtocol):
    """Receives messages, hands each to the exchange, and writes its reply.

    What arrives before its turn waits, and nothing more is read meanwhile: that is what holds the client back.
    """

    HEAD = "the message's header"

    def __init__(self, site: Site) -> None:
        assert isinstance(site.protocol.carrier, StreamForm)
        super().__init__(site)
        self._site = site
        self._framing = site.protocol.carrier.framing
        self._reader = Reader(self._framing, site.limits, site.scratch)
        self._arrived: deque[Message] = deque()
        """Messages that are going to be handed to the exchange."""
        self._unwanted: deque[Message] = deque()
        """Messages that are going to be refused, which does not wait for the requests in flight."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """The requests in flight, and how many bytes each holds, beside its header."""
        self._held = 0
        """All of these bytes."""
        self._may_hold = LARGEST_AT_ONCE * site.limits.message
        self._received = 0
        """Bytes that came last."""
        self._refused: GatewayError | None = None
        self._turned_away: GatewayError | None = None
        """Why the connection was not admitted, where requests are to be told one by one."""
        self._goes_on: asyncio.Handle | None = None
        """What gives it its next turn, if it had to stop while messages were waiting."""
        self._ends_at = math.inf
        """When it is to end if nothing is in flight by then; finite while the listener drains."""

    @property
    def unanswered(self) -> int:
        """The requests in flight, those that wait for their turn, and one that is arriving or whose reply is unread."""
        partly = self._reader.header or (self._phase is Phase.FLUSHING and not self._tasks)
        return len(self._tasks) + len(self._arrived) + len(self._unwanted) + bool(partly)

    def drain(self) -> None:
        """As of any connection; where requests are multiplexed, new ones are refused from now on."""
        self._ends_at = self._loop.time() + self._terms.timeouts.grace
        super().drain()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into."""
        return self._site.scratch if self._phase in _LAST else self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The client sent something."""
        if self._phase in _LAST:
            self._drop(nbytes)
            return
        self._received = nbytes
        try:
            messages = self._unwanted if self._refuses_new() else self._arrived
            messages.extend(map(self._message, self._reader.received(nbytes)))
        except (DecodeError, GatewayError) as error:
            self._refused = as_gateway_error(error)
        if self._turned_away is not None and not self._unwanted and self._refused is None:
            return  # its first request has not come yet, and the time for that goes on
        self._proceed()

    def eof_received(self) -> None:
        """The client has closed, or half-closed: the two look the same, and what nobody reads is not computed."""
        if self._phase not in _LAST and not self._tasks and not self._arrived and not self._unwanted:
            try:
                self._reader.check_end()
            except DecodeError as error:
                self._write_refusal(as_gateway_error(error))
        self._close()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        super().connection_lost(error)
        for task in self._tasks:
            task.cancel()
        self._arrived.clear()
        self._unwanted.clear()
        self._reader.forget()

    # Requests and replies.

    def _proceed(self) -> None:
        """Begin what has its turn; then read on, wait, or close."""
        if self._phase in _LAST:
            return
        if self._goes_on is None:
            self._begin_waiting()
        if not self._tasks and not self._arrived and not self._unwanted:
            if self._refused is not None:
                self._give_up(self._refused)
                return
            if self._turned_away is not None:
                self._linger()
                return
            # With one request at a time its reply was the last. Where there may be many, some are still on their way.
            if self._ends_at < math.inf and self._framing.tag is None and not self._reader.header:
                self._linger()
                return
        self._watch()

    def _begin_waiting(self) -> None:
        """Begin, or refuse, what has its turn."""
        for _ in range(MESSAGES_A_TURN):
            if self._unwanted and self._writable:
                self._refuse_new(self._unwanted.popleft())
            elif self._arrived and self._writable and self._has_room():
                self._begin(self._arrived.popleft())
            else:
                return
        self._goes_on = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = None
        self._proceed()

    def _has_room(self) -> bool:
        return self._held < self._may_hold and len(self._tasks) < self._site.at_once

    def _hold(self, task: "asyncio.Task[None]", size: int) -> None:
        self._held += size - self._tasks.get(task, 0)
        self._tasks[task] = size

    def _message(self, packet: Packet) -> Message:
        """Raises DecodeError where replies carry a tag and this has none to be read: none could be told from others."""
        self._body_begun = None
        message = Message(parts=packet, peer=self._peer, received=self._loop.time())
        if self._framing.tag is not None:
            self._framing.tag(message)
        return message

    def _begin(self, message: Message) -> None:
        site, size = self._site, len(message.parts[1])
        try:
            if is_compressed(message, self._framing):
                reply: EventualReply = self._exchange_inflated(message)
                size += site.limits.message  # until it is known what becomes of it
            else:
                reply = site.exchange(message, site.protocol)
        except Exception as error:
            reply = site.refuse(as_gateway_error(error), site.protocol, message)
        if isinstance(reply, Message):
            write(self._transport, reply)
            return
        task = spawn(self._answer(reply, message))
        self._hold(task, size)
        task.add_done_callback(self._answered)

    async def _exchange_inflated(self, message: Message) -> Message:
        site, task = self._site, asyncio.current_task()
        inflated = await inflate_message(message, self._framing, site.limits)
        assert task is not None
        self._hold(task, len(message.parts[1]) + len(inflated.parts[1]))
        self._proceed()
        reply = site.exchange(inflated, site.protocol)
        return await awaited(reply)

    async def _answer(self, reply: Awaitable[Message], message: Message) -> None:
        try:
            answer = await reply
        except asyncio.CancelledError:
            # The task ends like any other: a cancelled one keeps the error, and with it the request.
            self._transport.abort()
            return
        except Exception as error:
            answer = self._site.refuse(as_gateway_error(error), self._site.protocol, message)
        write(self._transport, answer)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._held -= self._tasks.pop(task)
        if self._ends_at < math.inf:
            self._ends_at = self._loop.time() + self._terms.timeouts.grace
        self._proceed()

    def _refuses_new(self) -> bool:
        """Whether requests that come now are refused one by one, which takes a tag to tell them apart."""
        return self._turned_away is not None or (self._ends_at < math.inf and self._framing.tag is not None)

    def _refuse_new(self, message: Message) -> None:
        error = self._turned_away or refusal(Reason.NOT_READY, "the gateway is stopping")
        write(self._transport, self._site.refuse(error, self._site.protocol, message))

    def _turn_away(self, error: GatewayError) -> None:
        """A reply with a tag of no request would be dropped: where there are tags, the first requests are refused."""
        if self._framing.tag is None:
            super()._turn_away(error)
        else:
            self._turned_away = error
            self._patience = self._terms.timeouts.grace
            self._alarm.set(self._patience)

    def _write_refusal(self, error: GatewayError) -> None:
        """The listener's own error, in the protocol's form, about the message that is arriving."""
        message = Message(parts=(self._reader.header, b""), peer=self._peer)
        write(self._transport, self._site.refuse(error, self._site.protocol, message))

    def _watch(self) -> None:
        """Read on if there is room, and mind the time of what is waited for."""
        waits = self._arrived or self._unwanted or self._refused is not None
        if waits or not (self._writable or self._ends_at == math.inf):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        phase = self._awaited()
        if phase is Phase.FLUSHING:
            self._count_unread()
        if phase is self._phase and phase in (Phase.HEAD, Phase.FLUSHING):
            return
        self._phase = phase
        timeouts = self._site.timeouts
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

    def _awaited(self) -> Phase:
        if not self._writable:
            return Phase.FLUSHING
        if self._tasks:
            return Phase.ANSWERING
        if self._reader.in_body:
            return Phase.BODY
        return Phase.HEAD if self._reader.header else Phase.IDLE

    def _close_idle(self) -> None:
        """As of any connection. A client with many requests at once may go on sending though each is refused: it has
        been told for long enough."""
        if self._ends_at < math.inf and self._framing.tag is not None:
            self._linger()
        else:
            super()._close_idle()

    def _give_up(self, error: GatewayError) -> None:
        self._write_refusal(error)
        self._linger()
