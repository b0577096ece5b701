"""Converts grps frames over brpc to canonical Requests, and Answers to response frames (client side)."""

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.protocols.grps import server
from gateway.protocols.grps.brpc.frames import (
    attachment_parameters,
    correlation_field,
    is_whole,
    oversized,
    read_frame,
    with_attachment,
    write_frame,
)
from gateway.protocols.grps.brpc.meta import read_operation
from gateway.protocols.grps.brpc.payload import decompressed, read_payload
from gateway.protocols.grps.protobuf.message import write_message
from gateway.protocols.grps.schema import RpcMeta

SUCCESS = RpcMeta(response={"error_code": 0}, compress_type=0).SerializeToString()
"""The meta of a successful response, without the correlation id."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a client's frame.

    The attachment of an inference becomes a parameter, because the model can use it.

    Raises:
        DecodeError: the frame, its compression, its checksum or its GrpsMessage is invalid, or a method other than
            Predict has an attachment.
        GatewayError: UNIMPLEMENTED if the method is unknown; RESOURCE_EXHAUSTED if the frame or its decompressed
            payload exceeds the limit.
    """
    if not is_whole(message):
        raise refusal(Reason.TOO_LARGE, oversized(message, listener.limits.message))
    frame = decompressed(message, read_frame(message), listener.limits)
    operation = read_operation(frame.meta)
    origin = Message(parts=(correlation_field(frame.meta.correlation_id),))
    grps = read_payload(frame, "input", listener.limits)
    request = server.decode_request(grps, operation, origin, listener.model)
    if frame.attachment and operation is not Operation.INFER:
        raise DecodeError(f"an attachment of {len(frame.attachment)} bytes; only Predict can have one")
    parameters = attachment_parameters(frame) if frame.attachment else request.parameters
    return replace(request, deadline=deadline_of(frame.meta, message), parameters=parameters)


def deadline_of(meta: Protobuf, message: Message) -> float | None:
    """Return the deadline in the meta of the client's frame, or None if the frame has no deadline."""
    milliseconds = meta.request.timeout_ms
    assert isinstance(milliseconds, int)
    return message.received + milliseconds / 1000 if milliseconds > 0 else None


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a request that `decode_request` returned. The response is never compressed.

    Raises:
        GatewayError: the errors of the parent folder's `server.encode_response`; RESOURCE_EXHAUSTED if the response
            exceeds the maximum frame size.
    """
    payload = write_message(server.encode_response(answer, request, translate))
    meta = SUCCESS + correlation_of(request)
    if isinstance(answer, Response) and answer.parameters:
        meta, payload = with_attachment(meta, payload, answer.parameters)
    return write_frame(meta, payload)


def correlation_of(request: Request) -> bytes:
    """Return the field with a request's correlation id, for the meta of the response."""
    assert request.origin is not None
    return bytes(request.origin.parts[0])
