"""How a streamed reply's body ends, and what each of its messages becomes in it."""

from collections.abc import Callable

from gateway.core.errors import invalid_output
from gateway.core.types import Buffer, Message
from gateway.transports.http.server import reply_bytes

Wrap = Callable[[tuple[Buffer, ...]], tuple[Buffer, ...]]


class UntilClose:
    """A body that ends with its connection."""

    line = b""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        return self._wrap(reply.parts)

    def end(self) -> tuple[Buffer, ...]:
        return ()


class Chunked:
    """RFC 9112 section 7.1. A chunk of no bytes would end the body."""

    line = b"Transfer-Encoding: chunked\r\n"

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        parts = self._wrap(reply.parts)
        length = reply_bytes.size(parts)
        return (b"%x\r\n" % length, *parts, b"\r\n") if length else ()

    def end(self) -> tuple[Buffer, ...]:
        return (b"0\r\n\r\n",)


class Sized:
    """A body of so many bytes, whose messages are its pieces."""

    def __init__(self, status: int, length: int) -> None:
        self.line = reply_bytes.content_length(length)
        self._status = status
        self._left = length

    def parts(self, reply: Message) -> tuple[Buffer, ...]:
        self._left -= reply_bytes.size(reply.parts)
        if self._left < 0 or reply.status != self._status:
            raise invalid_output(f"a sized reply broke off, or goes on: {bytes(reply.body)[:200]!r}")
        return reply.parts

    def end(self) -> tuple[Buffer, ...]:
        if self._left:
            raise invalid_output(f"a sized reply has {self._left} bytes less than its head says")
        return ()


Body = UntilClose | Chunked | Sized
