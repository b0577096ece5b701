"""What brpc may do to a payload: compress it, and add a checksum of what it then is. Attachments stay as they are.

snappy and CRC-32C come with the extra `brpc`; gzip and zlib are Python's own.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType

from gateway.core import inflation
from gateway.core.errors import DecodeError
from gateway.core.protocol import Limits
from gateway.core.types import Message
from gateway.protobuf.wire import read_varint
from gateway.protocols.grps.brpc_frames import HEADER, MAGIC, Frame, is_whole, meta_of, read


def _optional(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


_CRAMJAM, _GOOGLE_CRC32C = _optional("cramjam"), _optional("google_crc32c")

_CRC32C = 1
_PIECE = 2**20

_PAYLOAD = "the payload"

# Of snappy's elements a copy makes the most of its bytes: 64 of 3.
_SNAPPY_RATIO = 22


def is_compressed(message: Message) -> bool:
    """Whether the payload is in a coding that `inflate` undoes. Nobody reads the payload of an error."""
    if not is_whole(message):
        return False
    try:
        meta = meta_of(message)
    except DecodeError:
        return False
    return meta.compress_type in _INFLATERS and not meta.response.error_code


def inflate(message: Message, limits: Limits) -> Message:
    """A compressed frame as it would be if it were not, without its attachment; its checksum is verified.

    Raises:
        DecodeError: the payload is not what the meta says, or needs the extra, which is not there.
        GatewayError: RESOURCE_EXHAUSTED, it inflates beyond the limits.
    """
    found = read(message)
    verify(found)
    inflated = _INFLATERS[found.meta.compress_type](found.payload, limits)
    for field in ("compress_type", "attachment_size", "checksum_type", "checksum_value", "checksum_with_attachment"):
        found.meta.ClearField(field)
    meta = found.meta.SerializePartialToString()
    inflated[:0] = meta  # in place: joined, there would be two of it
    header = HEADER.pack(MAGIC, len(inflated), len(meta))
    return Message(parts=(header, inflated), peer=message.peer, received=message.received)


def verify(frame: Frame) -> None:
    """Compare the payload, as it came, with its checksum.

    Raises:
        DecodeError: they differ, nobody knows such a checksum, or the extra is not there. Whoever makes a server add
            checksums, which none does by itself, wants to have them looked at.
    """
    meta = frame.meta
    if not meta.checksum_type:
        return
    if meta.checksum_type != _CRC32C:
        raise DecodeError(f"checksum_type {meta.checksum_type} is unknown, expected 0 (none) or 1 (crc32c)")
    covered = [frame.payload, frame.attachment] if meta.checksum_with_attachment else [frame.payload]
    found = _masked_crc32c(covered)
    if meta.checksum_value != found:
        told = f"checksum_value is {meta.checksum_value.hex() or 'empty'}, but the payload's is {found.hex()}"
        raise DecodeError(f"{told} (crc32c)")


def _masked_crc32c(buffers: list[memoryview]) -> bytes:
    """The sum as it travels: big-endian, and masked as LevelDB does it with sums that are stored beside their data."""
    library, crc = _needed(_GOOGLE_CRC32C, "checksum_type 1 (crc32c)"), 0
    for piece in _pieces(buffers):
        crc = library.extend(crc, piece)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "big")


def _pieces(buffers: list[memoryview]) -> Iterator[bytes]:
    """The library takes nothing but `bytes`: the copies are small ones."""
    for buffer in buffers:
        for at in range(0, len(buffer), _PIECE):
            yield bytes(buffer[at : at + _PIECE])


def _zlib(coding: str, payload: memoryview, limits: Limits) -> bytearray:
    # brpc's own server takes a payload that is no gzip data for an empty message
    whole = bytearray()
    for piece in inflation.inflated(payload, coding, limits, _PAYLOAD):
        whole += piece
    return whole


def _snappy(payload: memoryview, limits: Limits) -> bytearray:
    library = _needed(_CRAMJAM, "compress_type 1 (snappy)")
    size = _snappy_size(payload)
    if size > inflation.max_inflated_size(len(payload), limits):
        raise inflation.limit_error(_PAYLOAD, len(payload), limits)
    inflated = bytearray(size)
    try:
        written = library.snappy.decompress_raw_into(payload, inflated)
    except library.DecompressionError as error:
        raise DecodeError(f"the payload is not snappy data: {error}") from error
    assert written == size
    return inflated


def _snappy_size(payload: memoryview) -> int:
    """ "The stream starts with the uncompressed length"."""
    try:
        size, _ = read_varint(payload, 0)
    except DecodeError as error:
        raise DecodeError("the payload is not snappy data: it does not begin with a length") from error
    if size > _SNAPPY_RATIO * len(payload):
        raise DecodeError(f"the payload is not snappy data: {len(payload)} bytes are never {size} inflated")
    return size


def _needed(library: ModuleType | None, what: str) -> ModuleType:
    """Without its library a payload cannot be read: the peer sends what is not spoken here."""
    if library is None:
        raise DecodeError(f'{what} needs a library that is not installed here: pip install "inference-gateway[brpc]"')
    return library


_INFLATERS: dict[int, Callable[[memoryview, Limits], bytearray]] = {
    1: _snappy,
    2: partial(_zlib, "gzip"),
    3: partial(_zlib, "zlib"),
}
"""By compress_type. 4 is lz4, for which brpc itself has no handler."""
