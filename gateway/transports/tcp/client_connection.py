"""One byte stream to an endpoint, with one call at a time, or with parallel calls if replies have a tag
(`Framing.tag`)."""

import asyncio
import os
import select
import typing
from typing import cast

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.messages import Message
from gateway.core.protocol import Framing, Limits
from gateway.transports.errors import how_lost, seconds_left, unreachable
from gateway.transports.protocol_hints import FIRST_BYTES, foreign, foreign_to_byte_streams
from gateway.transports.sockets import has_unread, keep_probing
from gateway.transports.tcp.packets import PacketReader, write

_NO_TAG = 0
"""The key of the only call in framings without tags."""

MAX_UNREQUESTED = 1000
"""Maximum number of replies without a call. Above this number, the connection closes."""


class TcpConnectionObserver(typing.Protocol):
    """The observer (the connector) to which a connection reports its state."""

    def opened(self, connection: "TcpClientConnection") -> None:
        """Handle a connected socket."""

    def lost(self, connection: "TcpClientConnection") -> None:
        """Handle a closed socket."""


class TcpClientConnection(asyncio.BufferedProtocol):
    """Sends calls, and passes their replies to the waiting callers. `scratch` has the same meaning as in
    PacketReader."""

    def __init__(self, framing: Framing, limits: Limits, scratch: memoryview, observer: TcpConnectionObserver) -> None:
        self._framing = framing
        self._reader = PacketReader(framing, limits, scratch)
        self._scratch = scratch
        self._observer = observer
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last_tag = 0
        self._expected_late = 0
        """The number of abandoned calls minus the number of replies without a waiting caller.

        If the number is negative, more replies than calls have arrived."""
        self._replies = 0
        """The number of replies that have arrived, for all calls."""
        self._has_received = False
        self._foreign = ""
        """The end of an error message, which names the protocol that the endpoint seems to use instead of the expected
        protocol."""
        self._is_tls = False
        self._is_retired = False
        self._writable: asyncio.Future[None] | None = None

    async def exchange(self, message: Message) -> Message:
        """Write `message` with a tag of this connection, and wait for the reply with the same tag.

        Cancelling a call without a tag closes the connection. Cancelling a call with a tag leaves the connection open
        for other calls. However, if no reply to any call arrived while the call waited, the connection accepts no more
        calls. In this case, the endpoint might have disappeared, or might hang in the middle of a reply.

        Raises:
            TransportError: UNAVAILABLE if the connection broke, or if the endpoint is stopping and has not begun the
                call. INTERNAL if the reply is malformed or too large. DEADLINE_EXCEEDED if the deadline passed before
                the gateway sent the request.
        """
        await self._until_writable()
        if self._transport.is_closing():  # the endpoint closed it immediately, so no reply can arrive
            how = "sent something on" if self._foreign else "closed"
            raise unreachable(f"the endpoint {how} the connection before it got the request{self._foreign}")
        tag, message = self._tagged(message)
        waiter: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[tag] = waiter
        replies = self._replies
        write(self._transport, message)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._waiting.pop(tag, None) is not None:
                self._expected_late += 1
            if self._framing.tag is None or replies == self._replies:
                self.retire()
            raise

    def is_usable(self) -> bool:
        """Return whether the connection can accept another call.

        The endpoint must not have closed the connection. In a framing without tags, the endpoint must also not have
        sent any bytes without a call, including bytes that the loop has not read yet. While no call waits, no partial
        message must have arrived, because it would count as the beginning of the next reply."""
        is_out = self._is_retired or self._transport.is_closing()
        if is_out or (self._reader.header and not self._waiting):
            return False
        sock = self._transport.get_extra_info("socket")
        if not hasattr(select, "poll"):  # on Windows
            return not has_unread(sock)
        poll = select.poll()
        events = select.POLLIN if self._framing.tag is None else getattr(select, "POLLRDHUP", 0)
        poll.register(sock.fileno(), events)
        return not poll.poll(0)

    def retire(self) -> None:
        """Accept no more calls, and close the connection when no call waits."""
        self._is_retired = True
        if not self._waiting:
            self.abort()

    def close(self) -> None:
        """Close the connection after all data has been sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately. Waiting calls fail."""
        self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a connected socket."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport has the interface, but is no subclass
        self._loop = asyncio.get_running_loop()
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        keep_probing(transport.get_extra_info("socket"))
        self._observer.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the endpoint."""
        if not self._has_received:
            self._has_received = True
            self._foreign = foreign_to_byte_streams(bytes(self._scratch[: min(nbytes, FIRST_BYTES)]))
            if self._foreign:
                self._fail(reply_error(DecodeError(f"the first bytes are not of this protocol{self._foreign}")))
                return
        if self._framing.tag is None and not self._waiting:
            self.abort()
            return
        try:
            for packet in self._reader.received(nbytes):
                self._deliver(Message(parts=packet))
        except DecodeError as error:
            self._fail(reply_error(DecodeError(f"{error}{self._other_byte_stream}")))
        except GatewayError as error:
            self._fail(reply_error(error))

    def eof_received(self) -> None:
        """Handle an endpoint that has closed the connection."""
        self._fail(self._broken_off("closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a connection that either side has closed, or whose write failed."""
        if exc is not None and self._waiting and not self._is_tls:
            self._read_rest()
        self._fail(self._broken_off(how_lost(exc)))
        self.resume_writing()
        self._observer.lost(self)

    def pause_writing(self) -> None:
        """Pause writing, because the endpoint reads too slowly."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Resume writing after the endpoint has read most of the data, or after the connection has closed."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    async def _until_writable(self) -> None:
        """Wait while the endpoint reads too slowly. Otherwise, calls would accumulate in memory."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
            if self._transport.is_closing():
                raise unreachable("the connection was closed")

    def _tagged(self, message: Message) -> tuple[int, Message]:
        if self._framing.retag is None:
            return _NO_TAG, message
        self._last_tag += 1
        return self._last_tag, self._framing.retag(
            message, self._last_tag, seconds_left(message.deadline, self._loop.time())
        )

    def _deliver(self, reply: Message) -> None:
        """Pass the reply to the call that waits for it. If no call waits, drop the reply. In a framing without tags,
        close the connection instead, because another unexpected reply could count as the reply to the next call."""
        tag = _NO_TAG if self._framing.tag is None else self._framing.tag(reply)
        waiter = self._waiting.pop(tag, None)
        self._replies += 1
        if waiter is None:
            self._drop_unrequested()
        elif not waiter.done():
            self._answer(waiter, reply)
        if self._is_retired:
            self.retire()

    def _answer(self, waiter: "asyncio.Future[Message]", reply: Message) -> None:
        """Complete the call. If the reply states that the server is stopping and has not begun the call, the call fails
        with `sent=False`, so the gateway can try another endpoint."""
        stopping = None if self._framing.stopping is None else self._framing.stopping(reply)
        if stopping is None:
            waiter.set_result(reply)
            return
        self._is_retired = True
        waiter.set_exception(TransportError(stopping.status, stopping.reason, stopping.message, sent=False))

    def _drop_unrequested(self) -> None:
        if self._framing.tag is None:
            self.abort()
            return
        self._expected_late -= 1
        if self._expected_late < -MAX_UNREQUESTED:
            raise DecodeError(f"more than {MAX_UNREQUESTED} unexpected replies")

    def _read_rest(self) -> None:
        """Read the remaining data from the kernel. This is necessary if a server responds and closes without reading
        the entire request, because the gateway's write then fails before the gateway has read the reply."""
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

    @property
    def _other_byte_stream(self) -> str:
        """The end of an error message, which names the protocol that the endpoint seems to use. It is empty unless the
        malformed header is the beginning of another byte stream protocol."""
        is_own = self._replies or (self._framing.magic and self._reader.header.startswith(self._framing.magic))
        return "" if is_own else foreign(self._reader.header)

    def _broken_off(self, how: str) -> TransportError:
        try:
            self._reader.check_end()
        except DecodeError:
            text = f"the connection was {how} in the middle of a reply"
        else:
            text = f"the connection was {how} without a reply"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=True)


def reply_error(error: DecodeError | GatewayError) -> TransportError:
    """Return the error for a call whose reply is malformed (DecodeError) or exceeds a limit (GatewayError)."""
    answered = isinstance(error, GatewayError)
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, f"reply: {error}", sent=True, answered=answered)
