"""Content codings: bodies are inflated within a limit, and deflated for those who ask for exactly one coding.

`deflate` is zlib's format, as RFC 9110 section 8.4.1.2 says. Raw deflate is refused, and so is everything behind the
end of the compressed data: Triton takes a body that it cannot inflate for an empty one and answers 200.
"""

import asyncio
import zlib
from collections.abc import Iterable

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.types import Buffer
from gateway.transports.memory import PROCESS, Arriving

CODINGS: dict[str, str] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""The codings that are understood, by the names they go by (lower case)."""

IN_THREAD = 256 * 2**10
"""Bodies above this many bytes, on their larger side, are worked on in a thread: 1 ms of the loop."""

MIN_DEFLATED = 1024
"""Smaller replies are sent as they are: a coding saves no packet."""

# zlib's `wbits`: 15 is its own format with the largest window, 16 + 15 gzip's.
_WINDOW = {"gzip": 31, "deflate": 15}

# Input goes in by small pieces because zlib copies what is left of a piece each time the output is full.
_PIECE = 16 * 2**10

# Replies are mostly numbers, which higher levels make 3 % smaller in three times the time.
_LEVEL = 1


class Inflater:
    """Inflates one body as it arrives.

    `coding` is a key of CODINGS; `limit` bounds the inflated size in bytes (`limits.message`).
    """

    def __init__(self, coding: str, limit: int) -> None:
        self._coding = CODINGS[coding]
        self._limit = limit
        self._stream = zlib.decompressobj(_WINDOW[self._coding])
        self._inflated = Arriving(limit + 1, PROCESS)

    def feed(self, data: Buffer) -> None:
        """Inflate the next bytes of the body.

        Raises:
            DecodeError: not the coding, or bytes behind its end.
            GatewayError: RESOURCE_EXHAUSTED, it inflates beyond the limit, or the process has no memory left for it.
        """
        view = memoryview(data)
        for at in range(0, len(view), _PIECE):
            self._feed_piece(view[at : at + _PIECE])

    def finish(self) -> memoryview:
        """The inflated body.

        Raises:
            DecodeError: the compressed data is cut short.
        """
        if not self._stream.eof:
            raise DecodeError(f"the body ends before its {self._coding} data does")
        return self._inflated.body

    def _feed_piece(self, piece: Buffer) -> None:
        while piece:
            if self._stream.eof:
                raise DecodeError(f"bytes behind the end of the body's {self._coding} data")
            self._inflated.append(self._inflate(piece))
            if self._inflated.filled_bytes > self._limit:
                raise refusal(Reason.TOO_LARGE, f"the body inflates beyond limits.message, {self._limit} bytes")
            piece = self._stream.unconsumed_tail or self._stream.unused_data

    def _inflate(self, piece: Buffer) -> bytes:
        try:
            return self._stream.decompress(piece, self._inflated.missing)
        except zlib.error as error:
            raise DecodeError(f"the body is not {self._coding} data: {error}") from error


def inflate(body: Buffer, coding: str, limit: int) -> memoryview:
    """A whole body inflated; raises as Inflater does."""
    inflater = Inflater(coding, limit)
    inflater.feed(body)
    return inflater.finish()


def inflate_small(body: Buffer, coding: str, limit: int) -> memoryview | None:
    """A whole body inflated; None if that takes longer than the loop can wait, and is to be done in a thread."""
    if len(body) > IN_THREAD:
        return None
    try:
        return inflate(body, coding, min(limit, IN_THREAD))
    except GatewayError:
        if limit <= IN_THREAD:
            raise
        return None


async def inflate_in_thread(body: Buffer, coding: str, limit: int) -> memoryview:
    """A whole body inflated, away from the loop; raises as Inflater does."""
    return await asyncio.to_thread(inflate, body, coding, limit)


def deflate(parts: Iterable[Buffer], coding: str) -> bytes:
    """`parts`, joined, in the coding."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[CODINGS[coding]])
    return b"".join([*map(stream.compress, parts), stream.flush()])
