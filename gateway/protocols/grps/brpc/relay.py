"""Relays inferences from a grps-brpc client to a grps-brpc server without decoding them (`core.protocol.Relay`).

The gateway forwards the GrpsMessage and the attachment unchanged, and writes a new meta.
"""

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import Message
from gateway.core.operations import INFER, Operation
from gateway.core.protobuf.schema import Protobuf
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.protocols.grps.brpc import errors
from gateway.protocols.grps.brpc.client import request_meta
from gateway.protocols.grps.brpc.frames import (
    Frame,
    attachment_field,
    behind_meta,
    correlation_field,
    is_whole,
    read_frame,
    write_frame,
)
from gateway.protocols.grps.brpc.meta import read_operation
from gateway.protocols.grps.brpc.server import SUCCESS, correlation_of, deadline_of
from gateway.protocols.grps.errors import backend_error, is_failure
from gateway.protocols.grps.protobuf.message import read_head
from gateway.protocols.grps.schema import backend_method

_PREDICT = backend_method(INFER)


def head(message: Message, listener: ListenerSettings) -> Head | None:
    """Return the request of an inference. Return None if the gateway must decode the frame. This is necessary for a
    malformed frame, for a call of another method, and for a payload that is not plain protobuf. It is also necessary if
    the frame omits the model name and the listener has a default model."""
    frame = _plain_frame(message)
    if frame is None or _operation(frame.meta) is not INFER:
        return None
    found = read_head(frame.payload)
    if found is None or not found.has_data or (listener.model and not found.model):
        return None
    correlation = correlation_field(frame.meta.correlation_id)
    origin = Message(parts=(correlation, attachment_field(len(frame.attachment))))
    return Head(INFER, found.model, "", None, deadline_of(frame.meta, message), origin)


def _plain_frame(message: Message) -> Frame | None:
    """Return the parts of a complete frame whose payload is uncompressed protobuf without a checksum.

    Return None for any other frame."""
    if not is_whole(message):
        return None
    try:
        frame = read_frame(message)
    except DecodeError:
        return None
    meta = frame.meta
    return None if meta.compress_type or meta.checksum_type or meta.content_type else frame


def _operation(meta: Protobuf) -> Operation | None:
    try:
        return read_operation(meta)
    except (DecodeError, GatewayError):
        return None


def request(message: Message, request: Request, target: Target) -> Message:
    """Return the frame for a server. The connector adds the correlation id.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the request exceeds the maximum frame size.
    """
    assert request.origin is not None
    _, attachment = request.origin.parts
    meta = request_meta(_PREDICT, request) + bytes(attachment)
    return write_frame(meta, (behind_meta(message),), request.deadline)


def reply(reply: Message, request: Request, target: Target) -> Message | None:
    """Return the frame for the client, or None if the gateway must decode the response because its payload is not plain
    protobuf.

    Raises:
        GatewayError: the error that the response reports, in its meta or in its GrpsMessage.
    """
    frame = _plain_frame(reply)
    if frame is None:
        return None
    if frame.meta.response.error_code:
        raise errors.backend_error(frame.meta)
    found = read_head(frame.payload)
    if found is None or (found.status is None and not found.has_data):
        return None
    if found.status is not None and is_failure(found.status):
        raise backend_error(found.status, errors.reason_headers(frame.meta))
    meta = SUCCESS + correlation_of(request) + attachment_field(len(frame.attachment))
    return write_frame(meta, (behind_meta(reply),))


RELAY = Relay(head, request, reply)
