"""One client's connection: requests in, one at a time and in order; replies out."""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable
from contextlib import aclosing
from enum import Enum

from gateway.core.alarm import Alarm
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.patterns import PathTable
from gateway.core.protocol import Limits
from gateway.core.tasks import spawn
from gateway.core.transport import Exchange, ExchangeStream, Refuse
from gateway.core.types import Buffer, Headers, Message
from gateway.core.values import replace, value
from gateway.transports.http import writing
from gateway.transports.http.admission import Admission, allow_header, check_length, worth_receiving
from gateway.transports.http.answering import alone, answer, finish
from gateway.transports.http.bodies import ChunkedBody, SizedBody
from gateway.transports.http.compression import MIN_DEFLATED
from gateway.transports.http.known_heads import KnownHeads
from gateway.transports.http.reading import HeadReader
from gateway.transports.http.requests import Head, UnknownExpectationError
from gateway.transports.http.streamed import Stream
from gateway.transports.http.timeouts import Timeouts

log = logging.getLogger(__name__)

# What a client may send ahead while its request is answered; more stays in the kernel, which holds the client back.
_AHEAD = 64 * 2**10


class _Phase(Enum):
    HEAD = "a request's head is awaited or arriving"
    BODY = "its body is arriving"
    ANSWERING = "it is in flight, or its reply is streamed"
    FLUSHING = "the client reads its reply more slowly than it comes"
    LINGERING = "the reply was the last; what the client still sends is dropped"
    CLOSED = "closed, or closing once the reply is flushed"

    # Members are singletons: identity is equality.
    __hash__ = object.__hash__


_RECEIVING = frozenset({_Phase.HEAD, _Phase.BODY})


@value
class Site:
    """What all connections of one listener share."""

    table: PathTable
    heads: KnownHeads
    limits: Limits
    timeouts: Timeouts
    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    connections: "set[Connection]"


class Connection(asyncio.Protocol):
    """Receives requests, hands each to the exchange, and writes its reply before it looks at the next."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._expire)
        self._reader = HeadReader(site.limits.headers)
        self._head: Head | None = None
        self._admission: Admission | None = None
        self._ahead = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._resumed: asyncio.Future[None] | None = None
        self._writable = True
        self._draining = False

    def drain(self) -> "asyncio.Future[None]":
        """Close once what is in flight is answered, at once if nothing is. The future is done when it is closed."""
        self._draining = True
        self._keep_alive = False
        self._gone = self._loop.create_future()
        if self._phase is _Phase.HEAD and not self._reader.size:
            self._close()
        return self._gone

    def abort(self) -> None:
        """Close now, whatever is in flight."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._peer = _address(transport.get_extra_info("peername"))
        self._site.connections.add(self)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """The client sent something."""
        if self._phase in _RECEIVING:
            self._receive(data)
        elif self._phase is _Phase.LINGERING:
            self._drop(len(data))
        else:
            self._hold(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side. Asyncio closes after the client's FIN too: a client that only half-closes and waits
        cannot be told from one that has gone, and HTTP clients do not."""
        self._phase = _Phase.CLOSED
        self._site.connections.discard(self)
        self._alarm.stop()
        self._reader.stop()
        if self._task is not None:
            self._task.cancel()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """The client has read most of what there was."""
        self._writable = True
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        if self._phase is _Phase.FLUSHING:
            self._turn()
            self._receive_ahead()

    # Receiving.

    def _receive(self, data: bytes) -> None:
        at, end = 0, len(data)
        try:
            while at < end and self._phase in _RECEIVING:
                at = self._receive_head(data, at) if self._phase is _Phase.HEAD else self._receive_body(data, at)
        except DecodeError as error:
            self._give_up(refusal(Reason.INVALID_INPUT, str(error)))
        except GatewayError as error:
            self._give_up(error)
        else:
            if at < end:
                self._hold(data[at:])

    def _receive_head(self, data: bytes, at: int) -> int:
        reader = self._reader
        begun = reader.size
        known = None if begun else self._site.heads.find(data, at)
        if known is not None:
            self._head, self._admission, size = known
            self._begin(self._head, self._admission)
            return at + size
        at = reader.feed(data, at)
        if reader.complete:
            self._head = Head(reader)
            self._head.check()
            self._admission = Admission(self._head, self._site.table)
            self._begin(self._head, self._admission)
        elif reader.size and not begun:
            self._alarm.set(self._site.timeouts.head)
        return at

    def _receive_body(self, data: bytes, at: int) -> int:
        at = self._body.feed(data, at)
        if self._body.complete:
            self._complete(self._body.body)
        else:
            self._alarm.set(self._site.timeouts.body)
        return at

    def _hold(self, data: bytes) -> None:
        """Keep what came before its turn."""
        self._ahead += data
        if len(self._ahead) > _AHEAD:
            self._transport.pause_reading()

    def _receive_ahead(self) -> None:
        if self._ahead and self._phase in _RECEIVING:
            data, self._ahead = bytes(self._ahead), bytearray()
            self._transport.resume_reading()
            self._receive(data)

    # One request.

    def _await_request(self) -> None:
        self._phase = _Phase.HEAD
        self._keep_alive = False
        self._head = None
        self._admission = None
        self._reader.start()
        self._alarm.set(self._site.timeouts.idle)

    def _begin(self, head: Head, admission: Admission) -> None:
        """The head is there: refuse the request, answer it, or wait for its body."""
        site = self._site
        check_length(head, site.limits.message)
        if admission.refused is not None and not worth_receiving(head):
            raise admission.refused
        self._keep_alive = head.keep_alive and not self._draining
        if head.length == 0:
            self._complete(b"")
            return
        if head.expects_continue:
            self._transport.write(writing.CONTINUE)
        limits = site.limits
        self._body = ChunkedBody(limits.message, limits.headers) if head.length is None else SizedBody(head.length)
        self._phase = _Phase.BODY
        self._alarm.set(site.timeouts.body)

    def _complete(self, body: Buffer) -> None:
        """The whole request is there."""
        self._phase = _Phase.ANSWERING
        self._alarm.silence()
        reply = self._answer(body)
        if isinstance(reply, Message) and not self._coding(reply):
            self._send(reply)
        elif isinstance(reply, Stream):
            self._task = spawn(self._send_stream(reply))
        else:
            self._task = spawn(self._send_later(reply))

    def _answer(self, body: Buffer) -> Message | Awaitable[Message] | Stream:
        head, admission, site = self._head, self._admission, self._site
        assert head is not None
        assert admission is not None
        if admission.refused is not None:
            return self._refusal(admission.refused)
        message = admission.message(head, body, self._peer, self._loop.time())
        coding, limit, protocol = admission.coding, site.limits.message, admission.protocol
        try:
            if protocol.wants_stream is not None and protocol.wants_stream(message):
                return Stream(alone(message, coding, limit), site.stream, protocol, head)
            return answer(message, coding, limit, site.exchange, protocol)
        except Exception as error:
            return self._refusal(as_gateway_error(error))

    # Replying.

    def _coding(self, reply: Message) -> str:
        """The coding that the client wants `reply` to be in."""
        head = self._head
        if head is None or b"accept-encoding" not in head.fields or writing.size(reply.parts) < MIN_DEFLATED:
            return ""
        return head.accepted_coding

    async def _send_later(self, reply: Message | Awaitable[Message]) -> None:
        head = self._head
        assert head is not None
        try:
            answered = await finish(reply, head.accepted_coding)
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        except Exception as error:
            answered = self._refusal(as_gateway_error(error))
        self._task = None
        self._send(answered)
        self._receive_ahead()

    async def _send_stream(self, stream: Stream) -> None:
        """Write a stream's reply as it comes, then turn to the next request or close."""
        begun = False
        if not stream.is_delimited:
            self._keep_alive = False
            self._close_with_reset(True)
        try:
            async with aclosing(stream.pieces(self._connection_line)) as pieces:
                async for piece in pieces:
                    begun = True
                    self._transport.write(piece)
                    await self._taken()
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        except Exception as error:
            self._task = None
            self._break_off(as_gateway_error(error), begun=begun)
        else:
            self._task = None
            if not stream.is_delimited:
                self._close_with_reset(False)
            self._turn()
        self._receive_ahead()

    def _close_with_reset(self, on: bool) -> None:
        """Where the end of the connection is the end of the reply, one that breaks off must end otherwise."""
        option = struct.pack("ii", on, 0)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)

    def _break_off(self, error: GatewayError, *, begun: bool) -> None:
        if begun:
            # A clean end would make what came look like a whole reply.
            log.warning("a reply to %s broke off: %s", self._peer, error.message)
            self._transport.abort()
        else:
            self._send(self._refusal(error))

    async def _taken(self) -> None:
        """Wait until the client has read most of what there was; at least for the loop to do everything else once."""
        await asyncio.sleep(0)
        if not self._writable:
            self._resumed = self._loop.create_future()
            self._await_progress()
            await self._resumed
            self._alarm.silence()

    def _send(self, reply: Message) -> None:
        """Write `reply`, then turn to the next request or close."""
        self._write(reply)
        if self._writable:
            self._turn()
        else:
            self._phase = _Phase.FLUSHING
            self._await_progress()

    def _write(self, reply: Message) -> None:
        head, length = self._head, writing.size(reply.parts)
        try:
            start = writing.head(reply, writing.content_length(length), self._connection_line())
        except ValueError as error:
            self._keep_alive = False
            self._write(self._refusal(as_gateway_error(error)))
            return
        bodiless = head is not None and head.method == "HEAD"
        for piece in (start,) if bodiless else writing.joined((start, *reply.parts), length):
            self._transport.write(piece)

    def _connection_line(self) -> bytes:
        return writing.connection(self._keep_alive, "1.1" if self._head is None else self._head.version)

    def _refusal(self, error: GatewayError) -> Message:
        """The listener's own error, in the form of the protocol that the path belongs to."""
        head, admission, site = self._head, self._admission, self._site
        message = Message(peer=self._peer)
        if head is not None:
            message = replace(message, method=head.method, path=head.path, query=head.query, headers=head.headers)
        protocol = site.table.blame(message.path) if admission is None else admission.protocol
        reply = site.refuse(error, protocol, message)
        if admission is not None and admission.allow:
            reply = replace(reply, headers=Headers((*reply.headers.raw, allow_header(admission.allow))))
        return replace(reply, status=417) if isinstance(error, UnknownExpectationError) else reply

    def _turn(self) -> None:
        if self._keep_alive:
            self._await_request()
        else:
            self._linger()

    # Giving up and closing.

    def _give_up(self, error: GatewayError) -> None:
        """Refuse a request whose end cannot be found or is not worth waiting for: reply, then close."""
        self._keep_alive = False
        self._write(self._refusal(error))
        self._linger()

    def _linger(self) -> None:
        """Close without a reset, which would take the reply from a client that is still sending (RFC 9112 section 9.6):
        no more is written, and what comes is dropped until the client closes too, or for a while."""
        self._phase = _Phase.LINGERING
        self._ahead = bytearray()
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
        match self._phase:
            case _Phase.HEAD if not self._reader.size:
                self._close()
            case _Phase.HEAD:
                self._give_up(_too_slow(f"the request's head did not arrive within {self._site.timeouts.head:g} s"))
            case _Phase.BODY:
                self._give_up(_too_slow(f"nothing of the request's body came for {self._site.timeouts.body:g} s"))
            case _Phase.FLUSHING | _Phase.ANSWERING if self._transport.get_write_buffer_size() < self._unread:
                self._await_progress()
            case _:
                self._transport.abort()


def _too_slow(text: str) -> GatewayError:
    return refusal(Reason.REQUEST_TIMEOUT, text)


def _address(peer: tuple[str, int] | str | None) -> str:
    """`host:port` of a socket's address; empty on a unix socket, whose clients have none."""
    if not isinstance(peer, tuple):
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
