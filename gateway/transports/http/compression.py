"""Content codings: which are understood, and bodies deflated for those who ask for exactly one.

A body that is not in its coding is refused: Triton takes one that it cannot inflate for an empty one and answers 200.
"""

import zlib
from collections.abc import Iterable

from gateway.core.inflation import WINDOWS
from gateway.core.types import Buffer

CODINGS: dict[str, str] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""The codings that are understood, by the names they go by (lower case)."""

MIN_DEFLATED = 1024
"""Smaller replies are sent as they are: a coding saves no packet."""

# Replies are mostly numbers, which higher levels make 3 % smaller in three times the time.
_LEVEL = 1


def deflate(parts: Iterable[Buffer], coding: str) -> bytes:
    """`parts`, joined, in the coding."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, WINDOWS[CODINGS[coding]])
    return b"".join([*map(stream.compress, parts), stream.flush()])
