"""The HTTP content codings that the gateway supports, and the compression of bodies.

The gateway rejects a body that does not have its declared coding. By contrast, Triton treats a body that it cannot
decompress as empty, and responds with 200.
"""

import zlib
from collections.abc import Iterable

from gateway.core.inflation import WBITS
from gateway.core.messages import Buffer

CODINGS: dict[str, str] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""The canonical names of the supported codings, by the lowercase names that peers use."""

MIN_DEFLATED = 1024
"""Minimum size of a reply to compress, in bytes. Compressing a smaller reply would not save a packet."""

# Replies consist mostly of numbers, which higher levels make 3 % smaller in three times the time.
_LEVEL = 1


def deflate(parts: Iterable[Buffer], coding: str) -> bytes:
    """Join and compress `parts`. `coding` is a key of CODINGS."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, WBITS[CODINGS[coding]])
    return b"".join([*map(stream.compress, parts), stream.flush()])
