"""Reads the payload of a frame: a GrpsMessage in protobuf or JSON (`content_type`), optionally compressed
(`compress_type`) and with a checksum (`checksum_type`).

The checksum covers the payload in the frame, compressed or not. brpc never compresses attachments. Snappy and CRC-32C
need libraries that the extra `brpc` installs; gzip and zlib are in Python's standard library.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType

from gateway.core import inflation
from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.core.protobuf.wire import read_varint
from gateway.core.protocol import Limits
from gateway.protocols.grps.brpc.frames import HEADER, MAGIC, Frame, is_whole, read_frame, read_meta
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.protobuf import message as protobuf_message
from gateway.protocols.grps.schema import GrpsMessage

_PROTOBUF = 0
_JSON = (1, 2)
"""The content types of brpc's own JSON mapping and protobuf's JSON mapping. brpc 1.17 accepts both in requests.

The responses of brpc are always in protobuf."""


def decompressed(message: Message, frame: Frame, limits: Limits) -> Frame:
    """Return `frame`, the frame of `message`, with its payload decompressed and its checksum verified.

    If decompression takes long, the transport has already done both.

    Raises:
        DecodeError, GatewayError: the errors of `inflate`.
    """
    if not frame.meta.compress_type:
        verify_checksum(frame)
        return frame
    if not is_compressed(message):
        known = "0 (none), 1 (snappy), 2 (gzip) or 3 (zlib)"
        raise DecodeError(f"compress_type {frame.meta.compress_type} is unknown, expected {known}")
    return read_frame(inflate(message, limits))


def read_payload(frame: Frame, role: str, limits: Limits) -> GrpsMessage:
    """Return the GrpsMessage in an uncompressed frame. `role` (input, output) is the word for its tensors in error
    messages.

    Raises:
        DecodeError: the payload is not a GrpsMessage, or its content_type is unknown.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit.
    """
    content_type = frame.meta.content_type
    if content_type == _PROTOBUF:
        return protobuf_message.read_message(frame.payload, limits.message)
    if content_type in _JSON:
        return json_message.read_message(frame.payload, role, limits)
    raise _unknown_content_type(content_type)


def parsed_size(message: Message) -> int:
    """Return the number of bytes of a frame that must be parsed, as counted by `protobuf.message.parsed_size`. If the
    message is not plain protobuf, is compressed or has a checksum, the entire frame counts."""
    body = message.parts[1]
    if not is_whole(message):
        return len(body)
    try:
        frame = read_frame(message)
    except DecodeError:
        return len(body)
    meta = frame.meta
    if meta.content_type != _PROTOBUF or meta.compress_type or meta.checksum_type:
        return len(body)
    return protobuf_message.parsed_size(frame.payload)


def check_payload(frame: Frame, limits: Limits) -> None:
    """Raise DecodeError if the payload cannot be parsed as its content_type. The tensors are not checked."""
    content_type = frame.meta.content_type
    if content_type == _PROTOBUF:
        protobuf_message.check_message(frame.payload)
    elif content_type in _JSON:
        json_message.check_json(frame.payload, limits)
    else:
        raise _unknown_content_type(content_type)


def _unknown_content_type(content_type: int) -> DecodeError:
    return DecodeError(f"content_type {content_type} is not supported, expected 0 (protobuf), 1 or 2 (JSON)")


# --- Compression and checksums ---


def _optional(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


_CRAMJAM, _GOOGLE_CRC32C = _optional("cramjam"), _optional("google_crc32c")

_CRC32C = 1
_PIECE_SIZE = 2**20

_PAYLOAD = "the payload"

_SNAPPY_RATIO = 22
"""Maximum compression ratio of Snappy: its densest element takes 3 bytes and copies 64."""


def _take_any(size: int) -> None:
    """Accept any size, without counting its memory."""


def is_compressed(message: Message) -> bool:
    """Return whether `inflate` can decompress the payload. The result is False for an error response, because clients
    ignore its payload."""
    if not is_whole(message):
        return False
    try:
        meta = read_meta(message)
    except DecodeError:
        return False
    return meta.compress_type in _INFLATERS and not meta.response.error_code


def inflate(message: Message, limits: Limits, take: Callable[[int], None] = _take_any) -> Message:
    """Return a compressed frame with its payload decompressed and its checksum verified.

    Before the function allocates memory, it calls `take` with the number of bytes to allocate.

    Raises:
        DecodeError: the payload or the checksum is invalid, or the required library is not installed.
        GatewayError: RESOURCE_EXHAUSTED if the decompressed payload exceeds the limits, or the error that `take`
            raises.
    """
    frame = read_frame(message)
    verify_checksum(frame)
    inflated = _INFLATERS[frame.meta.compress_type](frame.payload, limits, take)
    for field in ("compress_type", "checksum_type", "checksum_value", "checksum_with_attachment"):
        frame.meta.ClearField(field)
    meta = frame.meta.SerializePartialToString()
    inflated += frame.attachment
    inflated[:0] = meta  # in place, because joining would need twice the memory
    header = HEADER.pack(MAGIC, len(inflated), len(meta))
    return Message(parts=(header, inflated), peer=message.peer, received=message.received)


def verify_checksum(frame: Frame) -> None:
    """Verify the checksum of the payload, which is still compressed, if it has a checksum.

    Raises:
        DecodeError: the checksum does not match, its type is unknown, or its library is not installed. Servers add
            checksums only on request, so the gateway never ignores a checksum.
    """
    meta = frame.meta
    if not meta.checksum_type:
        return
    if meta.checksum_type != _CRC32C:
        raise DecodeError(f"checksum_type {meta.checksum_type} is unknown, expected 0 (none) or 1 (crc32c)")
    covered = [frame.payload, frame.attachment] if meta.checksum_with_attachment else [frame.payload]
    actual = _masked_crc32c(covered)
    if meta.checksum_value != actual:
        value = meta.checksum_value.hex() or "empty"
        raise DecodeError(f"checksum_value is {value}, but the payload's is {actual.hex()} (crc32c)")


def _masked_crc32c(buffers: list[memoryview]) -> bytes:
    """Return the checksum in its wire format: big-endian, and masked as in LevelDB."""
    library, crc = _required(_GOOGLE_CRC32C, "checksum_type 1 (crc32c)"), 0
    for piece in _pieces(buffers):
        crc = library.extend(crc, piece)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "big")


def _pieces(buffers: list[memoryview]) -> Iterator[bytes]:
    """Yield `buffers` as small `bytes` objects, because the library does not accept a memoryview."""
    for buffer in buffers:
        for at in range(0, len(buffer), _PIECE_SIZE):
            yield bytes(buffer[at : at + _PIECE_SIZE])


def _zlib(coding: str, payload: memoryview, limits: Limits, take: Callable[[int], None]) -> bytearray:
    # This function is stricter than brpc's own server, which treats a payload that is not gzip data as an empty
    # message.
    whole = bytearray()
    for piece in inflation.inflated(payload, coding, limits, _PAYLOAD):
        take(len(piece))
        whole += piece
    return whole


def _snappy(payload: memoryview, limits: Limits, take: Callable[[int], None]) -> bytearray:
    library = _required(_CRAMJAM, "compress_type 1 (snappy)")
    size = _snappy_size(payload)
    if size > inflation.max_inflated_size(len(payload), limits):
        raise inflation.limit_error(_PAYLOAD, len(payload), limits)
    take(size)
    inflated = bytearray(size)
    try:
        written = library.snappy.decompress_raw_into(payload, inflated)
    except library.DecompressionError as error:
        raise DecodeError(f"the payload is not snappy data: {error}") from error
    assert written == size
    return inflated


def _snappy_size(payload: memoryview) -> int:
    """Return the decompressed size. The snappy format says: "The stream starts with the uncompressed length"."""
    try:
        size, _ = read_varint(payload, 0)
    except DecodeError as error:
        raise DecodeError("the payload is not snappy data: it does not begin with a length") from error
    if size > _SNAPPY_RATIO * len(payload):
        raise DecodeError(f"the payload is not snappy data: {len(payload)} bytes cannot become {size}")
    return size


def _required(library: ModuleType | None, what: str) -> ModuleType:
    """Return `library`.

    Raises:
        DecodeError: the library is not installed. The message says that `what` needs it.
    """
    if library is None:
        raise DecodeError(f'{what} needs a library that is not installed here: pip install "modelglot[brpc]"')
    return library


_INFLATERS: dict[int, Callable[[memoryview, Limits, Callable[[int], None]], bytearray]] = {
    1: _snappy,
    2: partial(_zlib, "gzip"),
    3: partial(_zlib, "zlib"),
}
"""The decompressors by compress_type. Number 4, lz4, is missing because brpc itself has no handler for it."""
