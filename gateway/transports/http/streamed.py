"""Replies of any number of messages as bytes: a head, then each message as it comes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from gateway.core.errors import invalid_output
from gateway.core.protocol import Protocol
from gateway.core.transport import ExchangeStream
from gateway.core.types import Buffer, Headers, Message
from gateway.core.values import replace
from gateway.transports.http import writing
from gateway.transports.http.requests import Head

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
        assert protocol.stream_framing is not None
        self._messages = messages
        self._replies = exchange(messages, protocol)
        self._wrap = protocol.stream_framing.wrap
        self._head = head

    @property
    def is_delimited(self) -> bool:
        """Whether the client can tell the end of the reply from that of the connection: HTTP/1.0 has no chunks."""
        return self._head.version == "1.1"

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
            head = writing.head(_end_to_end(first), body.line, connection())
            if self._head.method == "HEAD" or first.status in writing.BODILESS:
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

    def _body(self, first: Message, *, is_alone: bool) -> "_Body":
        length = next((text for name, text in first.headers.raw if name.lower() == b"content-length"), None)
        if length is not None:
            return _Sized(first.status, int(length))
        if first.status >= 400 and is_alone:
            return _Sized(first.status, writing.size(first.parts))
        return _Chunked(self._wrap) if self.is_delimited else _UntilClose(self._wrap)


Wrap = Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]


class _UntilClose:
    """A body that ends with its connection."""

    line = b""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        return self._wrap(reply.parts)

    def end(self) -> tuple[Buffer, ...]:
        return ()


class _Chunked:
    """RFC 9112 section 7.1. A chunk of no bytes would end the body."""

    line = b"Transfer-Encoding: chunked\r\n"

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        parts = self._wrap(reply.parts)
        length = writing.size(parts)
        return (b"%x\r\n" % length, *parts, b"\r\n") if length else ()

    def end(self) -> tuple[Buffer, ...]:
        return (b"0\r\n\r\n",)


class _Sized:
    """A body of so many bytes, whose messages are its pieces."""

    def __init__(self, status: int, length: int) -> None:
        self.line = writing.content_length(length)
        self._status = status
        self._left = length

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        self._left -= writing.size(reply.parts)
        if self._left < 0 or reply.status != self._status:
            raise invalid_output(f"a sized reply broke off, or goes on: {bytes(reply.body)[:200]!r}")
        return reply.parts

    def end(self) -> tuple[Buffer, ...]:
        if self._left:
            raise invalid_output(f"a sized reply has {self._left} bytes less than its head says")
        return ()


_Body = _UntilClose | _Chunked | _Sized


def _joined(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    return writing.joined(parts, writing.size(parts)) if parts else ()


def _end_to_end(reply: Message) -> Message:
    """Without what belongs to a connection: `Connection` itself may name more."""
    named = [option.strip().lower().encode() for text in reply.headers.all("connection") for option in text.split(",")]
    fields = [field for field in reply.headers.raw if field[0].lower() not in _OWN.union(named)]
    return replace(reply, headers=Headers(fields))
