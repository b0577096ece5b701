"""Reads and writes messages of ModelStreamInfer, a Triton extension in which each request can have any number of
responses.

Each response is a ModelStreamInferResponse, which contains a ModelInferResponse or an error message. After an error,
the stream continues with the next request.

A client that sets the parameter `triton_enable_empty_final_response` in a request counts responses until one contains
the parameter `triton_final_response: true`. Exactly one response must contain it. Otherwise, the client assigns
responses to the wrong request. No codec can determine whether a response is the last one. Therefore, the client
receives `triton_final_response: false` with each response, and then an empty final response with `true`, as from a
decoupled Triton model. Other clients receive the backend's `triton_final_response`, if any.
"""

from gateway.core.messages import Buffer, Message
from gateway.core.protobuf.schema import Protobuf, parse
from gateway.core.protobuf.wire import Allowance, cut, key, varint
from gateway.core.requests import Request
from gateway.protocols.v2.grpc.schema import ModelInferResponse, ModelStreamInferResponse
from gateway.protocols.v2.grpc.tensors import Parts
from gateway.protocols.v2.parameters import FINAL_RESPONSE

ENABLE_EMPTY_FINAL = "triton_enable_empty_final_response"

ERROR_MESSAGE, _INFER_RESPONSE = 1, 2
_INFER_RESPONSE_KEY = key(_INFER_RESPONSE)


class InferMessage(Message, frozen=True):
    """The message of an inference whose response needs a special format.

    - `empty_final`: True if the message sets the parameter `triton_enable_empty_final_response`.
    - `typed`: True if the message's tensors are in typed contents.
    """

    empty_final: bool = False
    typed: bool = False


TYPED_REPLY = InferMessage(typed=True)
"""The origin of a Response with tensors that arrived in typed contents."""


def wants_empty_final(request: Request) -> bool:
    """Return True if the client counts responses until an empty final response."""
    return isinstance(request.origin, InferMessage) and request.origin.empty_final


def set_final(response: Protobuf) -> None:
    """Mark the ModelInferResponse as the last response to its request."""
    response.parameters[FINAL_RESPONSE].bool_param = True


def wrap_response(response: Parts) -> Parts:
    """Return the ModelStreamInferResponse that contains a ModelInferResponse, both in parts."""
    size = sum(map(len, response))
    first, *rest = response or (b"",)
    return (_INFER_RESPONSE_KEY + varint(size) + bytes(first), *rest)


def unwrap_response(body: Buffer) -> tuple[Buffer, str]:
    """Return the ModelInferResponse, as a view, and the error message in a ModelStreamInferResponse. Both can be empty.

    Raises:
        DecodeError: the body is not a ModelStreamInferResponse.
    """
    rest, taken = cut(memoryview(body), (_INFER_RESPONSE,), Allowance())
    return taken[0][1] if taken else b"", parse(ModelStreamInferResponse, rest).error_message


def encode_end(request: Request) -> Message | None:
    """Return the empty final response to send after the last response to `request`, or None if the client does not need
    one.

    Do not call this function after an error, because the error itself is the last response."""
    if not wants_empty_final(request):
        return None
    final = ModelInferResponse(model_name=request.model, model_version=request.version, id=request.id)
    set_final(final)
    return Message(parts=wrap_response((final.SerializeToString(),)))
