"""V2 gRPC's inference response: read from backends, written to clients."""

from gateway.core.protocol import Target
from gateway.core.types import Answer, Buffer, Message, Parameters, Request, Response, Translate
from gateway.protobuf.schema import Protobuf, not_utf8
from gateway.protocols.v2.grpc.parameters import read_parameters, write_parameters
from gateway.protocols.v2.grpc.schema import ModelInferResponse
from gateway.protocols.v2.grpc.tensors import REPLY, Parts, read_inference, read_tensors, write_inference

_WHAT = "the response"

_NOTHING = Response()


def encode_infer(answer: Answer, request: Request, translate: Translate) -> Message:
    """A ModelInferResponse, raw: tritonclient reads typed numbers as an empty array.

    Raises:
        GatewayError: INVALID_ARGUMENT, a text that is not UTF-8.
    """
    assert isinstance(answer, Response)
    return Message(parts=write_response(answer, request, answer.parameters))


def write_response(response: Response, request: Request, parameters: Parameters) -> Parts:
    """The ModelInferResponse of `response`, with `parameters` in the place of its own. Raises as encode_infer does."""
    try:
        head = write_head(request, response)
        write_parameters(head.parameters, parameters, "", _WHAT)
        return write_inference(head, REPLY, response.outputs)
    except UnicodeEncodeError as error:
        raise not_utf8(error, _WHAT) from error


def write_head(request: Request, response: Response = _NOTHING) -> Protobuf:
    """A ModelInferResponse that names what the client asked for: MLServer answers one without an id with a UUID."""
    return ModelInferResponse(
        model_name=request.model or response.model,
        model_version=request.version or response.version,
        id=request.id,
    )


def decode_infer(reply: Message, target: Target) -> Response:
    """The response in `reply`, raw or typed.

    Raises:
        DecodeError: not an inference response.
    """
    return read_response(reply.body, reply, target)


def read_response(body: Buffer, reply: Message, target: Target) -> Response:
    """The ModelInferResponse in `body`, which is `reply`'s or a part of it. Raises as decode_infer does."""
    inference = read_inference(body, REPLY)
    head = inference.message
    return Response(
        read_tensors(inference, REPLY, target.limits.message),
        head.model_name,
        head.model_version,
        head.id or None,
        read_parameters(head.parameters, _WHAT, reply=True),
        reply,
    )
