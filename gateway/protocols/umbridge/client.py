"""Converts canonical Requests to UM-Bridge requests, and UM-Bridge responses to Answers (upstream side)."""

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

from msgspec import Raw

from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.json import ArrayForm, Json, missing, read, write_message
from gateway.core.messages import JSON_HEADERS, Buffer, Message, post
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.umbridge import errors, metadata
from gateway.protocols.umbridge.config import encode_config
from gateway.protocols.umbridge.errors import required
from gateway.protocols.umbridge.schema import (
    CALLS_HEADER,
    DERIVATIVE_REPLIES,
    EVALUATE_REPLIES,
    INPUT_SIZES,
    KEYS,
    MANY,
    MODEL_INFO,
    NAN,
    OUTPUT_SIZES,
    PARTS,
    PATHS,
)
from gateway.protocols.umbridge.vectors import decode_vector, encode_vector, encode_vectors, read_vector

# UM-Bridge has no health and model-status requests, so a server that responds to `/Info` counts as ready.
INFO_OPERATIONS = frozenset(
    {Operation.LIVE, Operation.READY, Operation.SERVER_METADATA, Operation.MODELS, Operation.MODEL_READY}
)


def info(deadline: float | None = None) -> Message:
    """Return the request for the server version and the models."""
    return Message("GET", "/Info", deadline=deadline)


def takes_many(reply: Message) -> bool:
    """Return whether the response to `info` comes from a gateway, which accepts any number of concurrent calls."""
    return reply.status == HTTPStatus.OK and reply.headers.get(CALLS_HEADER) == MANY


def encode_request(request: Request, target: Target) -> Message:
    """Return one HTTP request with the keys that the Python client sends, in the same order.

    Every input becomes a vector. The last inputs of a derivative call are the tensors in DERIVATIVES.

    Raises:
        GatewayError: UNIMPLEMENTED if UM-Bridge does not support the operation or the datatype; INVALID_ARGUMENT if an
            index is not a single integer, or UM-Bridge does not support a parameter.
    """
    if request.operation in PATHS:
        return _call(request, target)
    if request.operation is Operation.METADATA and request.part in PARTS:
        parts = write_message(_metadata_body(request, target))
        return post(f"/{request.part}", JSON_HEADERS, parts, request.deadline)
    if request.operation in INFO_OPERATIONS:
        return info(request.deadline)
    raise unsupported(f"operation {request.operation.value!r} is not supported by UM-Bridge")


def _call(request: Request, target: Target) -> Message:
    parts = write_message(_call_body(request, target))
    return post(PATHS[request.operation], JSON_HEADERS, parts, request.deadline)


def _metadata_body(request: Request, target: Target) -> Json:
    if request.part == MODEL_INFO:
        return {"name": request.model}
    return {"name": request.model, "config": Raw(encode_config(request, target))}


def _call_body(request: Request, target: Target) -> Json:
    names, inputs = DERIVATIVES.get(request.operation), request.inputs
    body: dict[str, Json] = {"name": request.model}
    vectors: list[tuple[str, Tensor]] = []
    if names is not None:
        inputs, rest = _split_inputs(request, len(names))
        tensors = list(zip(names, rest, strict=True))
        body |= {KEYS[name]: _index(name, tensor) for name, tensor in tensors if name in INDEX_TENSORS}
        vectors = [each for each in tensors if each[0] not in INDEX_TENSORS]
    body["input"] = encode_vectors(inputs, NAN, "input")
    for name, tensor in vectors:
        body[KEYS[name]] = encode_vector(tensor, NAN, name)
    body["config"] = Raw(encode_config(request, target))
    return body


def _split_inputs(request: Request, count: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the model's own inputs, and the last `count` inputs, which are the tensors of the derivative call."""
    at = len(request.inputs) - count
    if at < 0:
        needed = ", ".join(DERIVATIVES[request.operation])
        raise invalid_input(f"{request.operation.value} got {len(request.inputs)} tensors; {needed} must be the last")
    return request.inputs[:at], request.inputs[at:]


def _index(name: str, tensor: Tensor) -> int:
    if tensor.datatype.kind not in (Kind.SIGNED, Kind.UNSIGNED) or tensor.elements != 1:
        raise invalid_input(f"{name} is {tensor.datatype} of shape {list(tensor.shape)}, expected one integer")
    return int(tensor.array.reshape(-1)[0])


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """Return the Answer in one HTTP response.

    Outputs of Evaluate have neither names nor a datatype. A derivative is one tensor.

    The gateway ignores Content-Type, because the Python server sends numbers as text/plain. Only a 2xx status is a
    success. The Python and C++ clients ignore the status, and treat an `error` with status 200 as an error, but no
    known server sends an `output` with another status.

    Raises:
        DecodeError: the body is not a valid response to the request.
        GatewayError: the error that the server reported.
    """
    if not 200 <= message.status < 300:
        raise errors.decode_error_reply(message, target)
    if request.operation in PATHS:
        return _decode_reply(message, request, target)
    body = _read_reply(message.body, message, {}, target.limits.of_lists.json_values)
    return _METADATA_DECODERS[request.operation, request.part](body, request)


def _read_reply(text: Buffer, message: Message, array_keys: Mapping[str, ArrayForm], values: int) -> dict[str, Json]:
    """Return the members of `text`, the body of `message`. Raise GatewayError if the body reports an error."""
    body = read(text, array_keys, values=values, literals=True, level=1)
    if "error" in body:
        raise errors.decode_error(body["error"], message)
    return body


def _decode_reply(message: Message, request: Request, target: Target) -> Response:
    """Return the Answer in the response to a call. On a route with `nan: null`, each null among numbers becomes NaN."""
    read_typed, read_general = (
        (_evaluation, _general_evaluation)
        if request.operation is Operation.INFER
        else (_derivative, _general_derivative)
    )
    text, values = message.parts[0] if len(message.parts) == 1 else b"", target.limits.json_values
    try:
        return Response(read_typed(text, values))
    except DecodeError:
        pass  # the general reader accepts the body, or reports the error
    read = partial(read_general, message=message, values=values)
    try:
        return Response(read(message.body))
    except DecodeError as error:
        return Response(missing.read_reply(error, message.body, read, request.translate.nan, members=False))


def _evaluation(text: Buffer, values: int) -> tuple[Tensor, ...]:
    body = EVALUATE_REPLIES.read(text, values)
    return tuple([read_vector("", text) for text in body.output])


def _derivative(text: Buffer, values: int) -> tuple[Tensor, ...]:
    body = DERIVATIVE_REPLIES.read(text, values)
    return (read_vector(COMPANION_OUTPUT, body.output),)


def _general_evaluation(text: Buffer, message: Message, values: int) -> tuple[Tensor, ...]:
    output = required(_read_reply(text, message, {"output": ArrayForm.VECTORS}, values), "output", "reply")
    return tuple([decode_vector("", vector, f"output {at}") for at, vector in enumerate(output)])


def _general_derivative(text: Buffer, message: Message, values: int) -> tuple[Tensor, ...]:
    output = required(_read_reply(text, message, {"output": ArrayForm.ARRAY}, values), "output", "reply")
    return (decode_vector(COMPANION_OUTPUT, output, "output"),)


_METADATA_DECODERS: dict[tuple[Operation, str], Callable[[dict[str, Json], Request], Answer]] = {
    (Operation.METADATA, INPUT_SIZES): metadata.decode_input_sizes,
    (Operation.METADATA, OUTPUT_SIZES): metadata.decode_output_sizes,
    (Operation.METADATA, MODEL_INFO): metadata.decode_model_info,
    (Operation.MODELS, ""): metadata.decode_models,
    (Operation.SERVER_METADATA, ""): metadata.decode_server,
    (Operation.LIVE, ""): metadata.decode_live,
    (Operation.READY, ""): metadata.decode_live,
    (Operation.MODEL_READY, ""): metadata.decode_model_ready,
}
"""The response decoder for each operation and part."""
