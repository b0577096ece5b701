"""Functions that convert replies to bytes: the status line, the headers, and the buffers to write."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus

from gateway.core.messages import Buffer, Message

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}
_STATUS_LINES = {number: b"HTTP/1.1 %d %b\r\n" % (number, phrase.encode()) for number, phrase in _PHRASES.items()}

BODILESS = (204, 304)
"""The statuses whose replies have no body and no Content-Length (RFC 9110, sections 8.6 and 15)."""

_LINE = b"%b: %b\r\n".__mod__
CLOSE = b"Connection: close\r\n"
"""The Connection line for the last reply on a connection."""

JOINED = 64 * 2**10
"""Maximum size, in bytes, of a reply whose buffers are joined. Up to this size, joining costs less than writing another
buffer."""


def body_size(parts: Sequence[Buffer]) -> int:
    """Return the size of a body, in bytes."""
    if len(parts) == 1 and type(parts[0]) is bytes:  # the most common case
        return len(parts[0])
    total = 0
    for part in parts:
        total += len(part) if type(part) is bytes else memoryview(part).nbytes
    return total


def content_length(size: int) -> bytes:
    """Return the Content-Length line for a body of `size` bytes."""
    return b"Content-Length: %d\r\n" % size


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the header lines. The values must not contain line breaks."""
    return b"".join(map(_LINE, headers))


def head(reply: Message, length_line: bytes, connection_line: bytes) -> bytes:
    """Return the status line and the headers of `reply`. `length_line` is the Content-Length or Transfer-Encoding line.

    Raises:
        ValueError: a header contains a line break, which could turn it into two headers.
    """
    begin = _begin(reply.status, tuple(reply.headers.raw))
    return b"%b%b%b\r\n" % (begin, b"" if reply.status in BODILESS else length_line, connection_line)


def whole(reply: Message, connection_line: bytes, to_head: bool) -> tuple[tuple[Buffer, ...], int]:
    """Return the buffers to write for a reply that is not streamed, and the size of its body in bytes.

    The size is 0 for a reply to a HEAD request.

    Raises:
        ValueError: same as `head`.
    """
    parts, status = reply.parts, reply.status
    if len(parts) == 1 and type(body := parts[0]) is bytes and not to_head and status not in BODILESS:
        size = len(body)  # the shortest path, for the most common replies
        if size <= JOINED:
            begin = _begin(status, tuple(reply.headers.raw))
            return (b"%bContent-Length: %d\r\n%b\r\n%b" % (begin, size, connection_line, body),), size
    size = body_size(parts)
    start = head(reply, content_length(size), connection_line)
    if to_head:
        return (start,), 0
    return (b"".join((start, *parts)),) if size <= JOINED else (start, *parts), size


# Codecs write few different headers, and a cache hit takes a quarter of the time of writing them.
@lru_cache(256)
def _begin(status: int, raw: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the status line and the reply's own headers."""
    block = b"".join([b"%b: %b\r\n" % header for header in raw])
    if block.count(b"\n") != len(raw) or block.count(b"\r") != len(raw):
        raise ValueError(f"a reply header holds a line break: {block!r}")
    return (_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status) + block


def joined(parts: tuple[Buffer, ...], size: int) -> tuple[Buffer, ...]:
    """Return the buffers to write. For a small reply, this is a single buffer. For a large reply, the `parts` are
    returned without copying."""
    return parts if size > JOINED else (b"".join(parts),)
