"""The responses of ModelStreamInfer, which is Triton's: any number to a request, their end, and errors among them.

A client that sets `triton_enable_empty_final_response` counts responses until one has the parameter
`triton_final_response: true`. Each must have it once, or the client takes a response for that of its next request; and
no codec knows whether a response is the last. So such a client gets false on each, and an empty one with true at the
end, as from a decoupled model of Triton's.
"""

from gateway.core.errors import REASONS, GatewayError, Reason, refusal
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Request, Response, Translate
from gateway.protobuf.schema import parse
from gateway.protobuf.wire import Allowance, cut, key, varint
from gateway.protocols.v2.grpc.requests import EmptyFinalMessage, read_id
from gateway.protocols.v2.grpc.responses import read_response, write_head, write_response
from gateway.protocols.v2.grpc.schema import ModelInferResponse, ModelStreamInferResponse
from gateway.protocols.v2.grpc.tensors import Parts
from gateway.protocols.v2.parameters import FINAL_RESPONSE

_REASON = "gateway_reason"
"""The parameter of an error's response that tells its Reason, for which the stream has no other place."""

_INFER_RESPONSE = 2
_INFER_RESPONSE_KEY = key(_INFER_RESPONSE)


def encode_stream(answer: Answer, request: Request, translate: Translate) -> Message:
    """One response. `triton_final_response` is the backend's, but for clients that want an empty final one.

    Raises:
        GatewayError: INVALID_ARGUMENT, a text that is not UTF-8.
    """
    assert isinstance(answer, Response)
    parameters = answer.parameters
    if _wants_empty_final(request):
        parameters = {**parameters, FINAL_RESPONSE: False}
    return Message(parts=_wrap(write_response(answer, request, parameters)))


def encode_end(request: Request) -> Message | None:
    """The empty final response, if it is wanted, behind the last one of `request`; not behind an error, which is the
    last of its request's itself."""
    if not _wants_empty_final(request):
        return None
    final = write_head(request)
    final.parameters[FINAL_RESPONSE].bool_param = True
    return Message(parts=_wrap((final.SerializeToString(),)))


def _wants_empty_final(request: Request) -> bool:
    return isinstance(request.origin, EmptyFinalMessage)


def _wrap(response: Parts) -> Parts:
    size = sum(map(len, response))
    first, *rest = response or (b"",)
    return (_INFER_RESPONSE_KEY + varint(size) + bytes(first), *rest)


def encode_stream_error(error: GatewayError, request: Request | None, message: Message, text: str) -> Message:
    """An error inside the stream, which goes on: the text, and the request's id to tell whose it is."""
    told = ModelInferResponse(id=request.id if request else read_id(message.body))
    told.parameters[_REASON].string_param = error.reason.value
    if request and _wants_empty_final(request):
        # Triton has no rule: it answers a refused request with the error alone, a failing model's with more
        told.parameters[FINAL_RESPONSE].bool_param = True
    return Message(
        parts=(
            ModelStreamInferResponse(error_message=text or error.reason.value, infer_response=told).SerializeToString(),
        )
    )


def decode_stream(reply: Message, target: Target) -> Response:
    """One response of a stream.

    Raises:
        DecodeError: not a ModelStreamInferResponse.
        GatewayError: the error that it tells, MODEL_ERROR if it comes from another server than a gateway.
    """
    rest, taken = cut(memoryview(reply.body), (_INFER_RESPONSE,), Allowance())
    response = taken[0][1] if taken else b""
    text = parse(ModelStreamInferResponse, rest).error_message
    if text:
        raise _error(text, response)
    return read_response(response, reply, target)


def _error(text: str, response: bytes | memoryview) -> GatewayError:
    reason = parse(ModelInferResponse, response).parameters.get(_REASON)
    return refusal(REASONS.get(reason.string_param if reason else "", Reason.MODEL_ERROR), text)
