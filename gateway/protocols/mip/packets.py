"""MIP packets: an 8-byte header, then the payload. Integers are big-endian.

version u8 | kind u8 | subtype u8 | reserved u8 | remaining size u32
"""

from collections.abc import Iterable, Iterator
from struct import Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.messages import Buffer, Message
from gateway.core.protocol import Framing
from gateway.protocols.mip.schema import MAX_PAYLOAD, VERSION, CallsAtOnce, PacketKind, Subtype

HEADER = Struct("!4BL")

_JOIN_BELOW = 64 * 2**10
"""Maximum size of joined pieces, in bytes. Up to this size, copying small pieces costs less than separate writes."""


def remaining_size(header: Buffer) -> int:
    """Return the number of bytes after `header`.

    Raises:
        DecodeError: the version is unknown.
    """
    version, _, _, _, size = HEADER.unpack(header)
    if version != VERSION:
        raise DecodeError(f"MIP version {version}, expected {VERSION}")
    assert isinstance(size, int)
    return size


FRAMING = Framing(HEADER.size, remaining_size, magic=bytes((VERSION,)))


def encode_packet(
    kind: int, subtype: int, payload: Iterable[Buffer] = (), reserved: int = CallsAtOnce.UNSAID
) -> Message:  # fmt: skip
    """Return a packet with this payload, which is given in pieces.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the payload is 4 GiB or larger.
    """
    parts = tuple(_join_small(payload))
    size = sum(map(len, parts))
    if size > MAX_PAYLOAD:
        raise refusal(Reason.TOO_LARGE, f"the payload has {size} bytes, but a MIP packet holds at most {MAX_PAYLOAD}")
    return Message(parts=(HEADER.pack(VERSION, kind, subtype, reserved, size), *parts))


def question_of_calls() -> Message:
    """Return a ping that queries whether the server accepts concurrent calls."""
    return encode_packet(PacketKind.PING, Subtype.REQUEST, reserved=CallsAtOnce.ASKED)


def reserved_byte(request: Message) -> CallsAtOnce:
    """Return the reserved byte of the response to `request`, or of an error response."""
    asks = bool(request.parts) and request.parts[0] == question_of_calls().parts[0]
    return CallsAtOnce.MANY if asks else CallsAtOnce.UNSAID


def takes_many(reply: Message) -> bool:
    """Return whether the response to `question_of_calls` says that the server accepts concurrent calls."""
    *_, reserved, _ = HEADER.unpack(reply.parts[0])
    return bool(reserved == CallsAtOnce.MANY)


def _join_small(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    small: list[Buffer] = []
    size = 0
    for piece in pieces:
        if len(piece) < _JOIN_BELOW:
            small.append(piece)
            size += len(piece)
        if small and (size >= _JOIN_BELOW or len(piece) >= _JOIN_BELOW):
            yield b"".join(small)
            small, size = [], 0
        if len(piece) >= _JOIN_BELOW:
            yield piece
    if small:
        yield b"".join(small)
