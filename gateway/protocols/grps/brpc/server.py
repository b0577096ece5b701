"""The wire form `grps-brpc`: GrpsMessages in the frames of Apache brpc's baidu_std.

A Message has two parts, a frame's header and the rest; `origin` of a Request keeps its correlation id alone.
"""

from gateway.core.errors import REASON_HEADER, DecodeError, GatewayError, Reason, refusal, unsupported
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Framing, Limits, ListenerSettings, Protocol, StreamForm, Target
from gateway.core.types import Answer, Message, Request, Translate
from gateway.protobuf.schema import Protobuf
from gateway.protocols.grps import client as requests
from gateway.protocols.grps import operations
from gateway.protocols.grps import server as responses
from gateway.protocols.grps.brpc import compression as brpc_compression
from gateway.protocols.grps.brpc import errors as brpc_errors
from gateway.protocols.grps.brpc import frames as brpc_frames
from gateway.protocols.grps.brpc.errors import as_text
from gateway.protocols.grps.brpc.frames import SERVICE, SERVICES, Frame, RpcMeta
from gateway.protocols.grps.errors import failure
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.protobuf.message import check_message, read_message, write_message
from gateway.protocols.grps.schema import BINARY_PAYLOADS, BRPC, TRAITS

METHODS = {name: asked for name, asked in operations.METHODS.items() if asked is not Operation.STREAM}
"""Streaming is not there yet, says grps. PredictByHttp is of the service, but a real server never answers it here."""

_PROTOBUF = 0
_JSONS = (1, 2)
"""brpc's own JSON of a message, and protobuf's. brpc 1.17 accepts both; its replies are protobuf all the same."""
_ASKING = {
    name: RpcMeta(request={"service_name": SERVICE, "method_name": name}, compress_type=0).SerializeToString()
    for name in METHODS
}
_SUCCESS = RpcMeta(response={"error_code": 0}, compress_type=0).SerializeToString()


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks. Its attachment is not looked at, as the real server does not.

    Raises:
        DecodeError: the frame, its payload's coding or checksum, or the payload is not what it says.
        GatewayError: UNIMPLEMENTED, no such method; RESOURCE_EXHAUSTED, the frame is beyond the limit, or what its
            payload inflates to.
    """
    if not brpc_frames.is_whole(message):
        raise refusal(Reason.TOO_LARGE, _too_large(message, listener.limits.message))
    frame = _opened(message, brpc_frames.read(message), listener.limits)
    operation = _operation(frame.meta)
    origin = Message(parts=(brpc_frames.correlation_id(frame.meta.correlation_id),))
    grps = _content(frame, "input", listener.limits)
    return requests.decode(grps, operation, origin, listener, deadline=_deadline(frame.meta, message))


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a Request of decode_request; never compressed.

    Raises:
        GatewayError: as `responses.encode`; RESOURCE_EXHAUSTED, it is larger than a frame can be.
    """
    grps = responses.encode(answer, request, translate)
    return brpc_frames.frame(_SUCCESS + _number(request), write_message(grps))


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The error in a frame; in the GrpsMessage of a successful one where the client's could be read."""
    if request is None and error.reason is Reason.NOT_READY:
        # The listener is stopping. As of brpc's own server: ELOGOFF makes brpc's clients retry on another one.
        return brpc_errors.encode(error, message)
    number = _read_by_us(message) if request is None else _number(request)
    if number is None:
        return brpc_errors.encode(error, message)
    meta = _SUCCESS + RpcMeta(user_fields={REASON_HEADER: error.reason.value}).SerializeToString()
    return brpc_frames.frame(meta + number, write_message(failure(error)))


def encode_request(request: Request, target: Target) -> Message:
    """The frame that asks `target`, without a correlation id: that is the connector's.

    Raises:
        GatewayError: UNIMPLEMENTED, no such method; as `requests.encode`; RESOURCE_EXHAUSTED, it is larger than a frame
            can be.
    """
    name = operations.method(request.operation)
    if name not in METHODS:
        raise unsupported(f"grps over brpc has no method for {request.operation.value!r}")
    return brpc_frames.frame(_ASKING[name], write_message(requests.encode(request)), request.deadline)


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """The server's answer to `request`. A reply without a response part tells no error, as to a real client.

    Raises:
        DecodeError: the reply is no answer to the request.
        GatewayError: the error that it tells, in the frame or in the GrpsMessage.
    """
    if not brpc_frames.is_whole(message):
        raise DecodeError(_too_large(message, target.limits.message))
    frame = brpc_frames.read(message)
    if frame.meta.response.error_code:
        raise brpc_errors.told(frame.meta)
    headers = brpc_errors.headers(frame.meta)
    frame = _opened(message, frame, target.limits)
    return responses.decode(_content(frame, "output", target.limits), headers, request)


def _opened(message: Message, frame: Frame, limits: Limits) -> Frame:
    """The frame of `message` with its payload inflated. Transports have done that already where it takes long."""
    if not frame.meta.compress_type:
        brpc_compression.verify(frame)
        return frame
    if not brpc_compression.is_compressed(message):
        known = "0 (none), 1 (snappy), 2 (gzip) or 3 (zlib)"
        raise DecodeError(f"compress_type {frame.meta.compress_type} is unknown, expected {known}")
    return brpc_frames.read(brpc_compression.inflate(message, limits))


def _too_large(message: Message, limit: int) -> str:
    size = brpc_frames.size(message.parts[0])
    return f"a message of {size} bytes is larger than limits.message, {limit} bytes"


def _operation(meta: Protobuf) -> Operation:
    if not meta.HasField("request"):
        raise unsupported(f"the frame's meta has no request part, expected one that names {SERVICE}")
    asked = meta.request
    if not (asked.HasField("service_name") and asked.HasField("method_name")):
        raise DecodeError("the request part of the frame's meta lacks service_name or method_name; both are required")
    service, method = as_text(asked.service_name), as_text(asked.method_name)
    operation = METHODS.get(method)
    if service not in SERVICES or operation is None:
        expected = f"expected {', '.join(METHODS)} of {SERVICE}"
        raise unsupported(f"Fail to find method={service[:200]}/{method[:200]}; {expected}")
    return operation


def _deadline(meta: Protobuf, message: Message) -> float | None:
    milliseconds = meta.request.timeout_ms
    assert isinstance(milliseconds, int)
    return message.received + milliseconds / 1000 if milliseconds > 0 else None


def _content(frame: Frame, role: str, limits: Limits) -> GrpsMessage:
    content_type = frame.meta.content_type
    if content_type == _PROTOBUF:
        return read_message(frame.payload, limits.message)
    if content_type in _JSONS:
        return json_message.read(frame.payload, role, limits)
    raise DecodeError(f"content_type {content_type} is not spoken here, expected 0 (protobuf), 1 or 2 (JSON)")


def _number(request: Request) -> bytes:
    """The correlation id, as a field of the meta."""
    assert request.origin is not None
    return bytes(request.origin.parts[0])


def _read_by_us(message: Message) -> bytes | None:
    """The correlation id of a frame that holds a GrpsMessage: what is wrong is in there."""
    if not brpc_frames.is_whole(message) or brpc_compression.is_compressed(message):
        return None
    try:
        frame = _opened(message, brpc_frames.read(message), DEFAULT_LIMITS)
        _operation(frame.meta)
        if frame.meta.content_type == _PROTOBUF:
            check_message(frame.payload)
        elif frame.meta.content_type in _JSONS:
            json_message.check(frame.payload, DEFAULT_LIMITS)
        else:
            return None
    except (DecodeError, GatewayError):
        return None
    return brpc_frames.correlation_id(frame.meta.correlation_id)


GRPS_BRPC = Protocol(
    BRPC,
    carrier=StreamForm(
        Framing(
            brpc_frames.HEADER.size,
            brpc_frames.size,
            tag=brpc_frames.tag,
            retag=brpc_frames.retag,
            head=brpc_frames.head,
            stopping=brpc_errors.stopping,
            is_compressed=brpc_compression.is_compressed,
            inflate=brpc_compression.inflate,
        )
    ),
    patterns=(),
    decode_request=decode_request,
    encode_response=encode_response,
    encode_error=encode_error,
    encode_request=encode_request,
    decode_response=decode_response,
    traits=TRAITS,
    payloads=BINARY_PAYLOADS,
)
