"""V2 gRPC's errors: the status code itself and a text. The Reason travels beside them, as in V2 REST."""

from gateway.core.errors import GatewayError, Status, reason_field
from gateway.core.grpc_status import MAX_ERROR_TEXT
from gateway.core.operations import Operation
from gateway.core.types import Headers, Message, Request
from gateway.protocols.v2.grpc_requests import STREAM
from gateway.protocols.v2.grpc_streams import encode_stream_error
from gateway.protocols.v2.schema import ModelReadyResponse

_MAX_TEXT = 2000
"""Bytes. They travel as a header, percent-encoded, for which real clients take 8 KiB with all the others."""


_CLIENTS_FAULT = frozenset(
    {Status.INVALID_ARGUMENT, Status.PERMISSION_DENIED, Status.UNAUTHENTICATED, Status.CANCELLED}
)
"""What says nothing of the model. Any other error of a question for its readiness means that it cannot be used."""


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`: a status and its text; inside a stream a message of it, after which it goes on."""
    text = error.message.encode("utf-8", "replace")
    if message.pattern == STREAM:
        return encode_stream_error(error, request, message, text.decode())
    headers = Headers((reason_field(error),))
    if request and request.operation is Operation.MODEL_READY and error.status not in _CLIENTS_FAULT:
        # Triton's answer, and what makes tritonclient's is_model_ready() false; KServe's NOT_FOUND makes it raise
        return Message(headers=headers, parts=(ModelReadyResponse().SerializeToString(),))
    return Message(headers=headers, parts=(_cut(text),), status=error.status)


def _cut(text: bytes) -> bytes:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT].decode("utf-8", "ignore").encode()


def denies_readiness(reply: Message) -> bool:
    """Whether the error in reply to ModelReady says no more than that there is no such model."""
    if reply.status == Status.NOT_FOUND:
        return True
    # MLServer 1.7.1: UNKNOWN, "Unexpected <class 'mlserver.errors.ModelNotFound'>: Model x not found"
    return reply.status == Status.UNKNOWN and bytes(reply.body[:MAX_ERROR_TEXT]).startswith(b"Unexpected <class")
