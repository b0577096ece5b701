"""Functions that decompress content within size limits, for message bodies and for payloads inside messages.

A few compressed bytes can expand to gigabytes. Therefore, `limits.message` limits the decompressed size. A second limit
is `limits.inflation` times the compressed size, if `limits.inflation` is below the ratio that zlib can reach.
Decompression stops at these limits, and the gateway rejects the content. The supported formats are zlib and gzip. Raw
deflate, and bytes after the end of the compressed data, are errors.
"""

import zlib
from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits

ANY_RATIO = 2**20
"""Size up to which content can inflate at any ratio, in bytes, if `limits.message` allows this size."""

WBITS = {"gzip": 31, "deflate": 15, "zlib": 15}
"""zlib's argument `wbits` for each coding: 15 means the zlib format with the largest window, and 31 (16 + 15) means
gzip. HTTP and gRPC call the zlib format `deflate` (RFC 9110 section 8.4.1.2)."""

_PIECE = 16 * 2**10
"""Number of compressed bytes to pass to zlib in one step. They inflate to at most 1,032 times this number."""
_INFLATED_PIECE = 2**20
"""Number of inflated bytes that zlib returns in one step. During the call, zlib holds two copies of them."""


def max_inflated_size(size: int, limits: Limits) -> int:
    """Return the maximum number of bytes to which the gateway inflates `size` compressed bytes."""
    return min(limits.message, max(ANY_RATIO, limits.inflation * size))


def limit_error(what: str, size: int, limits: Limits) -> GatewayError:
    """Return the error for content that inflates to more than the limit.

    `what` is the name of the content (the body, the payload), and `size` is its compressed size in bytes."""
    allowed = f"limits.message, {limits.message} bytes, and limits.inflation, {limits.inflation} times its size"
    text = f"{what} of {size} compressed bytes inflates to more than {max_inflated_size(size, limits)} bytes"
    text = f"{text}, the most that is allowed: {allowed} (or 1 MiB, if that is more)"
    return refusal(Reason.TOO_LARGE, f"{text}; send less, or raise a limit")


def inflated(data: Buffer, coding: str, limits: Limits, what: str) -> Iterator[bytes]:
    """Yield the inflated content of `data` in pieces. `coding` is a key of WBITS, and `what` is the name of the content
    in error messages.

    Raises:
        DecodeError: the content does not have this coding, is truncated, or is followed by other bytes.
        GatewayError: RESOURCE_EXHAUSTED if the content inflates to more than the limits allow.
    """
    view, stream = memoryview(data), zlib.decompressobj(WBITS[coding])
    left = max_inflated_size(len(view), limits)
    for at in range(0, len(view), _PIECE):
        if stream.eof:
            raise DecodeError(f"bytes behind the end of {what}'s {coding} data")
        waiting: Buffer = view[at : at + _PIECE]
        is_full = True
        while is_full and not stream.eof:
            most = min(left + 1, _INFLATED_PIECE)
            try:
                piece = stream.decompress(waiting, most)
            except zlib.error as error:
                raise DecodeError(f"{what} is not {coding} data: {error}") from error
            left -= len(piece)
            if left < 0:
                raise limit_error(what, len(view), limits)
            waiting, is_full = stream.unconsumed_tail, len(piece) == most
            yield piece
        if stream.unused_data:
            raise DecodeError(f"bytes behind the end of {what}'s {coding} data")
    if not stream.eof:
        raise DecodeError(f"{what} ends before its {coding} data does")
