"""The content codings of HTTP that the gateway knows, and compressing bodies.

A body that is not in its coding is refused. (Triton takes a body that it cannot inflate for an empty one and answers
200.)
"""

import zlib
from collections.abc import Iterable

from gateway.core.inflation import WINDOWS
from gateway.core.types import Buffer

CODINGS: dict[str, str] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""Canonical names of the known codings, by the names that peers use (lower case)."""

MIN_DEFLATED = 1024
"""Replies with fewer bytes are sent uncompressed: compression would save no packet."""

# Replies are mostly numbers; higher levels make them 3 % smaller and take three times as long.
_LEVEL = 1


def deflate(parts: Iterable[Buffer], coding: str) -> bytes:
    """`parts`, joined and compressed; `coding` is a key of CODINGS."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, WINDOWS[CODINGS[coding]])
    return b"".join([*map(stream.compress, parts), stream.flush()])
