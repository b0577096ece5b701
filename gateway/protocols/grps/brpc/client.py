"""Converts canonical Requests to grps frames over brpc, and response frames to Answers (upstream side)."""

from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import Target
from gateway.core.requests import ATTACHMENT, Answer, Request, Response
from gateway.protocols.grps import client
from gateway.protocols.grps.brpc import errors
from gateway.protocols.grps.brpc.frames import (
    attachment_parameters,
    is_whole,
    oversized,
    read_frame,
    with_attachment,
    with_request_fields,
    write_frame,
)
from gateway.protocols.grps.brpc.meta import METHODS, SERVICE, request_fields
from gateway.protocols.grps.brpc.payload import decompressed, read_payload
from gateway.protocols.grps.protobuf.message import write_message
from gateway.protocols.grps.schema import RpcMeta, backend_method

_METAS = {
    name: RpcMeta(request={"service_name": SERVICE, "method_name": name}, compress_type=0).SerializeToString()
    for name in METHODS
}
"""The request meta for each method, without the correlation id and the fields that `context` adds."""


def encode_request(request: Request, target: Target) -> Message:
    """Return the frame of a request to `target`. The connector adds the correlation id.

    Raises:
        GatewayError: the errors of the parent folder's `client.encode_request`; UNIMPLEMENTED if the method does not
            exist; RESOURCE_EXHAUSTED if the request exceeds the maximum frame size.
    """
    name = backend_method(request.operation)
    if name not in METHODS:
        raise unsupported(f"grps over brpc has no method for {request.operation.value!r}")
    meta = request_meta(name, request)
    given = request.parameters
    if given and ATTACHMENT in given:
        request = replace(request, parameters={name: each for name, each in given.items() if name != ATTACHMENT})
    payload = write_message(client.encode_request(request))
    if given:
        meta, payload = with_attachment(meta, payload, given)
    return write_frame(meta, payload, request.deadline)


def request_meta(method: str, request: Request) -> bytes:
    """Return the request meta for a method, without the correlation id."""
    meta: bytes = _METAS[method]
    if request.record.of_listener.forwards and (fields := request_fields(request.record, request.span)):
        meta = with_request_fields(meta, fields)
    return meta


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`.

    As in brpc's own client, a response without a response part is a success.

    Raises:
        DecodeError: the frame is not a grps response, does not belong to the request, or is a metadata or readiness
            response with an attachment.
        GatewayError: the error that the response reports, in its meta or in its GrpsMessage.
    """
    if not is_whole(message):
        raise DecodeError(oversized(message, target.limits.message))
    frame = read_frame(message)
    if frame.meta.response.error_code:
        raise errors.backend_error(frame.meta)
    headers = errors.reason_headers(frame.meta)
    frame = decompressed(message, frame, target.limits)
    answer = client.decode_response(read_payload(frame, "output", target.limits), headers, request)
    if frame.attachment:
        if not isinstance(answer, Response):
            text = f"the response to {request.operation.value} has an attachment of {len(frame.attachment)} bytes"
            raise DecodeError(text)
        return replace(answer, parameters=attachment_parameters(frame))
    return answer
