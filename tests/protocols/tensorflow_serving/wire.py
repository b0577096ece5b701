"""Messages of TensorFlow Serving to and from the codec, with nothing in between."""

from typing import Any

from gateway.assembly.registry import protocols
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import ProtobufClass, Schema
from gateway.core.protocol import DEFAULT_LIMITS, Limits, ListenerSettings, Target
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.tensorflow_serving.schema import DESCRIPTORS

TFS = protocols()["tfs-grpc"]
TARGET = Target("tf", "127.0.0.1:8500")

PREDICTION = "/tensorflow.serving.PredictionService/"
MODELS = "/tensorflow.serving.ModelService/"

_SCHEMA = Schema(DESCRIPTORS)


def google(name: str) -> ProtobufClass:
    """The message of this full name as Google's library has it."""
    return _SCHEMA.message(name)


def asked(body: Buffer, method: str = f"{PREDICTION}Predict", limits: Limits = DEFAULT_LIMITS) -> Request:
    """The request in a client's message."""
    message = Message(path=method, pattern=method, parts=(body,))
    return TFS.decode_request(message, ListenerSettings("in", limits))


def sent(request: Request) -> tuple[str, bytes]:
    """The method and the message to a backend."""
    message = TFS.encode_request(request, TARGET)
    return message.path, bytes(message.body)


def told(answer: Answer, request: Request) -> bytes:
    """The reply to a client."""
    reply = TFS.encode_response(answer, request, Translate())
    assert not reply.status
    return bytes(reply.body)


def answered(body: bytes, request: Request, status: int = 0) -> Answer:
    """The answer in a backend's reply."""
    return TFS.decode_response(Message(parts=(body,), status=status), request, TARGET)


def outputs(body: bytes, request: Request) -> tuple[Tensor, ...]:
    response = answered(body, request)
    assert isinstance(response, Response)
    return response.outputs


def infer(*inputs: Tensor, payload: str = "", **fields: Any) -> Request:
    """An inference of the model `m`."""
    request = Request(Operation.INFER, "m", inputs=inputs, translate=Translate(payload=payload))
    return replace(request, **fields)


def refused(body: Buffer, method: str = f"{PREDICTION}Predict", limits: Limits = DEFAULT_LIMITS) -> str:
    """The text of the error for a client's message."""
    try:
        found = asked(body, method, limits)
    except (DecodeError, GatewayError) as error:
        return str(error)
    raise AssertionError(f"accepted: {found}")
