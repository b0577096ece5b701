"""The writer for replies that consist of many messages.

The gateway writes the head, and then each message as soon as the exchange yields it.

The first message contains the status and the headers. It also determines how the body is delimited:

    first message has a Content-Length     SizedReplyBody: the messages are pieces of a body of that size, unframed
    error (400 and above) that comes alone SizedReplyBody: a Content-Length, as in any other reply
    any other, to HTTP/1.1                 ChunkedReplyBody: one chunk for each message, in the protocol's framing
    any other, to HTTP/1.0                 BodyUntilClose: the end of the connection ends the body
"""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.core.address import peer_address
from gateway.core.errors import GatewayError, invalid_output
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.protocol import Protocol
from gateway.core.record import Record
from gateway.core.transport import ExchangeStream
from gateway.transports.http.server import reply_bytes
from gateway.transports.http.server.request_head import RequestHead

log = logging.getLogger(__name__)

_EMPTY_REPLY = Message(status=200, headers=Headers(((b"content-length", b"0"),)))

# These headers belong to one connection (RFC 9110, section 7.6.1), or delimit a body. In a relayed reply, they describe
# the backend's connection.
_HOP_BY_HOP = frozenset(
    (
        b"connection", b"content-length", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip

Wrap = Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]
"""A function that adds the protocol's framing to a message."""


class StreamedReplyWriter:
    """Writes the reply to a request. `messages` yields the client's messages in the stream. The writer drops headers
    whose names are in `left_out`, because the listener itself writes these headers."""

    def __init__(
        self,
        messages: AsyncGenerator[Message, None],
        exchange: ExchangeStream,
        protocol: Protocol,
        head: RequestHead,
        record: Record,
        left_out: frozenset[bytes] = frozenset(),
    ) -> None:
        framing = protocol.http.stream_framing
        assert framing is not None
        self._messages = messages
        self._replies = exchange(messages, protocol)
        self._wrap = framing.wrap
        self._head = head
        self._record = record
        self._left_out = left_out
        self.begun = False
        """True if the writer has written a part of the reply."""

    @property
    def is_delimited(self) -> bool:
        """True if the reply can end without closing the connection. HTTP/1.0 has no chunks."""
        return self._head.version == "1.1"

    async def write(
        self,
        begin: Callable[[Buffer], Buffer],
        transport: asyncio.Transport,
        connection_line: Callable[[], bytes],
        until_read: Callable[[], Awaitable[None]],
    ) -> GatewayError | None:
        """Write each piece as it arrives, and await `until_read` before the next piece.

        `begin` receives the first piece, and returns the part of this piece to write. `connection_line` has the same
        meaning as in `pieces`.

        If an error occurs before the reply has begun, return it. If the reply breaks off later, or is cancelled, abort
        the connection, because a clean close would make the reply appear complete."""
        try:
            await self._write_pieces(begin, transport, connection_line, until_read)
        except asyncio.CancelledError:
            transport.abort()  # not raised again: a cancelled task would keep the exception, and so the request
        except Exception as error:
            known = as_gateway_error(error, self._record)
            if not self.begun:
                return known
            peer = peer_address(transport.get_extra_info("peername"))
            log.warning("a reply to %s broke off: %s", peer, known.message)
            transport.abort()
        return None

    async def _write_pieces(
        self,
        begin: Callable[[Buffer], Buffer],
        transport: asyncio.Transport,
        connection_line: Callable[[], bytes],
        until_read: Callable[[], Awaitable[None]],
    ) -> None:
        if not self.is_delimited:
            _reset_on_close(transport, True)
        async with aclosing(self.pieces(connection_line)) as pieces:
            async for piece in pieces:
                transport.write(piece if self.begun else begin(piece))
                self.begun = True
                await until_read()
        if not self.is_delimited:
            _reset_on_close(transport, False)

    async def pieces(self, connection_line: Callable[[], bytes]) -> AsyncGenerator[Buffer, None]:
        """Yield the buffers to write.

        Pull the next buffer after the client has read the previous buffer. The writer calls `connection_line`, which
        returns the Connection line, when it writes the head.

        Raises:
            Exception: any exception from the exchange. If this occurs after the first piece, the reply must not end
                like a complete reply.
            ValueError: a header contains a line break.
        """
        async with aclosing(self._messages), aclosing(self._replies) as replies:
            first = await anext(replies, _EMPTY_REPLY)
            second = await anext(replies, None) if first.status >= 400 else None
            body = self._body(first, is_alone=second is None)
            head = reply_bytes.head(
                _end_to_end(first, self._record, self._left_out), body.length_line, connection_line()
            )
            if self._head.method == "HEAD" or first.status in reply_bytes.BODILESS:
                yield head
                return
            begun = () if second is None else body.parts(second)
            for piece in _joined((head, *body.parts(first), *begun)):
                yield piece
            async for reply in replies:
                for piece in _joined(body.parts(reply)):
                    yield piece
            for piece in _joined(body.end()):
                yield piece

    def _body(self, first: Message, *, is_alone: bool) -> "Body":
        length = next((text for name, text in first.headers.raw if name.lower() == b"content-length"), None)
        if length is not None:
            return SizedReplyBody(first.status, int(length))
        if first.status >= 400 and is_alone:
            return SizedReplyBody(first.status, reply_bytes.body_size(first.parts))
        return ChunkedReplyBody(self._wrap) if self.is_delimited else BodyUntilClose(self._wrap)


class BodyUntilClose:
    """A body that ends when the connection closes."""

    length_line = b""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        return self._wrap(reply.parts)

    def end(self) -> tuple[Buffer, ...]:
        return ()


class ChunkedReplyBody:
    """A body with one chunk per message (RFC 9112, section 7.1).

    An empty message has no chunk, because a chunk without bytes would end the body."""

    length_line = b"Transfer-Encoding: chunked\r\n"

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        parts = self._wrap(reply.parts)
        size = reply_bytes.body_size(parts)
        return (b"%x\r\n" % size, *parts, b"\r\n") if size else ()

    def end(self) -> tuple[Buffer, ...]:
        return (b"0\r\n\r\n",)


class SizedReplyBody:
    """A body of `size` bytes. Its pieces are the messages, all of which must have the same `status`."""

    def __init__(self, status: int, size: int) -> None:
        self.length_line = reply_bytes.content_length(size)
        self._status = status
        self._missing = size

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        self._missing -= reply_bytes.body_size(reply.parts)
        if self._missing < 0 or reply.status != self._status:
            raise invalid_output(
                f"a streamed reply does not fit its head's Content-Length and status: {bytes(reply.body)[:200]!r}"
            )
        return reply.parts

    def end(self) -> tuple[Buffer, ...]:
        if self._missing:
            raise invalid_output(f"a streamed reply has {self._missing} bytes less than its Content-Length")
        return ()


Body = BodyUntilClose | ChunkedReplyBody | SizedReplyBody


def _reset_on_close(transport: asyncio.Transport, on: bool) -> None:
    """Set whether closing the connection sends a reset. If the end of the connection marks the end of the reply, only a
    reset indicates that a reply is incomplete."""
    option = struct.pack("ii", on, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)


def _joined(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return reply_bytes.joined(parts, reply_bytes.body_size(parts)) if parts else ()


def _end_to_end(reply: Message, record: Record, left_out: frozenset[bytes]) -> Message:
    """Return the reply without hop-by-hop headers (including the headers that its `Connection` header lists), and
    without headers whose names are in `left_out`. Headers that the record adds itself are also dropped, because a
    relayed reply can contain its own request id."""
    options = [
        option.strip().lower().encode() for text in reply.headers.all("connection") for option in text.split(",")
    ]
    own = [name for name, _ in record.reply_fields()] if record.tells else ()
    fields = [field for field in reply.headers.raw if field[0].lower() not in _HOP_BY_HOP.union(options, own, left_out)]
    return replace(reply, headers=Headers(fields))
