"""baidu_std on bytes: frames, RpcMeta, checksums and compression; independent of the gateway.

A frame is `PRPC`, the sizes of the body and of the meta as big-endian uint32, the meta, the payload, the attachment.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.peers import protobuf
from tests.peers.protobuf import Document, Field, map_of

MAGIC, STREAM_MAGIC = b"PRPC", b"STRM"
HEADER = struct.Struct(">4sII")
LIMIT = 64 << 20
"""A real server closes the connection on a body that says to be larger."""
NONE, SNAPPY, GZIP, ZLIB = range(4)
CRC32C = 1

REQUEST = {
    1: Field("service_name", "string", explicit=True),
    2: Field("method_name", "string", explicit=True),
    3: Field("log_id", "int64", explicit=True),
    4: Field("trace_id", "int64", explicit=True),
    5: Field("span_id", "int64", explicit=True),
    6: Field("parent_span_id", "int64", explicit=True),
    7: Field("request_id", "string", explicit=True),
    8: Field("timeout_ms", "int32", explicit=True),
}
RESPONSE = {1: Field("error_code", "int32", explicit=True), 2: Field("error_text", "string", explicit=True)}
STREAM_SETTINGS = {1: Field("stream_id", "int64", explicit=True)}
META = {
    1: Field("request", schema=REQUEST),
    2: Field("response", schema=RESPONSE),
    3: Field("compress_type", "int32", explicit=True),
    4: Field("correlation_id", "int64", explicit=True),
    5: Field("attachment_size", "int32", explicit=True),
    7: Field("authentication_data", "bytes", explicit=True),
    8: Field("stream_settings", schema=STREAM_SETTINGS),
    9: map_of("user_fields", "string"),
    10: Field("content_type", "int32", explicit=True),
    11: Field("checksum_type", "int32", explicit=True),
    12: Field("checksum_value", "bytes", explicit=True),
    13: Field("checksum_with_attachment", "int32", explicit=True),
}


class Broken(Exception):  # noqa: N818 - what the peer gets is a closed connection
    """The bytes are no frame, or one too large: the connection cannot go on."""


@dataclass(frozen=True)
class Frame:
    meta: bytes
    body: bytes
    """The payload and the attachment."""

    def split(self, attachment_size: int) -> tuple[bytes, bytes]:
        """Raises ValueError for an attachment larger than the body, or of a negative size."""
        if not 0 <= attachment_size <= len(self.body):
            raise ValueError(f"attachment_size={attachment_size} is larger than request_size={len(self.body)}")
        cut = len(self.body) - attachment_size
        return self.body[:cut], self.body[cut:]


def write_frame(meta: Mapping[str, object], payload: bytes = b"", attachment: bytes = b"") -> bytes:
    return pack(protobuf.encode(meta, META), payload + attachment)


def pack(meta: bytes, body: bytes, magic: bytes = MAGIC) -> bytes:
    return HEADER.pack(magic, len(meta) + len(body), len(meta)) + meta + body


def read_meta(meta: bytes) -> Document:
    """Raises ValueError for what is malformed, and for a request without the names that proto2 requires."""
    document = protobuf.decode(meta, META)
    if not {"service_name", "method_name"} <= document.get("request", {"service_name": 0, "method_name": 0}).keys():
        raise ValueError("RpcRequestMeta lacks a required name")
    return document


def cut(data: bytearray) -> Frame | None:
    """Take the first frame off `data`; None while it is incomplete. Streams' frames are dropped. Raises Broken."""
    while len(data) >= HEADER.size:
        magic, size, meta_size = HEADER.unpack_from(data)
        if magic not in (MAGIC, STREAM_MAGIC) or size > LIMIT:
            raise Broken(f"magic {magic!r}, body of {size} bytes")
        end = HEADER.size + size
        if len(data) < end or meta_size > size:
            return None  # the latter for ever: another protocol may still claim it
        meta, body = data[HEADER.size : HEADER.size + meta_size], data[HEADER.size + meta_size : end]
        del data[:end]
        if magic == MAGIC:
            return Frame(bytes(meta), bytes(body))
    if not (MAGIC.startswith(data[:4]) or STREAM_MAGIC.startswith(data[:4])):
        raise Broken(f"magic {bytes(data[:4])!r}")
    return None


# --- Checksums ---


def crc32c_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


TABLE = crc32c_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def checksum(payload: bytes) -> bytes:
    """brpc's: the CRC masked, as LevelDB does it, and big-endian."""
    crc = crc32c(payload)
    return struct.pack(">I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


# --- Compression ---


def snappy_compress(data: bytes) -> bytes:
    """Literals alone, up to 64 KiB each."""
    pieces = (data[at : at + 65536] for at in range(0, len(data), 65536))
    return protobuf.varint(len(data)) + b"".join(b"\xf4" + struct.pack("<H", len(each) - 1) + each for each in pieces)


def snappy_decompress(data: bytes) -> bytes:
    """Raises ValueError for what is no snappy block."""
    size, at = protobuf.read_varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag, kind = data[at], data[at] & 3
        at += 1
        extra = (max(0, (tag >> 2) - 59), 1, 2, 4)[kind]
        if at + extra > len(data):
            raise ValueError("snappy: cut off")
        number = int.from_bytes(data[at : at + extra], "little")
        at += extra
        if kind == 0:
            length = (number if extra else tag >> 2) + 1
            out += data[at : at + length]
            at += length
        else:
            length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
            copy(out, number | (tag >> 5 << 8 if kind == 1 else 0), length)
        if len(out) > size:
            break
    if len(out) != size or at > len(data):
        raise ValueError(f"snappy: {len(out)} bytes where {size} were announced")
    return bytes(out)


def copy(out: bytearray, offset: int, length: int) -> None:
    """The copy may reach into what it writes itself."""
    if not 0 < offset <= len(out):
        raise ValueError("snappy: a copy from before the beginning")
    for _ in range(length):
        out.append(out[-offset])


def deflate(window: int) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        packer = zlib.compressobj(wbits=window)
        return packer.compress(data) + packer.flush()

    return compress


def inflate(window: int) -> Callable[[bytes], bytes]:
    """What is not compressed at all gives nothing, as for the original: an empty message."""

    def decompress(data: bytes) -> bytes:
        try:
            return zlib.decompress(data, wbits=window)
        except zlib.error:
            return b""

    return decompress


def same(data: bytes) -> bytes:
    return data


COMPRESS = {NONE: same, SNAPPY: snappy_compress, GZIP: deflate(31), ZLIB: deflate(15)}
DECOMPRESS = {NONE: same, SNAPPY: snappy_decompress, GZIP: inflate(31), ZLIB: inflate(15)}
