"""One connection to an endpoint: one call at a time, or many where replies carry a tag."""

import asyncio
import os
import select
import typing
from typing import cast

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.protocol import Framing, Limits
from gateway.core.types import Message
from gateway.transports.errors import seconds_left, unreachable
from gateway.transports.sockets import keep_probing
from gateway.transports.tcp.packets import Reader
from gateway.transports.tcp.writing import write

_ONLY = 0
"""Stands for the tag where there are none."""

MOST_STRAYS = 1000
"""Replies with tags that no call ever had, or had twice, before the endpoint is taken to be out of its mind."""


class Owner(typing.Protocol):
    """Whom a Connection tells what became of it."""

    def opened(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """`scratch` may be shared by all connections of a loop; see Reader."""

    def __init__(self, framing: Framing, limits: Limits, scratch: memoryview, owner: Owner) -> None:
        self._framing = framing
        self._reader = Reader(framing, limits, scratch)
        self._scratch = scratch
        self._owner = owner
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last_tag = 0
        self._owed = 0
        """Replies to calls that were given up, less the replies that nobody waited for."""
        self._replies = 0
        """That came whole, whoever they were for."""
        self._is_retired = False
        self._writable: asyncio.Future[None] | None = None

    async def exchange(self, message: Message) -> Message:
        """Write `message`, with a tag of this connection's own, and wait for the reply that carries it. A cancelled
        call without a tag closes the connection. One with a tag leaves it to the others; but if no reply to anybody
        came while it waited, the endpoint may be gone without a word, or stuck in a reply: then no further call is to
        wait here.

        Raises:
            TransportError: UNAVAILABLE, the endpoint broke off, or is stopping and has not run it; INTERNAL, what came
                is no reply, or beyond the limit; DEADLINE_EXCEEDED, the deadline had passed before anything was sent.
        """
        await self._until_writable()
        tag, message = self._tagged(message)
        waiter: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[tag] = waiter
        replies = self._replies
        write(self._transport, message)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._waiting.pop(tag, None) is not None:
                self._owed += 1
            if self._framing.tag is None or replies == self._replies:
                self.retire()
            raise

    def is_usable(self) -> bool:
        """Whether a further call can be written: the endpoint has not closed nor, where there are no tags, sent what
        nobody asked for; also nothing of it that the loop has not seen yet. Where there are tags, a part of a message
        that nobody waits for would be taken for the beginning of the next reply."""
        is_out = self._is_retired or self._transport.is_closing()
        if is_out or (self._reader.header and not self._waiting):
            return False
        poll = select.poll()
        events = select.POLLIN if self._framing.tag is None else getattr(select, "POLLRDHUP", 0)
        poll.register(self._transport.get_extra_info("socket").fileno(), events)
        return not poll.poll(0)

    def retire(self) -> None:
        """Take no further call, and close once nobody waits."""
        self._is_retired = True
        if not self._waiting:
            self.abort()

    def close(self) -> None:
        """Close once what was written has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is waited for fails."""
        self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._loop = asyncio.get_running_loop()
        keep_probing(transport.get_extra_info("socket"))
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive into."""
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """The endpoint sent something."""
        if self._framing.tag is None and not self._waiting:
            self.abort()
            return
        try:
            for packet in self._reader.received(nbytes):
                self._give(Message(parts=packet))
        except (DecodeError, GatewayError) as error:
            self._fail(no_good_reply(error))

    def eof_received(self) -> None:
        """The endpoint has closed."""
        self._fail(self._broken_off("closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side, or a write failed."""
        if exc is not None and self._waiting:
            self._read_what_is_left()
        self._fail(self._broken_off("closed" if exc is None else "reset"))
        self.resume_writing()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The endpoint reads too slowly."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The endpoint has read most of what there was; or it is gone."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    async def _until_writable(self) -> None:
        """Calls do not pile up behind an endpoint that does not read."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
            if self._transport.is_closing():
                raise unreachable("the connection was closed")

    def _tagged(self, message: Message) -> tuple[int, Message]:
        if self._framing.retag is None:
            return _ONLY, message
        self._last_tag += 1
        return self._last_tag, self._framing.retag(
            message, self._last_tag, seconds_left(message.deadline, self._loop.time())
        )

    def _give(self, reply: Message) -> None:
        """The reply to whoever waits for it. One that nobody waits for any more is dropped; without tags it ends the
        connection, or it would be taken for the reply to the next call."""
        tag = _ONLY if self._framing.tag is None else self._framing.tag(reply)
        waiter = self._waiting.pop(tag, None)
        self._replies += 1
        if waiter is None:
            self._drop_stray()
        elif not waiter.done():
            self._answer(waiter, reply)
        if self._is_retired:
            self.retire()

    def _answer(self, waiter: "asyncio.Future[Message]", reply: Message) -> None:
        """A server that is stopping has not run the request: it can go to another one."""
        stopping = None if self._framing.stopping is None else self._framing.stopping(reply)
        if stopping is None:
            waiter.set_result(reply)
            return
        self._is_retired = True
        waiter.set_exception(TransportError(stopping.status, stopping.reason, stopping.message, sent=False))

    def _drop_stray(self) -> None:
        if self._framing.tag is None:
            self.abort()
            return
        self._owed -= 1
        if self._owed < -MOST_STRAYS:
            raise DecodeError(f"more than {MOST_STRAYS} replies to calls that were never made")

    def _read_what_is_left(self) -> None:
        """A server that refuses a request without reading it whole makes our write fail: its reply is in the kernel."""
        descriptor = self._transport.get_extra_info("socket").fileno()
        try:
            while self._waiting and (size := os.readv(descriptor, [self._reader.buffer])):
                self.buffer_updated(size)
        except OSError:
            return

    def _fail(self, error: TransportError) -> None:
        waiting, self._waiting = self._waiting, {}
        self._transport.abort()
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(error)

    def _broken_off(self, how: str) -> TransportError:
        try:
            self._reader.check_end()
        except DecodeError:
            text = f"the connection was {how} in the middle of a reply"
        else:
            text = f"the connection was {how} without a reply"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=True)


def no_good_reply(error: DecodeError | GatewayError) -> TransportError:
    """What became of a call whose reply is not what the protocol says, or (a GatewayError) beyond a limit."""
    answered = isinstance(error, GatewayError)
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, f"reply: {error}", sent=True, answered=answered)
