"""Replies as bytes."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from gateway.core.frozen import replace
from gateway.core.types import Buffer, Headers, Message
from gateway.transports.http.compression import deflate

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}
_STATUS_LINES = {number: b"HTTP/1.1 %d %b\r\n" % (number, phrase.encode()) for number, phrase in _PHRASES.items()}

BODILESS = (204, 304)
"""RFC 9110 sections 8.6 and 15: these have no body, and no Content-Length."""

_CLOSE = b"Connection: close\r\n"
_KEEP = {"1.1": b"", "1.0": b"Connection: keep-alive\r\n"}

# Below this, joining costs less than handing over one more buffer.
_JOINED = 64 * 2**10


def size(parts: Iterable[Buffer]) -> int:
    """The bytes of a body."""
    total = 0
    for part in parts:
        total += len(part) if type(part) is bytes else memoryview(part).nbytes
    return total


def content_length(length: int) -> bytes:
    """The line that delimits a body of `length` bytes."""
    return b"Content-Length: %d\r\n" % length


def head(reply: Message, delimiter: bytes, connection: bytes) -> bytes:
    """The status line and headers of `reply`, with a line that tells where its body ends and one of `connection`.

    Raises:
        ValueError: a header holds a line break, and so could become two.
    """
    headers = _header_block(tuple(reply.headers.raw))
    status = _STATUS_LINES.get(reply.status) or b"HTTP/1.1 %d \r\n" % reply.status
    if reply.status in BODILESS:
        return b"%b%b%b\r\n" % (status, headers, connection)
    return b"%b%b%b%b\r\n" % (status, headers, delimiter, connection)


# Codecs write few different headers; a hit costs a quarter of writing them.
@lru_cache(256)
def _header_block(raw: tuple[tuple[bytes, bytes], ...]) -> bytes:
    block = b"".join([b"%b: %b\r\n" % header for header in raw])
    if block.count(b"\n") != len(raw) or block.count(b"\r") != len(raw):
        raise ValueError(f"a reply header holds a line break: {block!r}")
    return block


def connection(keep_alive: bool, version: str) -> bytes:
    """What becomes of the connection: HTTP/1.1 keeps it unless told otherwise, HTTP/1.0 closes it."""
    return _KEEP[version] if keep_alive else _CLOSE


def joined(parts: tuple[Buffer, ...], length: int) -> tuple[Buffer, ...]:
    """What to write, in order: much as it is, little as one buffer."""
    return parts if length > _JOINED else (b"".join(parts),)


def deflated(reply: Message, coding: str) -> Message:
    """`reply` with its body in `coding`."""
    header = (b"Content-Encoding", coding.encode())
    return replace(reply, headers=Headers((*reply.headers.raw, header)), parts=(deflate(reply.parts, coding),))
