"""Compressed messages. Nothing but identity is offered, but a grpcio server with a `compression` of its own does not
mind what its client takes."""

import asyncio
import zlib

from gateway.core.protocol import Limits
from gateway.core.types import Buffer
from gateway.transports.grpc import failures

_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_IN_PLACE = 2**18
"""Bytes of a message or of a reply that are inflated without a thread."""


class Compressed:
    """A message as it came."""

    __slots__ = ("data",)

    def __init__(self, data: Buffer) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)


async def inflate(message: Compressed, encoding: bytes, limits: Limits) -> bytes:
    """The message that `message` in `encoding` is.

    Raises:
        TransportError: INTERNAL, not in that encoding, one that is not known, or more than the limit.
    """
    bits = _WINDOW_BITS.get(encoding)
    if bits is None:
        told = encoding[:100].decode("latin-1")
        raise failures.malformed(f"reply is compressed with grpc-encoding {told!r}, identity was offered")
    try:
        if len(message) <= _IN_PLACE:
            inflater = zlib.decompressobj(bits)
            data = inflater.decompress(message.data, _IN_PLACE)
            if inflater.eof:
                return _checked(data, inflater.unused_data, limits)
        return await asyncio.to_thread(_inflate, message.data, bits, limits)
    except zlib.error as error:
        raise failures.malformed(f"reply is not {encoding.decode()}: {error}") from error


def _inflate(data: Buffer, bits: int, limits: Limits) -> bytes:
    inflater = zlib.decompressobj(bits)
    inflated = inflater.decompress(data, limits.message + 1)
    if not inflater.eof and len(inflated) <= limits.message:
        raise zlib.error("incomplete data")
    return _checked(inflated, inflater.unused_data, limits)


def _checked(inflated: bytes, rest: bytes, limits: Limits) -> bytes:
    if len(inflated) > limits.message:
        raise failures.too_large(f"more than {limits.message}", limits)
    if rest:
        raise zlib.error(f"{len(rest)} bytes behind its end")
    return inflated
