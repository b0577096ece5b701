"""Reads and writes baidu_std frames: header, RpcMeta, payload and attachment, and the correlation id in the meta."""

from struct import Struct

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.messages import NO_HEADERS, Buffer, Headers, Message
from gateway.core.protobuf.schema import Protobuf, parse
from gateway.core.protobuf.wire import read_varint, varint
from gateway.core.requests import ATTACHMENT
from gateway.core.tensors import Parameters
from gateway.protocols.grps.schema import RpcMeta

HEADER = Struct("!4sII")
MAGIC = b"PRPC"
_MAX_BODY_SIZE = 0xFFFFFFFF

# The keys of the fields that the gateway writes without the protobuf library.
_CORRELATION_ID = b"\x20"  # of RpcMeta
_REQUEST = b"\x0a"  # of RpcMeta
_ATTACHMENT_SIZE = b"\x28"  # of RpcMeta
_TIMEOUT_MS = b"\x40"  # of RpcRequestMeta
_MAX_TIMEOUT_MS = 2**31 - 1


@frozen
class Frame:
    """A frame without its header. The payload can be compressed; the attachment is never compressed."""

    meta: Protobuf
    payload: memoryview
    attachment: memoryview


def body_size(header: Buffer) -> int:
    """Return the body_size in `header`. Raise DecodeError if `header` is not a baidu_std header."""
    magic, body, meta = HEADER.unpack(header)
    if magic != MAGIC:
        raise DecodeError(f"magic {magic!r}, expected {MAGIC!r}: this is Apache brpc's baidu_std")
    # brpc's server never responds to such a frame, because it waits until another of its protocols recognizes it.
    if meta > body:
        raise DecodeError(f"meta_size {meta} is larger than body_size {body}, which includes the meta")
    assert isinstance(body, int)
    return body


def meta_size(header: Buffer) -> int:
    """Return the meta_size in `header`."""
    _, _, meta = HEADER.unpack(header)
    assert isinstance(meta, int)
    return meta


def is_whole(message: Message) -> bool:
    """Return whether `message` is a complete frame.

    The result is False for bytes that are not a frame, and for an oversized frame, of which the transport keeps only
    the header and the meta."""
    header, body = message.parts
    return len(header) == HEADER.size and HEADER.unpack(header)[:2] == (MAGIC, len(body))


def oversized(message: Message, limit: int) -> str:
    """Return the error message for a frame larger than `limits.message`."""
    text = f"a message of {body_size(message.parts[0])} bytes is larger than limits.message, {limit} bytes"
    return f"{text}; send less, or raise the limit"


def read_meta(message: Message) -> Protobuf:
    """Return the RpcMeta of a frame. Raise DecodeError if the meta is not an RpcMeta."""
    header, body = message.parts
    return parse(RpcMeta, body[: meta_size(header)])


def read_frame(message: Message) -> Frame:
    """Return the parts of a frame.

    Raises:
        DecodeError: the meta is not an RpcMeta, or its attachment_size is negative or exceeds the frame.
    """
    meta, rest = read_meta(message), behind_meta(message)
    end = len(rest) - meta.attachment_size
    if not 0 <= end <= len(rest):
        available = f"payload and attachment together have {len(rest)} bytes"
        raise DecodeError(f"attachment_size is {meta.attachment_size}, but {available}")
    return Frame(meta, rest[:end], rest[end:])


def credential(message: Message) -> Headers:
    """Return the credential that a client's Authenticator wrote to the meta, as an Authorization header.

    The credential is a key or token, with or without a scheme."""
    try:
        text = bytes(read_meta(message).authentication_data)
    except DecodeError:
        return NO_HEADERS  # the codec reports the error
    if not text:
        return NO_HEADERS
    return Headers(((b"authorization", text if b" " in text else b"Bearer " + text),))


def with_credential(message: Message, authorization: bytes) -> Message:
    """Return a request frame (written by the gateway or received) with a credential in the field that brpc's
    Authenticator uses.

    The credential includes its scheme. An empty `authorization` removes the credential."""
    header, *payload = message.parts
    if len(header) == HEADER.size:  # a received frame, with the meta in the second part
        size, body = meta_size(header), memoryview(payload[0])
        written, payload = body[:size], [body[size:], *payload[1:]]
    else:
        written = memoryview(header)[HEADER.size :]
    meta = parse(RpcMeta, written)
    if authorization:
        meta.authentication_data = authorization
    else:
        meta.ClearField("authentication_data")
    return write_frame(meta.SerializeToString(), tuple(payload), message.deadline)


def attachment_parameters(frame: Frame) -> Parameters:
    """Return the attachment as the parameter of a Request or a Response.

    Return an empty map if the attachment is empty."""
    return {ATTACHMENT: str(frame.attachment, "latin-1")} if len(frame.attachment) else {}


def with_attachment(
    meta: bytes, payload: tuple[Buffer, ...], parameters: Parameters
) -> tuple[bytes, tuple[Buffer, ...]]:
    """Return a serialized RpcMeta and the bytes after it, including the attachment if `parameters` contain one."""
    if ATTACHMENT not in parameters:
        return meta, payload
    attachment = str(parameters[ATTACHMENT]).encode("latin-1")
    return meta + attachment_field(len(attachment)), (*payload, attachment)


def attachment_field(size: int) -> bytes:
    """Return the RpcMeta field that states an attachment's size, or no bytes for a size of 0."""
    return _ATTACHMENT_SIZE + varint(size) if size else b""


def behind_meta(message: Message) -> memoryview:
    """Return the payload and the attachment of a complete frame."""
    header, body = message.parts
    return memoryview(body)[meta_size(header) :]


def write_frame(meta: bytes, payload: tuple[Buffer, ...] = (), deadline: float | None = None) -> Message:
    """Return the frame of a serialized RpcMeta and a payload.

    The payload includes the attachment, whose size the meta states.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the frame is 4 GiB or larger.
    """
    body = len(meta) + sum(map(len, payload))
    if body > _MAX_BODY_SIZE:
        raise refusal(Reason.TOO_LARGE, f"{body} bytes are more than a baidu_std frame holds, {_MAX_BODY_SIZE}")
    return Message(parts=(HEADER.pack(MAGIC, body, len(meta)) + meta, *payload), deadline=deadline)


# --- The correlation id, an int64 that the client chooses and the response repeats ---


def correlation_field(correlation_id: int) -> bytes:
    """Return the RpcMeta field with the correlation id. Protobuf writes a negative int64 as the unsigned number with
    the same bits."""
    return _CORRELATION_ID + varint(correlation_id & 0xFFFFFFFFFFFFFFFF)


def read_correlation_id(message: Message) -> int:
    """Return a frame's correlation id, or 0 if the meta has no id. Raise DecodeError if the meta is not an RpcMeta."""
    correlation_id = read_meta(message).correlation_id
    assert isinstance(correlation_id, int)
    return correlation_id


def with_correlation_id(message: Message, correlation_id: int, seconds_left: float | None) -> Message:
    """Return a request from `client.encode_request` with a correlation id, and with `timeout_ms` if the request has a
    deadline."""
    prefix, *payload = message.parts
    meta = bytes(prefix[HEADER.size :])
    if seconds_left is not None:
        milliseconds = min(max(1, int(seconds_left * 1000)), _MAX_TIMEOUT_MS)
        meta = with_request_fields(meta, _TIMEOUT_MS + varint(milliseconds))
    return write_frame(meta + correlation_field(correlation_id), tuple(payload), message.deadline)


def with_request_fields(meta: bytes, fields: bytes) -> bytes:
    """Return `meta`, which begins with its request part, with `fields` appended to this part."""
    size, start = read_varint(meta, len(_REQUEST))
    end = start + size
    return b"".join((_REQUEST, varint(size + len(fields)), meta[start:end], fields, meta[end:]))
