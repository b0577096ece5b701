"""One HTTP/1.1 connection to an endpoint, with one exchange at a time.

    connection_made ──→ quiet ──send──→ exchanging ──reply complete──→ quiet, or closing
                                             └─ error, abandon ──→ closed

A connection is *quiet* while it has no exchange and its peer has neither closed it nor sent any bytes. In HTTP/1.1,
only the order on the connection determines which reply belongs to a request. Therefore, the gateway sends requests only
on quiet connections. Otherwise, a byte that arrived before the request would count as the beginning of the reply.
"""

import asyncio
import typing
from collections.abc import Iterable, Iterator

from gateway.core.errors import TransportError
from gateway.core.messages import Buffer, Message
from gateway.transports.errors import how_lost
from gateway.transports.http.client.reply import ReplyReader, malformed
from gateway.transports.protocol_hints import FIRST_BYTES
from gateway.transports.sockets import Unconfirmed, keep_probing, listening_to, unread

SCRATCH_BYTES = 64 * 2**10

_JOINED = 64 * 2**10
"""Maximum size, in bytes, of a body to copy behind the head. Up to this size, copying costs less than a second
write."""
_SLICE = 256 * 2**10
"""The size, in bytes, of the pieces in which a large body is passed to the transport.

The transport's buffer contains at most one piece."""
_LINGER_LOOKS = 2
"""The number of checks by the pool, after the last reply, until the gateway closes a connection that the peer has left
open.

The gateway waits for the peer because the side that closes first keeps the port in TIME_WAIT for a minute."""
_IDLE_TIMEOUT_REPLY = b"HTTP/1.1 408"
"""The beginning of the only reply that a server can send without a request. A server sends this reply when it closes an
idle connection (RFC 9110, section 15.5.9)."""


class HttpConnectionObserver(typing.Protocol):
    """The observer (the pool) to which a connection reports its state."""

    def opened(self, connection: "HttpClientConnection") -> None:
        """Handle a connected socket. The observer calls `look_after` later."""

    def ending(self, connection: "HttpClientConnection") -> None:
        """Handle a connection that the peer should close, after its last exchange. The observer calls `look_after`
        later."""

    def freed(self, connection: "HttpClientConnection") -> None:
        """Handle a connection that is free for another exchange."""

    def lost(self, connection: "HttpClientConnection") -> None:
        """Handle a closed socket."""

    def distrust(self) -> None:
        """Handle a peer that sent bytes without a request."""


class HttpClientConnection(asyncio.BufferedProtocol):
    """Sends requests and receives their replies sequentially.

    `scratch` is the receive buffer. All connections of a loop can share it, because the loop calls `buffer_updated`
    immediately after filling the buffer. `reusable` is True if the connection can have more than one exchange."""

    # These are class attributes instead of assignments in the constructor, because a connection for one exchange needs
    # few of them.
    idle_since = 0.0
    unrequested = b""
    """The beginning of the bytes that the peer sent without a request."""
    _paused = False
    _looks_left: int | None = None
    """The number of remaining checks before the connection closes."""
    _is_probing = False
    _request_size = 0

    def __init__(
        self, loop: asyncio.AbstractEventLoop, scratch: memoryview, observer: HttpConnectionObserver, *, reusable: bool
    ) -> None:
        self.loop = loop
        self._scratch = scratch
        self._observer = observer
        self._reusable = reusable
        self._transport: asyncio.Transport
        self._reply: ReplyReader | None = None
        self._waiter: asyncio.Future[ReplyReader] | None = None
        self._unwritten: Iterator[memoryview] | None = None
        self._is_tls = False
        self._has_earlier_reply = False
        """True if the next reply is not the connection's first."""

    def send_last(self, head: bytes, message: Message, size: int, reply: ReplyReader) -> "asyncio.Future[ReplyReader]":
        """Same as `send`, but this is the last exchange on the connection, regardless of the peer's headers."""
        self._reusable = False
        return self.send(head, message, size, reply)

    def send(self, head: bytes, message: Message, size: int, reply: ReplyReader) -> "asyncio.Future[ReplyReader]":
        """Write a request whose parts have a total of `size` bytes.

        The connection must be quiet. `head` and a small body are written together.

        Return a future whose result is the completed `reply`. If the exchange fails, the future raises TransportError.
        A caller that stops waiting must call `abandon`."""
        self._reply = reply
        self._request_size = len(head) + size
        self._waiter = waiter = self.loop.create_future()
        if size <= _JOINED:
            self._transport.write(b"".join((head, *message.parts)))
        else:
            self._unwritten = _slices((head, *message.parts))
            self._write_on()
        return waiter

    def abandon(self, waiter: "asyncio.Future[ReplyReader]") -> None:
        """Stop waiting for a reply. If the reply is incomplete, close the connection, so the peer can stop processing
        the request."""
        if waiter is self._waiter:
            if self._reply is not None:
                self._reply.stop()
            self._reply = self._waiter = None
            self.abort()

    def resume_reading(self) -> None:
        """Resume reading after `reply.is_paused` was set."""
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._write_on()

    def is_quiet(self) -> bool:
        """Return True if the peer has neither closed the connection nor sent any bytes, including bytes that the loop
        has not read yet."""
        return not self._transport.is_closing() and not self._poll.poll(0)

    def is_fresh(self) -> bool:
        """Return whether a new connection is quiet. Over TLS, bytes that belong to TLS itself, such as session tickets,
        are allowed."""
        return not self._transport.is_closing() if self._is_tls else self.is_quiet()

    def drop(self) -> None:
        """Close a connection that has no exchange and is not quiet."""
        if not self._is_tls and not self._transport.is_closing():  # over TLS, the bytes can belong to TLS itself
            self._check_unrequested(unread(self._transport.get_extra_info("socket"), FIRST_BYTES))
        self.abort()

    def abort(self) -> None:
        """Close the connection immediately. A pending reply fails."""
        self._unwritten = None
        self._transport.abort()

    def look_after(self) -> bool:
        """Check the connection.

        The observer calls this method after a delay, and repeatedly while the result is True. The method also enables
        TCP keepalive. Enabling it earlier would be useless, because keepalive matters only after a minute, and most
        calls end before the first check."""
        if self._transport.is_closing():
            return False
        if not self._is_probing:
            self._is_probing = True
            keep_probing(self._transport.get_extra_info("socket"))
        if self._looks_left is None:
            return False
        self._looks_left -= 1
        if not self._looks_left:
            self.abort()
        return self._looks_left > 0

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        descriptor = transport.get_extra_info("socket").fileno()
        self._poll = listening_to(descriptor)
        if self._reusable:
            self._unconfirmed = Unconfirmed(descriptor)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._observer.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        reply = self._reply
        return self._scratch if reply is None or reply.body_buffer is None else reply.body_buffer

    def buffer_updated(self, nbytes: int) -> None:
        reply = self._reply
        if reply is None:  # no request was sent
            self._check_unrequested(bytes(self._scratch[: min(nbytes, FIRST_BYTES)]))
            self.abort()
            return
        try:
            if self._has_earlier_reply:
                self._has_earlier_reply = False
                self._check_order()
            message = reply.read(self._scratch[:nbytes]) if reply.body_buffer is None else reply.filled(nbytes)
        except TransportError as error:
            self._fail(error)
            return
        if message is not None:
            self._finish(reply)
        elif reply.is_paused:
            self._transport.pause_reading()
        elif nbytes == len(self._scratch) and reply.body_buffer is None:
            # More bytes are waiting. The parser calls back for each chunk, even a small chunk, and uvloop would keep
            # reading. Therefore, let other connections have their turn first.
            self._transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing() and (self._reply is None or not self._reply.is_paused):
            self._transport.resume_reading()

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
        if self._reply is not None:
            self._fail(self._reply.broken_off(how_lost(exc)))
        self._observer.lost(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()

    def _check_unrequested(self, data: bytes) -> None:
        """Report a peer that sent bytes without a request. `data` is the beginning of these bytes."""
        self.unrequested = data
        if data and not data.startswith(_IDLE_TIMEOUT_REPLY):
            self._observer.distrust()

    def _check_order(self) -> None:
        """Reject a reply that the peer sent before its system had received any part of the request, because this is a
        second reply to an earlier request. A second reply that the peer sends later cannot be detected."""
        if not self._is_tls and self._unconfirmed.count() >= self._request_size:
            self._observer.distrust()
            raise malformed("reply came before the request had arrived, so it belongs to another request")

    def _write_on(self) -> None:
        """Write pieces of the request's body until the transport pauses writing."""
        while self._unwritten is not None and not self._paused:
            if not self.is_quiet():
                # The peer might have rejected the request and closed the connection. Read first, because a failed write
                # would lose the reply.
                if self._reply is None or not self._reply.is_paused:
                    self.loop.call_soon(self._write_on)
                return
            self._write_piece(self._unwritten)

    def _write_piece(self, unwritten: Iterator[memoryview]) -> None:
        piece = next(unwritten, None)
        if piece is None:
            self._unwritten = None
        else:
            self._transport.write(piece)

    def _finish(self, reply: ReplyReader) -> None:
        waiter = self._waiter
        self._waiter = self._reply = None
        # A peer can respond before it has read the entire request. In this case, the request is still incomplete on the
        # connection.
        is_written = self._unwritten is None and not self._transport.get_write_buffer_size()
        if is_written and reply.keep_alive and self._reusable:
            self._has_earlier_reply = True
            self._observer.freed(self)
        else:
            self._end(reply, is_written)
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _end(self, reply: ReplyReader, is_written: bool) -> None:
        """Close the connection after the last reply."""
        if reply.has_extra_bytes:
            self._observer.distrust()
        if is_written:
            self._looks_left = _LINGER_LOOKS
            self._observer.ending(self)
        else:
            self.abort()

    def _fail(self, error: TransportError) -> None:
        waiter, reply = self._waiter, self._reply
        self._waiter = self._reply = None
        if reply is not None:
            reply.stop()
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _slices(parts: Iterable[Buffer]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _SLICE):
            yield view[start : start + _SLICE]
