"""Replies as bytes: status line, headers, and the buffers to write."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from gateway.core.types import Buffer, Message

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}
_STATUS_LINES = {number: b"HTTP/1.1 %d %b\r\n" % (number, phrase.encode()) for number, phrase in _PHRASES.items()}

BODILESS = (204, 304)
"""Replies with these statuses have no body and no Content-Length (RFC 9110 sections 8.6 and 15)."""

_LINE = b"%b: %b\r\n".__mod__
_CLOSE = b"Connection: close\r\n"
_KEEP = {"1.1": b"", "1.0": b"Connection: keep-alive\r\n"}

# Up to this many bytes, joining costs less than writing one more buffer.
_JOINED = 64 * 2**10


def body_size(parts: Iterable[Buffer]) -> int:
    """The bytes of a body."""
    total = 0
    for part in parts:
        total += len(part) if type(part) is bytes else memoryview(part).nbytes
    return total


def content_length(size: int) -> bytes:
    """The Content-Length line of a body of `size` bytes."""
    return b"Content-Length: %d\r\n" % size


def connection_line(keep_alive: bool, version: str) -> bytes:
    """The Connection line; empty where `version` keeps connections by default, as HTTP/1.1 does."""
    return _KEEP[version] if keep_alive else _CLOSE


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines. No value holds a line break."""
    return b"".join(map(_LINE, headers))


def head(reply: Message, length_line: bytes, connection_line: bytes) -> bytes:
    """The status line and headers of `reply`. `length_line` is its Content-Length or Transfer-Encoding.

    Raises:
        ValueError: a header holds a line break, and could become two headers.
    """
    headers = _header_block(tuple(reply.headers.raw))
    status = _STATUS_LINES.get(reply.status) or b"HTTP/1.1 %d \r\n" % reply.status
    if reply.status in BODILESS:
        return b"%b%b%b\r\n" % (status, headers, connection_line)
    return b"%b%b%b%b\r\n" % (status, headers, length_line, connection_line)


# Codecs write few different headers; a hit costs a quarter of writing them.
@lru_cache(256)
def _header_block(raw: tuple[tuple[bytes, bytes], ...]) -> bytes:
    block = b"".join([b"%b: %b\r\n" % header for header in raw])
    if block.count(b"\n") != len(raw) or block.count(b"\r") != len(raw):
        raise ValueError(f"a reply header holds a line break: {block!r}")
    return block


def joined(parts: tuple[Buffer, ...], size: int) -> tuple[Buffer, ...]:
    """The buffers to write: a small reply as one, a large one as its `parts`, which are not copied."""
    return parts if size > _JOINED else (b"".join(parts),)
