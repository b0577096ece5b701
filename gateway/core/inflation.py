"""How far compressed content may inflate, and inflating it as far as that. Pure.

A few bytes can stand for many: what is inflated is bounded by `limits.message`, and by `limits.inflation` times its
compressed size, before anybody reads it. The two formats are zlib's and gzip's; raw deflate is refused, and so is
everything behind the end of the compressed data.
"""

import zlib
from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.protocol import Limits
from gateway.core.types import Buffer

ANY_RATIO = 2**20
"""Bytes that content may inflate to however few it is compressed to."""

WINDOWS = {"gzip": 31, "deflate": 15, "zlib": 15}
"""zlib's `wbits` of each coding: 15 is its own format with the largest window, 16 + 15 gzip's. `deflate` is HTTP's and
gRPC's name of zlib's format (RFC 9110 section 8.4.1.2)."""

# What is inflated at a time, which makes at most 1,032 times as much: zlib holds all that it makes in one go twice.
_PIECE = 16 * 2**10


def max_inflated_size(size: int, limits: Limits) -> int:
    """How many bytes `size` compressed bytes may inflate to."""
    return min(limits.message, max(ANY_RATIO, limits.inflation * size))


def limit_error(what: str, size: int, limits: Limits) -> GatewayError:
    """The error of `what` (the body, the payload) that has `size` bytes and inflates to more than it may."""
    allowed = f"limits.message, {limits.message} bytes, and limits.inflation, {limits.inflation} times its size"
    text = f"{what} of {size} compressed bytes inflates to more than {max_inflated_size(size, limits)} bytes"
    return refusal(Reason.TOO_LARGE, f"{text}, the most that is allowed: {allowed} (or 1 MiB, if that is more)")


def inflated(data: Buffer, coding: str, limits: Limits, what: str) -> Iterator[bytes]:
    """What `data`, in one of WINDOWS, inflates to, in pieces.

    Raises:
        DecodeError: it is not in that coding, is cut short, or goes on behind its end.
        GatewayError: RESOURCE_EXHAUSTED, it inflates to more than it may.
    """
    view, stream = memoryview(data), zlib.decompressobj(WINDOWS[coding])
    left = max_inflated_size(len(view), limits)
    for at in range(0, len(view), _PIECE):
        if stream.eof:
            raise DecodeError(f"bytes behind the end of {what}'s {coding} data")
        try:
            piece = stream.decompress(view[at : at + _PIECE], left + 1)
        except zlib.error as error:
            raise DecodeError(f"{what} is not {coding} data: {error}") from error
        left -= len(piece)
        if left < 0:
            raise limit_error(what, len(view), limits)
        if stream.unused_data:
            raise DecodeError(f"bytes behind the end of {what}'s {coding} data")
        yield piece
    if not stream.eof:
        raise DecodeError(f"{what} ends before its {coding} data does")
