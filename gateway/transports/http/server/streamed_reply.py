"""Replies of any number of messages as bytes: a head, then each message as it comes."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.transport import ExchangeStream
from gateway.core.types import Buffer, Headers, Message
from gateway.transports.http.server import reply_bytes
from gateway.transports.http.server.request_head import Head
from gateway.transports.http.server.streamed_bodies import Body, Chunked, Sized, UntilClose

_NOTHING = Message(status=200, headers=Headers(((b"content-length", b"0"),)))

# RFC 9110 section 7.6.1: these belong to one connection, and the body's delimiters are this one's own. Where a reply
# is passed on, it has the backend's.
_OWN = frozenset(
    (
        b"connection", b"content-length", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip


class Stream:
    """The reply to the one request of `messages`, of which the first message has the status and the headers.

    Its messages go out as chunks, in the framing of the protocol; to HTTP/1.0 the connection's end is the reply's. An
    error that is all there is has a Content-Length, as any other reply; so has a reply whose first message says one,
    and it goes out unframed.
    """

    def __init__(
        self, messages: AsyncGenerator[Message, None], exchange: ExchangeStream, protocol: Protocol, head: Head
    ) -> None:
        framing = protocol.http.stream_framing
        assert framing is not None
        self._messages = messages
        self._replies = exchange(messages, protocol)
        self._wrap = framing.wrap
        self._head = head
        self.begun = False
        """Whether some of it is written."""

    @property
    def is_delimited(self) -> bool:
        """Whether the client can tell the end of the reply from that of the connection: HTTP/1.0 has no chunks."""
        return self._head.version == "1.1"

    async def send(
        self, transport: asyncio.Transport, connection: Callable[[], bytes], taken: Callable[[], Awaitable[None]]
    ) -> None:
        """Write it as it comes, and wait for the client to have `taken` each piece. `connection` is that of `pieces`.

        Raises:
            Exception: as `pieces`.
        """
        if not self.is_delimited:
            _close_with_reset(transport, True)
        async with aclosing(self.pieces(connection)) as pieces:
            async for piece in pieces:
                self.begun = True
                transport.write(piece)
                await taken()
        if not self.is_delimited:
            _close_with_reset(transport, False)

    async def pieces(self, connection: Callable[[], bytes]) -> AsyncGenerator[Buffer, None]:
        """What to write, each when the client took the one before. `connection` gives the head's line of that name.

        Raises:
            Exception: whatever the exchange raised. After the first piece the reply is not to look like a whole one.
            ValueError: a header holds a line break.
        """
        async with aclosing(self._messages), aclosing(self._replies) as replies:
            first = await anext(replies, _NOTHING)
            second = await anext(replies, None) if first.status >= 400 else None
            body = self._body(first, is_alone=second is None)
            head = reply_bytes.head(_end_to_end(first), body.line, connection())
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

    def _body(self, first: Message, *, is_alone: bool) -> Body:
        length = next((text for name, text in first.headers.raw if name.lower() == b"content-length"), None)
        if length is not None:
            return Sized(first.status, int(length))
        if first.status >= 400 and is_alone:
            return Sized(first.status, reply_bytes.size(first.parts))
        return Chunked(self._wrap) if self.is_delimited else UntilClose(self._wrap)


def _close_with_reset(transport: asyncio.Transport, on: bool) -> None:
    """Where the end of the connection is the end of the reply, one that breaks off must end otherwise."""
    option = struct.pack("ii", on, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)


def _joined(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return reply_bytes.joined(parts, reply_bytes.size(parts)) if parts else ()


def _end_to_end(reply: Message) -> Message:
    """Without what belongs to a connection: `Connection` itself may name more."""
    named = [option.strip().lower().encode() for text in reply.headers.all("connection") for option in text.split(",")]
    fields = [field for field in reply.headers.raw if field[0].lower() not in _OWN.union(named)]
    return replace(reply, headers=Headers(fields))
