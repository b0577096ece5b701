"""Facing backends: canonical Requests to requests, replies to Answers."""

from collections.abc import Callable, Iterator, Mapping

from gateway.core.datatypes import Kind
from gateway.core.errors import invalid_input, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, INFER, Operation
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Request, Response, Tensor, post
from gateway.json import ArrayForm, Json, read, write
from gateway.protocols.umbridge import errors, metadata, verbatim
from gateway.protocols.umbridge.config import encode_config
from gateway.protocols.umbridge.errors import required
from gateway.protocols.umbridge.recalled import remember_response, response_like_before
from gateway.protocols.umbridge.schema import (
    INPUT_SIZES,
    JSON_HEADERS,
    KEYS,
    MODEL_INFO,
    NAN,
    OUTPUT_SIZES,
    PARTS,
    PATHS,
)
from gateway.protocols.umbridge.vectors import decode_vector, encode_object, encode_vector, encode_vectors, few_doubles

# UM-Bridge has no request for health or for one model's state: a server that answers `/Info` is taken as ready.
INFO_OPERATIONS = frozenset(
    {Operation.LIVE, Operation.READY, Operation.SERVER_METADATA, Operation.MODELS, Operation.MODEL_READY}
)


def encode_request(request: Request, target: Target) -> Message:
    """One HTTP request with the keys of the Python client, in its order. Every input becomes a vector; the last inputs
    of a derivative are the tensors of DERIVATIVES.

    Raises:
        GatewayError: UNIMPLEMENTED, an operation or a datatype that UM-Bridge does not have; INVALID_ARGUMENT, an index
            that is not one integer, or a parameter that UM-Bridge does not have.
    """
    if request.operation in PATHS:
        return _call(request, target)
    if request.operation is Operation.METADATA and request.part in PARTS:
        members = _metadata_members(request, target)
        return post(f"/{request.part}", JSON_HEADERS, encode_object(members), request.deadline)
    if request.operation in INFO_OPERATIONS:
        return Message("GET", "/Info", deadline=request.deadline)
    raise unsupported(f"operation {request.operation.value!r} is not supported by UM-Bridge")


def _call(request: Request, target: Target) -> Message:
    path, original = PATHS[request.operation], request.original
    if original is not None and original.form is verbatim.REQUESTS[request.operation]:
        original = verbatim.request_as_it_came(request)
        if original is not None:
            encode_config(request, target)  # for its checks
            return post(path, JSON_HEADERS, original.parts, request.deadline)
    if request.operation is INFER and not request.parameters and (vector := few_doubles(request.inputs)) is not None:
        # As `_call_members` says it, in one step.
        body = b'{"name":%b,"input":[%b],"config":{}}' % (write(request.model), vector)
        return post(path, JSON_HEADERS, (body,), request.deadline)
    return post(path, JSON_HEADERS, encode_object(_call_members(request, target)), request.deadline)


def _metadata_members(request: Request, target: Target) -> Iterator[tuple[str, tuple[bytes, ...]]]:
    yield "name", (write(request.model),)
    if request.part != MODEL_INFO:
        yield "config", (encode_config(request, target),)


def _call_members(request: Request, target: Target) -> list[tuple[str, tuple[bytes, ...]]]:
    names = DERIVATIVES.get(request.operation, ())
    inputs, rest = _split_inputs(request, len(names))
    tensors = dict(zip(names, rest, strict=True))
    members: list[tuple[str, tuple[bytes, ...]]] = [("name", (write(request.model),))]
    for name in names:
        if name in INDEX_TENSORS:
            members.append((KEYS[name], (_encode_index(name, tensors[name]),)))
    members.append(("input", encode_vectors(inputs, NAN, "input")))
    for name in names:
        if name not in INDEX_TENSORS:
            members.append((KEYS[name], encode_vector(tensors[name], NAN, name)))
    members.append(("config", (encode_config(request, target),)))
    return members


def _split_inputs(request: Request, count: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The model's own inputs, and the last `count` inputs, which are the tensors of the derivative."""
    at = len(request.inputs) - count
    if at < 0:
        needed = ", ".join(DERIVATIVES[request.operation])
        raise invalid_input(f"{request.operation.value} got {len(request.inputs)} tensors; {needed} must be the last")
    return request.inputs[:at], request.inputs[at:]


def _encode_index(name: str, tensor: Tensor) -> bytes:
    if tensor.datatype.kind not in (Kind.SIGNED, Kind.UNSIGNED) or tensor.elements != 1:
        raise invalid_input(f"{name} is {tensor.datatype} of shape {list(tensor.shape)}, expected one integer")
    return b"%d" % int(tensor.array.reshape(-1)[0])


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """The Answer in one HTTP reply. Outputs of Evaluate have no names and no datatype; a derivative is one tensor.

    Content-Type is ignored: the Python server sends numbers as text/plain. Only a status of 2xx is a success. The
    Python and the C++ client ignore the status and take an `error` under 200 for one, but no server is known to send an
    `output` under another status.

    Raises:
        DecodeError: the body is not the reply to the request.
        GatewayError: the error that the server reported.
    """
    if not 200 <= message.status < 300:
        raise errors.decode_error_reply(message, target)
    if request.operation is INFER and (known := response_like_before(message, target.limits)) is not None:
        return known
    array_keys, decode_body = _BODY_DECODERS[request.operation, request.part]
    body = read(message.body, array_keys, values=target.limits.json_values, literals=True, level=1)
    if "error" in body:
        raise errors.decode_error(body["error"], message)
    answer = decode_body(body, request)
    if request.operation in PATHS:
        assert isinstance(answer, Response)
        answer = replace(answer, original=verbatim.of_response(request.operation, body, message, answer.outputs))
        if request.operation is INFER:
            remember_response(message, answer)
    return answer


def _decode_outputs(body: dict[str, Json], request: Request) -> Response:
    vectors = enumerate(required(body, "output", "reply"))
    return Response(tuple([decode_vector("", vector, f"output {at}") for at, vector in vectors]))


def _decode_derivative(body: dict[str, Json], request: Request) -> Response:
    return Response((decode_vector(COMPANION_OUTPUT, required(body, "output", "reply"), "output"),))


_VECTORS: Mapping[str, ArrayForm] = {"output": ArrayForm.VECTORS}
_VECTOR: Mapping[str, ArrayForm] = {"output": ArrayForm.ARRAY}
_NO_ARRAYS: Mapping[str, ArrayForm] = {}

_BODY_DECODERS: dict[
    tuple[Operation, str], tuple[Mapping[str, ArrayForm], Callable[[dict[str, Json], Request], Answer]]
] = {
    (Operation.INFER, ""): (_VECTORS, _decode_outputs),
    **{(operation, ""): (_VECTOR, _decode_derivative) for operation in DERIVATIVES},
    (Operation.METADATA, INPUT_SIZES): (_NO_ARRAYS, metadata.decode_input_sizes),
    (Operation.METADATA, OUTPUT_SIZES): (_NO_ARRAYS, metadata.decode_output_sizes),
    (Operation.METADATA, MODEL_INFO): (_NO_ARRAYS, metadata.decode_model_info),
    (Operation.MODELS, ""): (_NO_ARRAYS, metadata.decode_models),
    (Operation.SERVER_METADATA, ""): (_NO_ARRAYS, metadata.decode_server),
    (Operation.LIVE, ""): (_NO_ARRAYS, metadata.decode_live),
    (Operation.READY, ""): (_NO_ARRAYS, metadata.decode_live),
    (Operation.MODEL_READY, ""): (_NO_ARRAYS, metadata.decode_model_ready),
}
"""For each operation and part: the keys of the reply that are read as arrays, and what decodes the reply."""
