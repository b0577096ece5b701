"""One connection to an endpoint, carrying one exchange at a time."""

import asyncio
import typing
from collections.abc import Iterable, Iterator
from typing import cast

from gateway.core.errors import TransportError
from gateway.core.types import Buffer, Message
from gateway.transports.http.client.reply import Reply, malformed
from gateway.transports.sockets import keep_probing, listening_to, unconfirmed, unread

SCRATCH_BYTES = 64 * 2**10

_JOINED = 64 * 2**10
"""Up to this many bytes, one copy is cheaper than one more write."""
_SLICE = 256 * 2**10
"""What of a large body is handed to the transport at a time: its buffer holds no more, also where it copies."""
_LINGER_SECONDS = 1.0
"""How long a peer that is to close has for it: who closes first keeps the port in TIME_WAIT for a minute."""
_FAREWELL = b"HTTP/1.1 408"
"""How what a server may send unasked begins, before it closes an idle connection (RFC 9110 section 15.5.9)."""


class Owner(typing.Protocol):
    """Whom a Connection tells what became of it."""

    def opened(self, connection: "Connection") -> None: ...
    def freed(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...
    def distrust(self) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """`scratch` may be shared by all connections of a loop: every loop fills it and calls `buffer_updated` in one go.

    `reusable`: whether it may carry more than one exchange.
    """

    def __init__(self, scratch: memoryview, owner: Owner, *, reusable: bool) -> None:
        self.idle_since = 0.0
        self._scratch = scratch
        self._owner = owner
        self._reusable = reusable
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._reply: Reply | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._unwritten: Iterator[memoryview] | None = None
        self._paused = False
        self._linger: asyncio.TimerHandle | None = None
        self._descriptor = -1
        self._is_tls = False
        self._exchanges = 0
        self._request_size = 0

    def send(self, head: bytes, message: Message, size: int, reply: Reply) -> "asyncio.Future[Reply]":
        """Write a request, whose parts have `size` bytes together. The future is of `reply` once it is complete, or
        fails with TransportError; whoever stops waiting for it calls `abandon`. The connection must be quiet."""
        self._reply = reply
        self._exchanges += 1
        self._request_size = len(head) + size
        self._waiter = waiter = self._loop.create_future()
        if size <= _JOINED:
            self._transport.write(b"".join((head, *message.parts)) if size else head)
        else:
            self._unwritten = _slices((head, *message.parts))
            self._write_on()
        return waiter

    def abandon(self, waiter: "asyncio.Future[Reply]") -> None:
        """Nobody waits any more: close, so that the peer sees it, unless the reply is there already."""
        if waiter is self._waiter:
            self._reply = self._waiter = None
            self.abort()

    def read_on(self) -> None:
        """The reply is no longer full."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def is_quiet(self) -> bool:
        """Whether the peer has neither closed nor sent anything, also nothing that the loop has not seen yet."""
        return not self._transport.is_closing() and not self._poll.poll(0)

    def is_fresh(self) -> bool:
        """Whether a new connection is quiet. Over TLS the peer may have sent what is TLS' own."""
        return not self._transport.is_closing() if self._is_tls else self.is_quiet()

    def drop(self) -> None:
        """Close a connection that carries no exchange and is not quiet."""
        if not self._is_tls and not self._transport.is_closing():  # what came over TLS may be TLS' own
            self._mind_stray(unread(self._transport.get_extra_info("socket"), len(_FAREWELL)))
        self.abort()

    def abort(self) -> None:
        """Close at once; a reply that is waited for fails."""
        self._unwritten = None
        self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._loop = asyncio.get_running_loop()
        sock = transport.get_extra_info("socket")
        keep_probing(sock)
        self._descriptor = sock.fileno()
        self._poll = listening_to(self._descriptor)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        reply = self._reply
        return self._scratch if reply is None or reply.rest is None else reply.rest

    def buffer_updated(self, nbytes: int) -> None:
        reply = self._reply
        if reply is None:  # bytes that nobody asked for
            self._mind_stray(bytes(self._scratch[: min(nbytes, len(_FAREWELL))]))
            self.abort()
            return
        try:
            if not reply.has_begun and self._exchanges > 1:
                self._check_order()
            complete = reply.read(self._scratch[:nbytes]) if reply.rest is None else reply.filled(nbytes)
        except TransportError as error:
            self._fail(error)
        else:
            if complete is not None:
                self._finish(reply)
            elif reply.is_full:
                self._transport.pause_reading()

    def eof_received(self) -> None:
        reply = self._reply
        if reply is None:
            return
        try:
            reply.end()
        except TransportError as error:
            self._fail(error)
        else:
            self._finish(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if self._reply is not None:
            self._fail(self._reply.broken_off("closed" if exc is None else "reset"))
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()

    def _mind_stray(self, data: bytes) -> None:
        if data and data != _FAREWELL:
            self._owner.distrust()

    def _check_order(self) -> None:
        """Refuse a reply that was sent before the peer's system had received anything of the request: it answers an
        earlier one once more. What is sent later than that cannot be told from the right reply."""
        if not self._is_tls and unconfirmed(self._descriptor) >= self._request_size:
            self._owner.distrust()
            raise malformed("reply was sent before the request had arrived, so it answers another one")

    def _write_on(self) -> None:
        """Write what is unwritten, as far as the peer takes it."""
        while self._unwritten is not None and not self._paused:
            if not self.is_quiet():
                # It may have refused the request and closed: a failing write would lose its reply, so read first.
                self._loop.call_soon(self._write_on)
                return
            self._write_piece(self._unwritten)

    def _write_piece(self, unwritten: Iterator[memoryview]) -> None:
        piece = next(unwritten, None)
        if piece is None:
            self._unwritten = None
        else:
            self._transport.write(piece)

    def _finish(self, reply: Reply) -> None:
        waiter, self._waiter, self._reply = self._waiter, None, None
        # A peer that answered before it took the whole request left the connection in the middle of one.
        is_written = self._unwritten is None and not self._transport.get_write_buffer_size()
        if reply.is_followed:
            self._owner.distrust()
        if not is_written:
            self.abort()
        elif self._reusable and reply.keep_alive:
            self._owner.freed(self)
        else:
            self._linger = self._loop.call_later(_LINGER_SECONDS, self.abort)
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _fail(self, error: TransportError) -> None:
        waiter, self._waiter, self._reply = self._waiter, None, None
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _slices(parts: Iterable[Buffer]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _SLICE):
            yield view[start : start + _SLICE]
