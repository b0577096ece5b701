"""Receivers for request bodies, either of a known size or chunked (RFC 9112, section 7.1).

httptools could also read bodies, but it makes an additional copy, and does not report where a body ends and the next
pipelined request begins.
"""

import re

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.transports.memory import MIN_COUNTED, PROCESS_MEMORY, ArrivingBody, Memory

_EOL = b"\r\n"

# Chunk extensions are ignored, but must be text.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class SizedBody:
    """Receives one body of `size` bytes, and counts it in `memory`. When `complete` is True, `body` contains the entire
    body.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED (overloaded) if the body exceeds the limit of `memory`.
    """

    __slots__ = ("_arriving", "_memory", "_size", "body", "complete")

    def __init__(self, size: int, memory: Memory = PROCESS_MEMORY) -> None:
        if size >= MIN_COUNTED:
            memory.check(size)
        self._memory = memory
        self.body: Buffer = b""
        self.complete = False
        self._size = size
        self._arriving: ArrivingBody | None = None

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of the body. The caller receives bytes into it, and reports them with `filled`. The
        value is None for small bodies, and until the first bytes of a large body have arrived."""
        if self._arriving is None or self._size < _LARGE:
            return None
        self._arriving.reserve()
        return self._arriving.unfilled

    def filled(self, count: int) -> None:
        """Handle `count` bytes that were received into `room`. Raises the same error as the class."""
        assert self._arriving is not None
        self._arriving.filled(count)
        if not self._arriving.missing:
            self.complete = True
            self.body = self._arriving.body

    def feed(self, data: bytes, at: int) -> int:
        """Continue to read at `at`. Return the position in `data` after the last byte of this body.

        Raises:
            GatewayError: same as the class.
        """
        arriving = self._arriving
        if arriving is None:
            end = at + self._size
            if end <= len(data):
                self.complete = True
                body = data[at:end]
                self.body = self._memory.track(body) if self._size >= MIN_COUNTED else body
                return end
            self._arriving = arriving = ArrivingBody(self._size, self._memory)
        end = min(len(data), at + arriving.missing)
        arriving.append(memoryview(data)[at:end])
        if not arriving.missing:
            self.complete = True
            self.body = arriving.body
        return end


_LARGE = 64 * 2**10
"""The minimum size, in bytes, of a body to receive directly into its buffer."""

LINES_PER_FEED = 64
"""The maximum number of lines that one `feed` reads before other connections have their turn. The limit counts lines
rather than bytes, because a chunk of one byte takes as long as a chunk of thousands of bytes."""


_SIZE_LINE, _END_LINE, _TRAILER_LINE = range(3)
"""The kinds of lines in a chunked body: the size of a chunk, the empty line after the chunk's bytes, and a trailer or
the final empty line."""


class ChunkedBody:
    """Receives one body of at most `limit` bytes, and counts it in `memory`.

    When `complete` is True, `body` contains the entire body. Trailers are dropped. `line_limit` is the maximum size, in
    bytes, of each of the following: a size line, all chunk extensions together, and all trailers together."""

    __slots__ = (
        "_arriving",
        "_chunk_left",
        "_expected",
        "_extensions",
        "_limit",
        "_line",
        "_line_limit",
        "_trailers",
        "complete",
    )

    def __init__(self, limit: int, line_limit: int, memory: Memory = PROCESS_MEMORY) -> None:
        self.complete = False
        self._arriving = ArrivingBody(limit, memory)
        self._limit = limit
        self._line_limit = line_limit
        self._line = b""
        self._chunk_left = 0
        self._extensions = 0
        self._trailers = 0
        self._expected = _SIZE_LINE

    @property
    def body(self) -> Buffer:
        """The bytes that have arrived."""
        return self._arriving.body

    def feed(self, data: bytes, at: int) -> int:
        """Continue to read at `at`, up to LINES_PER_FEED lines. Return the position in `data` after the last byte read.

        Raises:
            DecodeError: the data is not a chunked body.
            GatewayError: RESOURCE_EXHAUSTED if the body exceeds a limit, or the process does not have enough memory.
        """
        begun, self._line = self._line, b""
        if begun:
            return self._feed(begun + data[at:], 0) + at - len(begun)
        return self._feed(data, at)

    def _feed(self, data: bytes, at: int) -> int:
        lines = LINES_PER_FEED
        while at < len(data) and lines and not self.complete:
            if self._chunk_left:
                piece = memoryview(data)[at : at + self._chunk_left]
                self._arriving.append(piece)
                self._chunk_left -= len(piece)
                at += len(piece)
                continue
            end = data.find(_EOL, at)
            if end < 0:
                self._keep_line(data[at:])
                return len(data)
            lines -= 1
            line = data[at:end]
            self._check_line(line, len(line))
            if self._expected == _SIZE_LINE:
                self._read_size(line)
            elif self._expected == _END_LINE:
                self._expected = _SIZE_LINE
            else:
                self._read_trailer(line)
            at = end + len(_EOL)
        return at

    def _keep_line(self, begun: bytes) -> None:
        """Store the beginning of a line until the rest arrives. Raises the errors of `feed` if the beginning is already
        invalid."""
        self._check_line(begun.removesuffix(b"\r"), len(begun) - 1)
        self._line = begun

    def _check_line(self, line: bytes, size: int) -> None:
        if line and self._expected == _END_LINE:
            raise DecodeError("a chunk is longer than its size line says")
        if b"\n" in line:
            raise DecodeError("the chunked body has a line that does not end in CRLF")
        if size + self._trailers > self._line_limit:
            text = f"a chunk's size line, or the trailers, are larger than limits.headers, {self._line_limit} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, f"{text}; send less, or raise the limit")

    def _read_size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise DecodeError(f"{line[:40]!r} is not the size of a chunk")
        self._extensions += len(line) - len(found[1])
        if self._extensions > self._line_limit:
            text = f"the extensions of chunks are larger than limits.headers, {self._line_limit} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, f"{text}; send less, or raise the limit")
        self._chunk_left = int(found[1], 16)
        self._expected = _END_LINE if self._chunk_left else _TRAILER_LINE
        if self._chunk_left > self._arriving.missing:
            text = f"the body is larger than limits.message, {self._limit} bytes"
            raise refusal(Reason.TOO_LARGE, f"{text}; send less, or raise the limit")

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.complete = True
            return
        if not _TRAILER.fullmatch(line):
            raise DecodeError("a trailer of the chunked body is not `name: value`")
        self._trailers += len(line) + len(_EOL)


def arriving_body(length: int | None, limits: Limits, memory: Memory) -> SizedBody | ChunkedBody:
    """Return the receiver for the body of a request whose head announces `length` bytes. None means a chunked body.

    Raises the same errors as SizedBody."""
    return ChunkedBody(limits.message, limits.headers, memory) if length is None else SizedBody(length, memory)
