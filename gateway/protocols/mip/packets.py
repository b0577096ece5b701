"""Reads and writes MIP packets: an 8-byte header, then the payload. Integers are big-endian.

    version u8 | kind u8 | subtype u8 | reserved u8 | remaining size u32

The payload of an inference consists of the counts `n-input u8 | n-output u8 | batch size u16`, and then the TLVs,
example by example. A TLV is `type u32 | size u32 | data`.

                tensor 0    tensor 1
    example 0     TLV         TLV           on the wire: row by row
    example 1     TLV         TLV           in this code: a column is one tensor, and all its TLVs have one type
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer, Message
from gateway.core.offload import COPIED, LARGE
from gateway.core.protocol import Framing
from gateway.protocols.mip.schema import (
    MAX_BATCH,
    MAX_PAYLOAD,
    TLV_TYPES,
    VERSION,
    CallsAtOnce,
    PacketKind,
    Subtype,
    TlvType,
)

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
    """Return a packet. `payload` contains the pieces of its payload.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the payload is 4 GiB or larger.
    """
    parts = tuple(_join_small(payload))
    size = sum(map(len, parts))
    if size > MAX_PAYLOAD:
        text = f"the payload has {size} bytes, but a MIP packet holds at most {MAX_PAYLOAD}"
        raise refusal(Reason.TOO_LARGE, f"{text}; send fewer rows")
    return Message(parts=(HEADER.pack(VERSION, kind, subtype, reserved, size), *parts))


def question_of_calls() -> Message:
    """Return a ping that asks whether the server accepts concurrent calls."""
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


# --- The payload of an inference ---

COUNTS = Struct("!2BH")
_TLV_HEAD = Struct("!2L")

_COPY_UP_TO = 1024
"""Maximum size of data to copy, in bytes. Up to this size, a copy is smaller and cheaper than a view."""


@frozen
class Column:
    """One tensor, across all examples: the type of its TLVs, and the data of each example, in pieces."""

    type: int
    examples: Sequence[Sequence[Buffer]]


@frozen
class Payload:
    """The counts that a payload states, and the types and data of all its TLVs in order."""

    inputs: int
    outputs: int
    batch: int
    types: list[int]
    data: list[Buffer]

    def columns(self, count: int, role: str) -> Iterator[tuple[int, list[Buffer]]]:
        """Yield the type and the data of each of the `count` columns. `role` is `input` or `output`.

        Raises:
            DecodeError: a column has several types.
        """
        if count == 1:
            yield _common_type(self.types, f"{role} 0"), self.data
            return
        for at in range(count):
            yield _common_type(self.types[at::count], f"{role} {at}"), self.data[at::count]


def decode_payload(payload: Buffer, json_values: int) -> Payload:
    """Return the payload of an inference.

    A payload can contain at most MAX_BATCH plus `limits.json_values` TLVs. A TLV can be as small as 8 bytes on the
    wire, but takes 100 bytes of memory and some time in the gateway.

    Raises:
        DecodeError: the payload is truncated, or contains too many TLVs.
    """
    if len(payload) < COUNTS.size:
        raise DecodeError(f"an inference's payload has {len(payload)} bytes, expected at least {COUNTS.size}")
    view = memoryview(payload)
    inputs, outputs, batch = COUNTS.unpack_from(view)
    types: list[int] = []
    data: list[Buffer] = []
    at, end, head_size = COUNTS.size, len(view), _TLV_HEAD.size
    max_count = MAX_BATCH + json_values
    while at < end:
        if len(types) == max_count:
            limits = f"{MAX_BATCH} for the rows and {json_values} of limits.json_values"
            raise DecodeError(f"more than {max_count} TLVs, which is {limits}; send fewer, or raise the limit")
        if end - at < head_size:
            raise DecodeError(f"{end - at} bytes after TLV {len(types)}, too few for the type and size of another one")
        type_, size = _TLV_HEAD.unpack_from(view, at)
        at += head_size
        if size > end - at:
            raise DecodeError(f"TLV {len(types)} has {size} bytes, but its packet has only {end - at} more")
        content = view[at : at + size]
        types.append(type_)
        data.append(content if size > _COPY_UP_TO else content.tobytes())
        at += size
    return Payload(inputs, outputs, batch, types, data)


_TLV_COST = 256
"""The cost of finding a TLV, as the number of bytes that can be parsed in the same time."""


def parsed_size(message: Message) -> int:
    """Return the number of bytes of a packet that must be parsed: all bytes except .npy files, which are at most
    copied. Counting stops above LARGE."""
    header, payload = message.parts
    if header[1] != PacketKind.INFERENCE:
        return len(payload)
    parsed, at, last = 0, COUNTS.size, len(payload) - _TLV_HEAD.size
    while at <= last and parsed <= LARGE:
        type_, size = _TLV_HEAD.unpack_from(payload, at)
        at += _TLV_HEAD.size + size
        parsed += _TLV_COST + (size // COPIED if type_ == TlvType.NPY else size)
    return parsed


def count_tlvs(payload: Buffer, most: int) -> int:
    """Return the number of TLVs in an inference payload. The count stops at `most` + 1.

    Return -1 if the last TLV is truncated."""
    count, at, last, end = 0, COUNTS.size, len(payload) - _TLV_HEAD.size, len(payload)
    while at <= last and count <= most:
        at += _TLV_HEAD.size + _TLV_HEAD.unpack_from(payload, at)[1]
        count += 1
    return count if at == end or count > most else -1


def encode_payload(inputs: int, outputs: int, batch: int, columns: Sequence[Column]) -> Iterator[Buffer]:
    """Yield the payload with these counts and columns, in pieces."""
    yield COUNTS.pack(inputs, outputs, batch)
    for row in zip(*(column.examples for column in columns), strict=True):
        for column, pieces in zip(columns, row, strict=True):
            yield _TLV_HEAD.pack(column.type, sum(map(len, pieces)))
            yield from pieces


def _common_type(types: list[int], what: str) -> int:
    distinct = set(types)
    if len(distinct) > 1:
        raise DecodeError(f"{what} is {' and '.join(map(_type_name, sorted(distinct)))} in one batch")
    return distinct.pop()


def _type_name(number: int) -> str:
    return TlvType(number).name if number in TLV_TYPES else f"of type {number:#x}"
