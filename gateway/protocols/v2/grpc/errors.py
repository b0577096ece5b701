"""Reads and writes V2 gRPC errors, which consist of a status code and a message.

In the stream of ModelStreamInfer, an error is a response with an error message.

The trailing metadata or a parameter contains the error's Reason, which therefore survives a chain of gateways.
"""

from gateway.core.errors import REASONS, DecodeError, GatewayError, Reason, Status, error_fields, refusal
from gateway.core.grpc_status import MAX_ERROR_TEXT
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import parse, protobuf_reply
from gateway.core.protobuf.wire import Allowance, cut
from gateway.core.requests import Request
from gateway.protocols.v2.grpc.schema import (
    MODEL_STREAM_INFER,
    ModelInferRequest,
    ModelInferResponse,
    ModelReadyResponse,
    ModelStreamInferResponse,
)
from gateway.protocols.v2.grpc.streams import set_final, wants_empty_final
from gateway.protocols.v2.grpc.tensors import REQUEST, TENSORS

_MAX_TEXT = 2000
"""Maximum size of an error message, in bytes.

The gateway sends the message percent-encoded in a header, and many clients accept at most 8 KiB of headers."""

_REASON = "gateway_reason"
"""The parameter that contains the Reason in an error response of a stream."""

_CLIENT_ERRORS = frozenset(
    {Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED, Status.UNAUTHENTICATED, Status.CANCELLED}
)
"""Statuses that are unrelated to the model. For ModelReady, any other error means that the model cannot be used."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the response that reports `error` to the client. For a stream, the result is a response of the stream."""
    text = error.message.encode("utf-8", "replace")
    if message.pattern == MODEL_STREAM_INFER:
        return _encode_stream_error(error, request, message, text.decode())
    headers = Headers(error_fields(error))
    if request and request.operation is Operation.MODEL_READY and error.status not in _CLIENT_ERRORS:
        # Respond like Triton, which makes is_model_ready() in tritonclient return False. For KServe's NOT_FOUND,
        # is_model_ready() would raise an error.
        return Message(headers=headers, parts=(ModelReadyResponse().SerializeToString(),))
    return Message(headers=headers, parts=(_truncate(text),), status=error.status)


def _truncate(text: bytes) -> bytes:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT].decode("utf-8", "ignore").encode()


def _encode_stream_error(error: GatewayError, request: Request | None, message: Message, text: str) -> Message:
    """Return the error message, together with a ModelInferResponse that contains the id of the failed request."""
    response = ModelInferResponse(id=request.id if request else _read_id(message.body))
    response.parameters[_REASON].string_param = error.reason.value
    if request and wants_empty_final(request):
        # Triton is inconsistent: if it rejects a request, the error is the last response, but if a model fails, other
        # responses follow
        set_final(response)
    return protobuf_reply(ModelStreamInferResponse(error_message=text or error.reason.value, infer_response=response))


def _read_id(body: Buffer) -> str | None:
    """Return the id in a ModelInferRequest that `decode_request` rejects, or None if the id is not readable."""
    try:
        head, _ = cut(memoryview(body), (TENSORS, REQUEST.raw_number), Allowance())
        return parse(ModelInferRequest, head).id or None
    except DecodeError:
        return None


def decode_stream_error(text: str, response: Buffer) -> GatewayError:
    """Return the error for an error message in a stream. The Reason is MODEL_ERROR, unless the server is a gateway,
    which sends the Reason.

    Raises:
        DecodeError: `response` is not a ModelInferResponse.
    """
    reason = parse(ModelInferResponse, response).parameters.get(_REASON)
    return refusal(REASONS.get(reason.string_param if reason else "", Reason.MODEL_ERROR), text)


def denies_readiness(reply: Message) -> bool:
    """Return True if an error response to ModelReady only reports a missing model."""
    if reply.status == Status.NOT_FOUND:
        return True
    # MLServer 1.7.1: UNKNOWN, "Unexpected <class 'mlserver.errors.ModelNotFound'>: Model x not found"
    return reply.status == Status.UNKNOWN and bytes(reply.body[:MAX_ERROR_TEXT]).startswith(b"Unexpected <class")
