"""Packets: version u8, kind u8, subtype u8, reserved u8, remaining u32, and that many bytes; all big-endian."""

from collections.abc import Iterable, Iterator
from struct import Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.protocol import Framing
from gateway.core.types import Buffer, Message
from gateway.protocols.mip.schema import MOST_BYTES, VERSION

HEADER = Struct("!4BL")

_JOINED = 64 * 2**10
"""Pieces are joined up to about this size: a copy costs less than a write of its own."""


def remaining(header: Buffer) -> int:
    """How many bytes follow `header`.

    Raises:
        DecodeError: another version.
    """
    version, _, _, _, size = HEADER.unpack(header)
    if version != VERSION:
        raise DecodeError(f"MIP version {version}, expected {VERSION}")
    assert isinstance(size, int)
    return size


FRAMING = Framing(HEADER.size, remaining)


def packet(kind: int, subtype: int, pieces: Iterable[Buffer] = ()) -> Message:
    """The packet whose payload is `pieces`.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED, they are 4 GiB or more.
    """
    parts = tuple(_joined(pieces))
    size = sum(map(len, parts))
    if size > MOST_BYTES:
        raise refusal(Reason.TOO_LARGE, f"{size} bytes are more than a MIP packet holds, {MOST_BYTES}")
    return Message(parts=(HEADER.pack(VERSION, kind, subtype, 0, size), *parts))


def _joined(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """`pieces`, the small ones joined."""
    small: list[Buffer] = []
    size = 0
    for piece in pieces:
        if len(piece) < _JOINED:
            small.append(piece)
            size += len(piece)
        if small and (size >= _JOINED or len(piece) >= _JOINED):
            yield b"".join(small)
            small, size = [], 0
        if len(piece) >= _JOINED:
            yield piece
    if small:
        yield b"".join(small)
