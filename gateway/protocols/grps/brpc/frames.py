"""baidu_std's frames: `PRPC`, body_size u32, meta_size u32 (big-endian); then RpcMeta, the payload and an attachment,
which together are body_size bytes."""

from pathlib import Path
from struct import Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.types import Buffer, Message
from gateway.protobuf.schema import Protobuf, Schema, parse
from gateway.protobuf.wire import varint

HEADER = Struct("!4sII")
MAGIC = b"PRPC"
_MOST_BYTES = 0xFFFFFFFF

SERVICE = "grps.protos.v1.GrpsBrpcService"
SERVICES = frozenset({SERVICE, "GrpsBrpcService"})
"""A real server also knows its services by their bare names."""

RpcMeta = Schema(Path(__file__).parent.with_name("descriptors.binpb").read_bytes()).message("brpc.policy.RpcMeta")

_CORRELATION_ID = b"\x20"
_REQUEST, _TIMEOUT_MS = b"\x0a", b"\x40"
_MOST_MS = 2**31 - 1


@frozen
class Frame:
    """A frame's parts. The payload may be compressed, the attachment never is."""

    meta: Protobuf
    payload: memoryview
    attachment: memoryview


def size(header: Buffer) -> int:
    """body_size. Raises DecodeError for what is no header."""
    magic, body, meta = HEADER.unpack(header)
    if magic != MAGIC:
        raise DecodeError(f"magic {magic!r}, expected {MAGIC!r}: this is Apache brpc's baidu_std")
    # brpc's server never answers such a frame: it waits for another of its protocols to claim it
    if meta > body:
        raise DecodeError(f"meta_size {meta} is larger than body_size {body}, which counts it in")
    assert isinstance(body, int)
    return body


def head(header: Buffer) -> int:
    """meta_size."""
    _, _, meta = HEADER.unpack(header)
    assert isinstance(meta, int)
    return meta


def is_whole(message: Message) -> bool:
    """Whether all of a frame is there. Of one beyond the limit header and meta are, and of what is none less."""
    header, body = message.parts
    return len(header) == HEADER.size and HEADER.unpack(header)[:2] == (MAGIC, len(body))


def meta_of(message: Message) -> Protobuf:
    """The RpcMeta. Raises DecodeError where it is none."""
    header, body = message.parts
    return parse(RpcMeta, body[: head(header)])


def read(message: Message) -> Frame:
    """The frame apart.

    Raises:
        DecodeError: its meta is no RpcMeta, or tells of an attachment that is not there.
    """
    meta = meta_of(message)
    header, body = message.parts
    rest = memoryview(body)[head(header) :]
    end = len(rest) - meta.attachment_size
    if not 0 <= end <= len(rest):
        there = f"payload and attachment together have {len(rest)} bytes"
        raise DecodeError(f"attachment_size is {meta.attachment_size}, but {there}")
    return Frame(meta, rest[:end], rest[end:])


def frame(meta: bytes, payload: tuple[Buffer, ...] = (), deadline: float | None = None) -> Message:
    """The frame of a serialized RpcMeta and a payload.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED, they are 4 GiB or more.
    """
    body = len(meta) + sum(map(len, payload))
    if body > _MOST_BYTES:
        raise refusal(Reason.TOO_LARGE, f"{body} bytes are more than a baidu_std frame holds, {_MOST_BYTES}")
    return Message(parts=(HEADER.pack(MAGIC, body, len(meta)) + meta, *payload), deadline=deadline)


def correlation_id(number: int) -> bytes:
    """The field of RpcMeta: an int64, of which a negative one is written as the unsigned that has its bits."""
    return _CORRELATION_ID + varint(number & 0xFFFFFFFFFFFFFFFF)


def tag(message: Message) -> int:
    """The correlation id, 0 where there is none. Raises DecodeError where the meta is no RpcMeta."""
    number = meta_of(message).correlation_id
    assert isinstance(number, int)
    return number


def retag(message: Message, number: int, seconds: float | None) -> Message:
    """A request of ours with this correlation id, and with `timeout_ms` where there are seconds left."""
    prefix, *payload = message.parts
    meta = bytes(prefix[HEADER.size :])
    if seconds is not None:
        meta = _with_timeout(meta, min(max(1, int(seconds * 1000)), _MOST_MS))
    return frame(meta + correlation_id(number), tuple(payload), message.deadline)


def _with_timeout(meta: bytes, milliseconds: int) -> bytes:
    """`meta` begins with its request part, of less than 128 bytes; timeout_ms is that part's last field."""
    end = 2 + meta[1]
    request = meta[2:end] + _TIMEOUT_MS + varint(milliseconds)
    return _REQUEST + varint(len(request)) + request + meta[end:]
