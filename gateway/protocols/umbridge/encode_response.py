"""What a UM-Bridge client is answered. No member beside those of the interface: the conformity suite forbids others."""

from collections.abc import Callable
from math import prod

from gateway.core.datatypes import Datatype
from gateway.core.errors import Reason, invalid_output, refusal, unsupported
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.types import Answer, Message, Request, Response, Signature, TensorSpec, Translate
from gateway.json import write
from gateway.protocols.umbridge.schema import (
    CALLS,
    INPUT_SIZES,
    JSON,
    MODEL_INFO,
    NAN,
    OUTPUT_SIZES,
    PROTOCOL_VERSION,
    SIZES,
    TEST_SHARED_MEMORY,
)
from gateway.protocols.umbridge.vectors import all_to_json, members, to_json


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The HTTP reply to a Request of decode_request.

    Raises:
        GatewayError: UNIMPLEMENTED, a tensor is BYTES; FAILED_PRECONDITION, a size is asked of a tensor with a free
            dimension; INTERNAL, a derivative that is not one tensor.
    """
    write_body = _BODIES[request.operation, request.part]
    return Message(headers=JSON, parts=write_body(answer, translate.nan or NAN), status=200)


def _evaluated(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Response)
    return members([("output", all_to_json(answer.outputs, nan, "output"))])


def _derived(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Response)
    if len(answer.outputs) != 1:
        names = ", ".join(repr(output.name) for output in answer.outputs) or "none"
        raise invalid_output(f"the derivative has {len(answer.outputs)} outputs ({names}), expected one")
    return members([("output", to_json(answer.outputs[0], nan, "output"))])


def _input_sizes(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Signature)
    return (write({SIZES[INPUT_SIZES]: [_size(spec, "input") for spec in answer.inputs]}),)


def _output_sizes(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Signature)
    return (write({SIZES[OUTPUT_SIZES]: [_size(spec, "output") for spec in answer.outputs]}),)


def _size(spec: TensorSpec, what: str) -> int:
    """The length of the vector that holds the tensor; the batch dimension is gone already."""
    if spec.datatype is Datatype.BYTES:
        raise unsupported(f"{what} {spec.name!r} is BYTES, but UM-Bridge carries numbers only")
    if min(spec.shape, default=0) < 0:
        found = f"{what} {spec.name!r} has a free dimension, {list(spec.shape)}"
        raise refusal(Reason.FAILED_PRECONDITION, f"{found}; the route's `signature` must tell its size")
    return prod(spec.shape)


def _model_info(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Signature)
    return (write({"support": {word: operation in answer.operations for word, operation in CALLS.items()}}),)


def _info(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, tuple)
    return (write({"protocolVersion": PROTOCOL_VERSION, "models": [entry.name for entry in answer]}),)


def _no_shared_memory(answer: Answer, nan: str) -> tuple[bytes, ...]:
    return (b"{}",)


_BODIES: dict[tuple[Operation, str], Callable[[Answer, str], tuple[bytes, ...]]] = {
    (Operation.INFER, ""): _evaluated,
    **{(operation, ""): _derived for operation in DERIVATIVES},
    (Operation.METADATA, INPUT_SIZES): _input_sizes,
    (Operation.METADATA, OUTPUT_SIZES): _output_sizes,
    (Operation.METADATA, MODEL_INFO): _model_info,
    (Operation.MODELS, ""): _info,
    (Operation.LIVE, TEST_SHARED_MEMORY): _no_shared_memory,
}
