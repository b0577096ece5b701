"""The HTTP content codings that the gateway supports, and compression of bodies.

The gateway refuses a body that is not in its declared coding. (Triton treats a body that it cannot decompress as empty,
and responds with 200.)
"""

import zlib
from collections.abc import Iterable

from gateway.core.inflation import WBITS
from gateway.core.types import Buffer

CODINGS: dict[str, str] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""Canonical names of the supported codings, by the names that peers use (lower case)."""

MIN_DEFLATED = 1024
"""Minimum size of replies to compress, in bytes. Compression of smaller replies would save no packet."""

# Replies consist mostly of numbers. Higher levels make them 3 % smaller and take three times as long.
_LEVEL = 1


def deflate(parts: Iterable[Buffer], coding: str) -> bytes:
    """Return `parts`, joined and compressed; `coding` is a key of CODINGS."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, WBITS[CODINGS[coding]])
    return b"".join([*map(stream.compress, parts), stream.flush()])
