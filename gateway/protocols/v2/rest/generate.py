"""Reads and writes the messages of Triton's `generate` extension, for clients and for backends.

The inputs and parameters of a request are members of one JSON object, under their own names. The outputs of a response
have the same form. Tensors are flat lists, or scalars, without a datatype.

    POST v2/models/upper/generate  {"text": "hello", "temperature": 0.5}
    {"model_name": "upper", "model_version": "1", "upper": "HELLO"}
"""

from functools import partial
from typing import Any

from gateway.core import bytes_elements, json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.frozen import replace
from gateway.core.json import Array
from gateway.core.messages import JSON_HEADERS, Buffer, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Parameters, ParameterValue, Tensor
from gateway.core.tensors import tensor as make_tensor
from gateway.protocols.v2.parameters import (
    FINAL_RESPONSE,
    PRIORITY,
    refuse_shared_memory,
    take_deadline,
    without_consumed,
)
from gateway.protocols.v2.rest.messages import JsonObject, checked_id, read_string
from gateway.protocols.v2.rest.parameters import json_parameters, nested_parameter, read_parameters
from gateway.protocols.v2.rest.paths import backend_path
from gateway.protocols.v2.rest.tensors import REFUSED_IN_JSON, write_strings
from gateway.protocols.v2.tensors import check_size, widen

_WHAT = "the request"

_ID, _PARAMETERS = "id", "parameters"
_REQUEST_MEMBERS = frozenset({_ID, _PARAMETERS})
_RESPONSE_MEMBERS = frozenset({_ID, "model_name", "model_version"})
"""Members that never count as tensors, even if the model has tensors with these names."""


# --- client side ---


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a message for `generate`.

    The bridge adds datatypes and shapes to the tensors. If the body contains null instead of a number, the Request has
    a flaw.

    Raises:
        DecodeError: the body is not a JSON object of scalars and arrays.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds the limit.
    """
    try:
        return _read_request(message.body, message, listener.limits)
    except DecodeError as error:
        read = partial(_read_request, message=message, limits=listener.limits)
        request = json.missing.reread(error, message.body, read, members=True)
        return replace(request, flaw=json.missing.flaw(error))


def _read_request(body: Buffer, message: Message, limits: Limits) -> Request:
    document = json.read_members(body, _REQUEST_MEMBERS, values=limits.json_values, literals=True)
    parameters = read_parameters(document.pop(_PARAMETERS, None), _WHAT)
    if text := nested_parameter(parameters, (), _WHAT, ""):
        raise DecodeError(f"{text}, and there only in `infer`")
    request_id = checked_id(document.get(_ID))
    document.pop(_ID, None)
    for key in document:
        if key in parameters:
            raise DecodeError(f"{_WHAT}: {key!r} occurs twice, inside of parameters and beside it")
    inputs, scalars = _split_members(document, "input", limits)
    parameters.update(scalars)
    refuse_shared_memory(parameters, _WHAT)
    deadline = take_deadline(parameters, message, _WHAT)
    return Request(
        Operation.INFER,
        message.captures["model"],
        message.captures.get("version", ""),
        request_id,
        inputs,
        parameters=without_consumed(parameters),
        deadline=deadline,
        origin=message,
        schemaless=True,
    )


def _split_members(
    document: JsonObject, role: str, limits: Limits
) -> tuple[tuple[Tensor, ...], dict[str, ParameterValue]]:
    """Return the arrays in `document` as untyped tensors, and the scalars."""
    arrays = {key: each for key, each in document.items() if each.shape}
    scalars = {key: _read_scalar(each) for key, each in document.items() if not each.shape}
    tensors = [_read_tensor(key, each, f"{role} {key!r}", limits) for key, each in arrays.items()]
    return tuple(tensors), scalars


def _read_scalar(array: Array) -> ParameterValue:
    if isinstance(array.values, bytes):
        return bytes_elements.unpack(array.values)[0].decode()
    scalar: ParameterValue = array.values[0].item()
    return scalar


def _read_tensor(name: str, array: Array, what: str, limits: Limits) -> Tensor:
    values, shape = array.values, array.shape
    if isinstance(values, bytes):
        check_size(shape, Datatype.BYTES, limits.message, what)
        return Tensor(name, Datatype.BYTES, shape, values, untyped=True)
    tensor = replace(make_tensor(name, values.reshape(shape)), untyped=True)
    check_size(shape, tensor.datatype, limits.message, what)
    return tensor


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a `generate` request, with its members sorted by name, as in Triton.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent an output. The message says which.
    """
    assert isinstance(answer, Response)
    document: JsonObject = dict(json_parameters(answer.parameters, "the response"))
    document.pop(FINAL_RESPONSE, None)
    document["model_name"] = request.model or answer.model
    version = request.version or answer.version
    if version:
        document["model_version"] = version
    if request.id is not None:
        document[_ID] = request.id
    for output in answer.outputs:
        document[output.name] = _write_output(widen(output, REFUSED_IN_JSON), translate, f"output {output.name!r}")
    ordered = {key: document[key] for key in sorted(document)}
    return Message(headers=JSON_HEADERS, parts=json.write_message(ordered), status=200)


def _write_output(tensor: Tensor, translate: Translate, what: str) -> Any:
    """Return a flat list, or a scalar if the output has one element, as in Triton."""
    if tensor.datatype is Datatype.BYTES:
        texts = write_strings(tensor, translate, what)
        return texts[0] if isinstance(texts, list) and len(texts) == 1 else texts
    values = tensor.array.reshape(() if tensor.elements == 1 else -1)
    return json.placed(json.number_pieces(values, translate.nan or "error", what))


# --- upstream side ---

_FOR_TRITON = Translate(nan="literal")
"""Triton reads NaN and Infinity, but does not decode base64 strings, so the route's `bytes` does not apply."""


def encode_request(request: Request, target: Target) -> Message:
    """Return the request for a stream from a Triton server.

    Raises:
        GatewayError: UNIMPLEMENTED if generate_stream cannot represent a part of the request (the message says which),
        in which case the caller can use another operation; INVALID_ARGUMENT and NOT_FOUND as in `backend_path`.
    """
    path = backend_path(request, target, "/generate_stream")
    parameters = _parameters(request)
    document: JsonObject = {} if request.id is None else {_ID: request.id}
    if parameters:
        document[_PARAMETERS] = parameters
    for tensor in request.inputs:
        document[tensor.name] = _write_input(tensor)
    return Message("POST", path, JSON_HEADERS, json.write_message(document))


def _parameters(request: Request) -> Parameters:
    try:
        parameters = json_parameters(request.parameters, _WHAT)
    except GatewayError as error:
        raise unsupported(error.message) from error
    names = {tensor.name for tensor in request.inputs}
    for key in request.parameters:
        # Triton 2.51 passes these parameters to the model, but starts no sequence
        if key.startswith("sequence_"):
            raise unsupported(f"Triton's generate_stream has no sequences, and {_WHAT} has the parameter {key!r}")
        if key == PRIORITY:
            raise unsupported(f"Triton's generate_stream has no priorities, and {_WHAT} has the parameter {key!r}")
        if key in names:
            raise unsupported(
                f"Triton's generate_stream cannot distinguish parameter {key!r} from the input with this name; rename "
                "one"
            )
    if any(output.parameters for output in request.outputs):
        raise unsupported("Triton's generate_stream takes no parameters of outputs")
    return parameters


def _write_input(tensor: Tensor) -> Any:
    """Return an input as a flat list. Triton reads the shape from the model's metadata."""
    what, shape = f"input {tensor.name!r}", list(tensor.shape)
    if tensor.name in _REQUEST_MEMBERS:
        raise unsupported(
            f"Triton's generate_stream reads {tensor.name!r} as its own member, not as an input; rename the input"
        )
    if tensor.datatype in REFUSED_IN_JSON:
        raise unsupported(f"{what} is {tensor.datatype}, which Triton's generate_stream does not take")
    if any(size != 1 for size in shape[:-1]) or (len(shape) > 1 and not tensor.elements):
        raise unsupported(
            f"{what} has shape {shape}, but Triton's generate_stream takes vectors only; over v2-grpc it streams any"
        )
    try:
        if tensor.datatype is Datatype.BYTES:
            return write_strings(tensor, _FOR_TRITON, what)
        return json.placed(json.written(tensor.data, tensor.datatype, "literal", what))
    except GatewayError as error:
        raise unsupported(error.message) from error


def decode_response(reply: Message, limits: Limits) -> Response:
    """Return one response of a Triton stream. The bridge adds datatypes and shapes to the tensors.

    Raises:
        DecodeError: `reply` is not a response of `generate`.
    """
    return read_response(reply.body, reply, limits)


def read_response(body: Buffer, reply: Message, limits: Limits) -> Response:
    """Return the response in `body`, the text of `reply`, like `decode_response`."""
    document = json.read_members(body, _RESPONSE_MEMBERS, values=limits.json_values, literals=True)
    if "model_name" not in document:
        raise DecodeError("model_name is missing")
    members = {key: document.pop(key) for key in _RESPONSE_MEMBERS if key in document}
    outputs, scalars = _split_members(document, "output", limits)
    return Response(
        outputs,
        read_string(members, "model_name"),
        read_string(members, "model_version"),
        read_string(members, _ID) or None,
        scalars,
        reply,
        schemaless=True,
    )
