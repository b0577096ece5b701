"""Request bodies as they arrive: sized, or chunked (RFC 9112 section 7.1) and counted.

httptools reads them too, but does not tell where a body ends and the next pipelined request begins, and copies once
more.
"""

import re

import numpy as np

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.types import Buffer

_EOL = b"\r\n"

# Extensions are to be ignored by those who do not know them; their bytes still must be text.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


# From here memory comes unwritten from the kernel, page by page as bytes arrive; below, zeroing it costs nothing.
_LAZY = 64 * 2**10


class SizedBody:
    """Receives one body of `size` bytes, into one allocation made when the first byte is there."""

    __slots__ = ("_missing", "body", "complete")

    def __init__(self, size: int) -> None:
        self.body: Buffer = b""
        self.complete = False
        self._missing = size

    def feed(self, data: bytes, at: int) -> int:
        """Read on from `at`; the position in `data` up to which bytes belong to this body."""
        end = min(len(data), at + self._missing)
        if not self.body:
            if end - at == self._missing:
                self.complete = True
                self.body = data[at:end]
                return end
            self.body = _allocate(self._missing)
        self._receive(self.body, memoryview(data)[at:end])
        return end

    def _receive(self, body: Buffer, piece: memoryview) -> None:
        assert isinstance(body, memoryview)
        start = len(body) - self._missing
        body[start : start + len(piece)] = piece
        self._missing -= len(piece)
        self.complete = not self._missing


def _allocate(size: int) -> memoryview:
    return np.empty(size, np.uint8).data if size > _LAZY else memoryview(bytearray(size))


class ChunkedBody:
    """Receives one body of at most `limit` bytes. A size line, and all trailers together, which are dropped, may have
    `line_limit` bytes."""

    __slots__ = ("_left", "_limit", "_line", "_line_limit", "_read", "_trailers", "body", "complete")

    def __init__(self, limit: int, line_limit: int) -> None:
        self.body = bytearray()
        self.complete = False
        self._limit = limit
        self._line_limit = line_limit
        self._line = b""
        self._left = 0
        self._trailers = 0
        self._read = ChunkedBody._read_size

    def feed(self, data: bytes, at: int) -> int:
        """Read on from `at`; the position in `data` up to which bytes belong to this body.

        Raises:
            DecodeError: not chunks.
            GatewayError: RESOURCE_EXHAUSTED, larger than a limit.
        """
        before, self._line = self._line, b""
        if before:
            return self._feed(before + data[at:], 0) + at - len(before)
        return self._feed(data, at)

    def _feed(self, data: bytes, at: int) -> int:
        while at < len(data) and not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                self.body += piece
                self._left -= len(piece)
                at += len(piece)
                continue
            end = data.find(_EOL, at)
            if end < 0:
                self._hold(data[at:])
                return len(data)
            line = data[at:end]
            self._check_line(line, len(line))
            self._read(self, line)
            at = end + len(_EOL)
        return at

    def _hold(self, begun: bytes) -> None:
        """Keep the beginning of a line, unless it already cannot become one."""
        self._check_line(begun.removesuffix(b"\r"), len(begun) - 1)
        self._line = begun

    def _check_line(self, line: bytes, size: int) -> None:
        if line and self._read is ChunkedBody._read_end:
            raise DecodeError("a chunk is longer than its size")
        if b"\n" in line:
            raise DecodeError("the chunked body has a line that does not end in CRLF")
        if size + self._trailers > self._line_limit:
            text = f"a chunk's size line, or the trailers, are larger than limits.headers, {self._line_limit} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, text)

    def _read_size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise DecodeError(f"{line[:40]!r} is not the size of a chunk")
        self._left = int(found[1], 16)
        self._read = ChunkedBody._read_end if self._left else ChunkedBody._read_trailer
        if len(self.body) + self._left > self._limit:
            raise refusal(Reason.TOO_LARGE, f"the body is larger than limits.message, {self._limit} bytes")

    def _read_end(self, line: bytes) -> None:
        self._read = ChunkedBody._read_size

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.complete = True
            return
        if not _TRAILER.fullmatch(line):
            raise DecodeError("a trailer of the chunked body is not `name: value`")
        self._trailers += len(line) + len(_EOL)
