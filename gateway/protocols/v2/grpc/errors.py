"""V2 gRPC's errors: a status code and a text; in the stream of ModelStreamInfer, a response with a text.

The error's Reason is beside them, in the trailing metadata or a parameter, so that it survives several gateways in a
row.
"""

from gateway.core.errors import REASONS, DecodeError, GatewayError, Reason, Status, error_fields, refusal
from gateway.core.grpc_status import MAX_ERROR_TEXT
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import parse
from gateway.core.protobuf.wire import Allowance, cut
from gateway.core.types import Buffer, Headers, Message, Request
from gateway.protocols.v2.grpc.schema import (
    MODEL_STREAM_INFER,
    ModelInferRequest,
    ModelInferResponse,
    ModelReadyResponse,
    ModelStreamInferResponse,
    protobuf_reply,
)
from gateway.protocols.v2.grpc.streams import set_final, wants_empty_final
from gateway.protocols.v2.grpc.tensors import REQUEST, TENSORS

_MAX_TEXT = 2000
"""Bytes of the text. It is sent percent-encoded in a header, and real clients accept 8 KiB of headers in all."""

_REASON = "gateway_reason"
"""The parameter of an error's response in a stream that names its Reason."""

_CLIENT_ERRORS = frozenset(
    {Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED, Status.UNAUTHENTICATED, Status.CANCELLED}
)
"""Statuses that say nothing about the model. Any other error of ModelReady means that the model cannot be used."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that reports `error` to the client; in a stream, the response that does."""
    text = error.message.encode("utf-8", "replace")
    if message.pattern == MODEL_STREAM_INFER:
        return _encode_stream_error(error, request, message, text.decode())
    headers = Headers(error_fields(error))
    if request and request.operation is Operation.MODEL_READY and error.status not in _CLIENT_ERRORS:
        # As in Triton, so that tritonclient's is_model_ready() is false; it raises for KServe's NOT_FOUND.
        return Message(headers=headers, parts=(ModelReadyResponse().SerializeToString(),))
    return Message(headers=headers, parts=(_truncate(text),), status=error.status)


def _truncate(text: bytes) -> bytes:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT].decode("utf-8", "ignore").encode()


def _encode_stream_error(error: GatewayError, request: Request | None, message: Message, text: str) -> Message:
    """The error's text, and beside it a ModelInferResponse with the id of the request that failed."""
    response = ModelInferResponse(id=request.id if request else _read_id(message.body))
    response.parameters[_REASON].string_param = error.reason.value
    if request and wants_empty_final(request):
        # Triton is not consistent: after a refused request the error is the last response, after a failed model not
        set_final(response)
    return protobuf_reply(ModelStreamInferResponse(error_message=text or error.reason.value, infer_response=response))


def _read_id(body: Buffer) -> str | None:
    """The id in a ModelInferRequest that `decode_request` refuses; None if it cannot be found."""
    try:
        head, _ = cut(memoryview(body), (TENSORS, REQUEST.raw_number), Allowance())
        return parse(ModelInferRequest, head).id or None
    except DecodeError:
        return None


def decode_stream_error(text: str, response: Buffer) -> GatewayError:
    """The error with this text in a stream. Its Reason is MODEL_ERROR unless the server is a gateway.

    Raises:
        DecodeError: `response` is no ModelInferResponse.
    """
    reason = parse(ModelInferResponse, response).parameters.get(_REASON)
    return refusal(REASONS.get(reason.string_param if reason else "", Reason.MODEL_ERROR), text)


def denies_readiness(reply: Message) -> bool:
    """Whether an error reply to ModelReady only says that there is no such model."""
    if reply.status == Status.NOT_FOUND:
        return True
    # MLServer 1.7.1: UNKNOWN, "Unexpected <class 'mlserver.errors.ModelNotFound'>: Model x not found"
    return reply.status == Status.UNKNOWN and bytes(reply.body[:MAX_ERROR_TEXT]).startswith(b"Unexpected <class")
