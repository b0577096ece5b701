"""Compressed messages. Backends are offered nothing but identity, but a grpcio server with a `compression` of its own
does not mind what its client takes."""

import asyncio
import zlib

from gateway.core.errors import DecodeError
from gateway.core.protocol import Limits
from gateway.core.types import Buffer
from gateway.transports.grpc import failures
from gateway.transports.memory import PROCESS

ENCODINGS = {b"gzip": 31, b"deflate": 15}
"""What is understood, and the `wbits` of zlib for each."""
_IN_PLACE = 2**18
"""Bytes of a message or of a reply that are inflated without a thread."""


class Compressed:
    """A message as it came."""

    __slots__ = ("data",)

    def __init__(self, data: Buffer) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)


async def inflate(message: Compressed, encoding: bytes, limits: Limits) -> Buffer:
    """The reply that `message` in `encoding` is.

    Raises:
        TransportError: INTERNAL, not in that encoding, one that is not known, or more than the limit.
    """
    if encoding not in ENCODINGS:
        told = encoding[:100].decode("latin-1")
        raise failures.malformed(f"reply is compressed with grpc-encoding {told!r}, identity was offered")
    try:
        inflated = await inflated_within(limits.message, message, encoding)
    except DecodeError as error:
        raise failures.malformed(f"reply is {error}") from error
    if inflated is None:
        raise failures.too_large(f"more than {limits.message}", limits)
    return inflated


async def inflated_within(limit: int, message: Compressed, encoding: bytes) -> Buffer | None:
    """The message in one of ENCODINGS, inflated; None if that has more than `limit` bytes. A large one is inflated in a
    thread.

    Raises:
        DecodeError: it is not in that encoding.
    """
    bits = ENCODINGS[encoding]
    try:
        if len(message) <= _IN_PLACE:
            inflater = zlib.decompressobj(bits)
            data = inflater.decompress(message.data, _IN_PLACE)
            if inflater.eof:
                return _checked(data, inflater.unused_data, limit)
        inflated = await asyncio.to_thread(_inflate, message.data, bits, limit)
        return None if inflated is None else PROCESS.hold(inflated)
    except zlib.error as error:
        raise DecodeError(f"not {encoding.decode()}: {error}") from error


def _inflate(data: Buffer, bits: int, limit: int) -> bytes | None:
    inflater = zlib.decompressobj(bits)
    inflated = inflater.decompress(data, limit + 1)
    if not inflater.eof and len(inflated) <= limit:
        raise zlib.error("incomplete data")
    return _checked(inflated, inflater.unused_data, limit)


def _checked(inflated: bytes, rest: bytes, limit: int) -> bytes | None:
    if len(inflated) > limit:
        return None
    if rest:
        raise zlib.error(f"{len(rest)} bytes behind its end")
    return inflated
