"""What is written to a client: replies, one after the other, and refusals."""

import asyncio
import logging

from gateway.core.errors import GatewayError
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import frozen
from gateway.core.patterns import PathTable
from gateway.core.transport import EventualReply, Exchange, ExchangeStream, Refuse
from gateway.core.types import Message
from gateway.transports.http.compression import MIN_DEFLATED
from gateway.transports.http.server import reply_bytes
from gateway.transports.http.server.content_coding import finish
from gateway.transports.http.server.dispatch import Admission
from gateway.transports.http.server.head_cache import KnownHeads
from gateway.transports.http.server.refusals import refused
from gateway.transports.http.server.request_head import Head
from gateway.transports.http.server.streamed_reply import Stream
from gateway.transports.lifecycle import Lifecycle, Phase, Terms

log = logging.getLogger(__name__)

_UNANSWERED = frozenset({Phase.HEAD, Phase.BODY, Phase.ANSWERING, Phase.FLUSHING})


@frozen
class Site(Terms):
    """What all connections of one listener share."""

    table: PathTable
    heads: KnownHeads
    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse


class Replying(Lifecycle, asyncio.Protocol):
    """A connection that is replied on. Whoever receives on it sets `_head` and `_admission`, as far as the request got,
    and `_keep_alive`."""

    HEAD, BODY = "the request's head", "the request's body"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._site = site
        self._head: Head | None = None
        self._admission: Admission | None = None
        self._keep_alive = False
        self._task: asyncio.Task[None] | None = None
        self._resumed: asyncio.Future[None] | None = None

    def _await_request(self) -> None:
        """Turn to the next request."""
        raise NotImplementedError

    def _receive_ahead(self) -> None:
        """Receive what came before its turn, if this is it."""
        raise NotImplementedError

    @property
    def unanswered(self) -> int:
        """1 from a request's first byte to its reply's last."""
        return int(self._phase in _UNANSWERED)

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side. Asyncio closes after the client's FIN too: a client that only half-closes and waits
        cannot be told from one that has gone, and HTTP clients do not."""
        super().connection_lost(error)
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _coding(self, reply: Message) -> str:
        """The coding that the client wants `reply` to be in."""
        head = self._head
        if head is None or b"accept-encoding" not in head.fields or reply_bytes.size(reply.parts) < MIN_DEFLATED:
            return ""
        return head.accepted_coding

    async def _send_later(self, reply: EventualReply) -> None:
        head = self._head
        assert head is not None
        try:
            answered = await finish(reply, head.accepted_coding)
        except asyncio.CancelledError:
            # The task ends like any other: a cancelled one keeps the error, and with it the request.
            self._transport.abort()
            return
        except Exception as error:
            answered = self._refusal(as_gateway_error(error))
        self._task = None
        self._send(answered)
        self._receive_ahead()

    async def _send_stream(self, stream: Stream) -> None:
        """Write a stream's reply as it comes, then turn to the next request or close."""
        if not stream.is_delimited:
            self._keep_alive = False
        try:
            await stream.send(self._transport, self._connection_line, self._taken)
        except asyncio.CancelledError:
            # The task ends like any other: a cancelled one keeps the error, and with it the request.
            self._transport.abort()
            return
        except Exception as error:
            self._task = None
            self._break_off(as_gateway_error(error), begun=stream.begun)
        else:
            self._task = None
            self._turn()
        self._receive_ahead()

    async def _taken(self) -> None:
        """Wait until the client has read most of what there was; at least for the loop to do everything else once."""
        await asyncio.sleep(0)
        if not self._writable:
            self._resumed = self._loop.create_future()
            self._await_progress()
            await self._resumed
            self._alarm.silence()

    def _break_off(self, error: GatewayError, *, begun: bool) -> None:
        if begun:
            # A clean end would make what came look like a whole reply.
            log.warning("a reply to %s broke off: %s", self._peer, error.message)
            self._transport.abort()
        else:
            self._send(self._refusal(error))

    def _send(self, reply: Message) -> None:
        """Write `reply`, then turn to the next request or close."""
        self._write(reply)
        if self._writable:
            self._turn()
        else:
            self._phase = Phase.FLUSHING
            self._await_progress()

    def _write(self, reply: Message) -> None:
        head, length = self._head, reply_bytes.size(reply.parts)
        try:
            start = reply_bytes.head(reply, reply_bytes.content_length(length), self._connection_line())
        except ValueError as error:
            self._keep_alive = False
            self._write(self._refusal(as_gateway_error(error)))
            return
        bodiless = head is not None and head.method == "HEAD"
        for piece in (start,) if bodiless else reply_bytes.joined((start, *reply.parts), length):
            self._transport.write(piece)

    def _connection_line(self) -> bytes:
        """To be written at once: what it tells is decided here. A client that was told nothing may send another request
        (RFC 9112 section 9.6), so then the connection stays for it."""
        if self._site.connections.ending:
            self._keep_alive = False
        return reply_bytes.connection(self._keep_alive, "1.1" if self._head is None else self._head.version)

    def _refusal(self, error: GatewayError) -> Message:
        return refused(error, self._head, self._admission, self._peer, self._site.refuse, self._site.table)

    def _give_up(self, error: GatewayError) -> None:
        self._keep_alive = False
        self._write(self._refusal(error))
        self._linger()

    # What comes after a reply.

    def _proceed(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        if self._phase is Phase.FLUSHING:
            self._turn()
            self._receive_ahead()

    def _turn(self) -> None:
        if self._keep_alive:
            self._await_request()
        else:
            self._linger()
