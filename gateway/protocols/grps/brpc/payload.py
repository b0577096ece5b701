"""The payload of a frame: a GrpsMessage in protobuf or JSON (`content_type`), optionally compressed."""

from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.protocols.grps.brpc import compression
from gateway.protocols.grps.brpc.frames import Frame, is_whole, read_frame
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.protobuf import message as protobuf_message
from gateway.protocols.grps.schema import GrpsMessage

_PROTOBUF = 0
_JSON = (1, 2)
"""The content types of brpc's own JSON mapping and protobuf's JSON mapping. brpc 1.17 accepts both in requests.

Its responses are always in protobuf."""


def decompressed(message: Message, frame: Frame, limits: Limits) -> Frame:
    """Return `frame`, the frame of `message`, with its payload decompressed and its checksum verified.

    For a payload that takes long to decompress, the transport has already done both.

    Raises:
        DecodeError, GatewayError: the errors of `compression.inflate`.
    """
    if not frame.meta.compress_type:
        compression.verify_checksum(frame)
        return frame
    if not compression.is_compressed(message):
        known = "0 (none), 1 (snappy), 2 (gzip) or 3 (zlib)"
        raise DecodeError(f"compress_type {frame.meta.compress_type} is unknown, expected {known}")
    return read_frame(compression.inflate(message, limits))


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
    message is not plain protobuf, is compressed or has a checksum, the whole frame counts."""
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
