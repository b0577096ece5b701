"""Reads and writes metadata (client side and upstream side). Complete model metadata requires three requests:
`/InputSizes`, `/OutputSizes` and `/ModelInfo`. `/Info` lists the models."""

from math import prod

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.json import Json, write
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.requests import Answer, Request
from gateway.protocols.umbridge.errors import excerpt, required
from gateway.protocols.umbridge.schema import CALLS, INPUT_SIZES, NAME, OUTPUT_SIZES, PROTOCOL_VERSION, SIZES_KEYS
from gateway.protocols.umbridge.vectors import no_numbers

JsonObject = dict[str, Json]

MAX_SIZE = 2**53
"""Maximum vector size that every JSON reader decodes exactly."""


# Upstream side


def decode_input_sizes(body: JsonObject, request: Request) -> Signature:
    """Return a Signature with only the inputs, which are FP64 vectors without names."""
    return Signature(inputs=_decode_sizes(body, SIZES_KEYS[INPUT_SIZES]), operations=frozenset())


def decode_output_sizes(body: JsonObject, request: Request) -> Signature:
    """Return a Signature with only the outputs, which are FP64 vectors without names."""
    return Signature(outputs=_decode_sizes(body, SIZES_KEYS[OUTPUT_SIZES]), operations=frozenset())


def _decode_sizes(body: JsonObject, key: str) -> tuple[TensorSpec, ...]:
    sizes = _required_list(body, key)
    return tuple(TensorSpec("", Datatype.FP64, (_decode_size(size, f'"{key}" {at}'),)) for at, size in enumerate(sizes))


def _decode_size(size: Json, what: str) -> int:
    number = int(size) if isinstance(size, float) and size.is_integer() else size
    if type(number) is not int or not 0 <= number <= MAX_SIZE:
        raise DecodeError(f"{what} is {excerpt(size)}, expected the length of a vector")
    return number


def decode_model_info(body: JsonObject, request: Request) -> Signature:
    """Return a Signature with only the operations. An operation that is missing from `support` is not supported."""
    support = required(body, "support", "reply")
    if not isinstance(support, dict):
        raise DecodeError(f'"support" is {excerpt(support)}, expected an object of booleans')
    return Signature(operations=frozenset(operation for call, operation in CALLS.items() if support.get(call)))


def decode_models(body: JsonObject, request: Request) -> tuple[ModelEntry, ...]:
    """Return the models in a response to `/Info`."""
    return tuple(ModelEntry(_decode_model(model)) for model in _required_list(body, "models"))


def _decode_model(model: Json) -> str:
    if not isinstance(model, str):
        raise DecodeError(f'"models" holds {excerpt(model)}, expected names')
    return model


def decode_server(body: JsonObject, request: Request) -> ServerInfo:
    """Return the server in a response to `/Info`, which reports a version but no name."""
    return ServerInfo(NAME, str(required(body, "protocolVersion", "reply")))


def decode_live(body: JsonObject, request: Request) -> bool:
    """Return True, because a server that responds to `/Info` is live and ready."""
    _required_list(body, "models")
    return True


def decode_model_ready(body: JsonObject, request: Request) -> bool:
    """Return whether `/Info` lists the model."""
    return request.model in _required_list(body, "models")


def _required_list(body: JsonObject, key: str) -> list[Json]:
    values = required(body, key, "reply")
    if not isinstance(values, list):
        raise DecodeError(f'"{key}" is {excerpt(values)}, expected a list')
    return values


# Client side


def encode_input_sizes(answer: Answer, nan: str) -> tuple[bytes, ...]:
    """Return the sizes of a Signature's inputs."""
    assert isinstance(answer, Signature)
    return (write({SIZES_KEYS[INPUT_SIZES]: [_size(spec, "input") for spec in answer.inputs]}),)


def encode_output_sizes(answer: Answer, nan: str) -> tuple[bytes, ...]:
    """Return the sizes of a Signature's outputs."""
    assert isinstance(answer, Signature)
    return (write({SIZES_KEYS[OUTPUT_SIZES]: [_size(spec, "output") for spec in answer.outputs]}),)


def _size(spec: TensorSpec, role: str) -> int:
    """Return the length of the tensor's vector. The batch dimension has already been removed."""
    if spec.datatype is Datatype.BYTES:
        raise no_numbers(f"{role} {spec.name!r}")
    if min(spec.shape, default=0) < 0:
        found = f"{role} {spec.name!r} has a free dimension, {list(spec.shape)}"
        raise refusal(Reason.FAILED_PRECONDITION, f"{found}; the route's `signature` must give its size")
    return prod(spec.shape)


def encode_model_info(answer: Answer, nan: str) -> tuple[bytes, ...]:
    """Return whether a Signature's operations include each of the four calls."""
    assert isinstance(answer, Signature)
    return (write({"support": {call: operation in answer.operations for call, operation in CALLS.items()}}),)


def encode_info(answer: Answer, nan: str) -> tuple[bytes, ...]:
    """Return the model names."""
    assert isinstance(answer, tuple)
    return (write({"protocolVersion": PROTOCOL_VERSION, "models": [entry.name for entry in answer]}),)
