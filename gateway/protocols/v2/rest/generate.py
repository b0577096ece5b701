"""Triton's `generate`: the inputs and parameters of a request, and the outputs of a response, are members of one JSON
object by their names, tensors flat and without a datatype.

    POST v2/models/upper/generate  {"text": "hello", "temperature": 0.5}
    {"model_name": "upper", "model_version": "1", "upper": "HELLO"}
"""

from typing import Any

from gateway import json
from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.types import (
    Answer,
    Message,
    ParameterValue,
    Request,
    Response,
    Tensor,
    Translate,
)
from gateway.core.types import tensor as make_tensor
from gateway.json import Array
from gateway.protocols.v2.parameters import (
    FINAL_RESPONSE,
    read_parameters,
    refuse_shared_memory,
    take_deadline,
    without_consumed,
    writable,
)
from gateway.protocols.v2.rest.binary import JSON_HEADERS
from gateway.protocols.v2.rest.json_fields import Entry, read_id, read_text
from gateway.protocols.v2.rest.paths import backend_path
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON, strings
from gateway.protocols.v2.tensors import check_size
from gateway.protocols.v2.widening import widened

_WHAT = "the request"

_ID, _PARAMETERS = "id", "parameters"
_OF_REQUESTS = frozenset({_ID, _PARAMETERS})
_OF_RESPONSES = frozenset({_ID, "model_name", "model_version"})
"""Members that are no tensors, whatever the model's are called."""


def decode_members(message: Message, listener: ListenerSettings) -> Request:
    """A request of `generate`, which the bridge makes typed tensors of.

    Raises:
        DecodeError: not a JSON object of scalars and arrays.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    limits = listener.limits
    document = json.read_members(message.body, _OF_REQUESTS, values=limits.json_values, literals=True)
    parameters = read_parameters(document.pop(_PARAMETERS, None), _WHAT)
    given_id = read_id(document.pop(_ID, None))
    for key in document:
        if key in parameters:
            raise DecodeError(f"{_WHAT}: {key!r} stands among the parameters and beside them")
    inputs, scalars = _apart(document, "input", limits)
    parameters.update(scalars)
    refuse_shared_memory(parameters, _WHAT)
    deadline = take_deadline(parameters, message, _WHAT)
    return Request(
        Operation.INFER,
        message.captures["model"],
        message.captures.get("version", ""),
        given_id,
        inputs,
        parameters=without_consumed(parameters),
        deadline=deadline,
        origin=message,
        schemaless=True,
    )


def _apart(document: Entry, role: str, limits: Limits) -> tuple[tuple[Tensor, ...], dict[str, ParameterValue]]:
    """The arrays as untyped tensors, and the scalars."""
    arrays = {key: each for key, each in document.items() if each.shape}
    scalars = {key: _scalar(each) for key, each in document.items() if not each.shape}
    tensors = [_tensor(key, each, f"{role} {key!r}", limits) for key, each in arrays.items()]
    return tuple(tensors), scalars


def _scalar(array: Array) -> ParameterValue:
    if isinstance(array.values, bytes):
        return bytes_elements.unpack(array.values)[0].decode()
    scalar: ParameterValue = array.values[0].item()
    return scalar


def _tensor(name: str, array: Array, what: str, limits: Limits) -> Tensor:
    values, shape = array.values, array.shape
    if isinstance(values, bytes):
        check_size(shape, Datatype.BYTES, limits.message, what)
        return Tensor(name, Datatype.BYTES, shape, values, untyped=True)
    found = replace(make_tensor(name, values.reshape(shape)), untyped=True)
    check_size(shape, found.datatype, limits.message, what)
    return found


def encode_members(answer: Answer, request: Request, translate: Translate) -> Message:
    """The response to such a request, its members in the order of their names, as Triton's.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no JSON form.
    """
    assert isinstance(answer, Response)
    document: Entry = dict(writable(answer.parameters, "the response"))
    document.pop(FINAL_RESPONSE, None)
    document["model_name"] = request.model or answer.model
    version = request.version or answer.version
    if version:
        document["model_version"] = version
    if request.id is not None:
        document[_ID] = request.id
    for output in answer.outputs:
        document[output.name] = _member(widened(output, WITHOUT_JSON), translate, f"output {output.name!r}")
    ordered = {key: document[key] for key in sorted(document)}
    return Message(headers=JSON_HEADERS, parts=json.write_parts(ordered), status=200)


def _member(tensor: Tensor, translate: Translate, what: str) -> Any:
    """A flat list; of one element that alone, as Triton writes it."""
    if tensor.datatype is Datatype.BYTES:
        texts = strings(tensor, translate, what)
        return texts[0] if isinstance(texts, list) and len(texts) == 1 else texts
    values = tensor.array.reshape(() if tensor.elements == 1 else -1)
    return json.numbers(values, translate.nan or "error", what)


_FOR_TRITON = Translate(nan="literal")
"""Triton reads NaN and Infinity; of texts it would not know that they are base64."""


def encode_request(request: Request, target: Target) -> Message:
    """The request that asks a Triton for a stream.

    Raises:
        GatewayError: UNIMPLEMENTED for what has no form in it, so that the call may go another way; as `backend_path`.
    """
    path = backend_path(request, target, "/generate_stream")
    _check_parameters(request)
    document: Entry = {} if request.id is None else {_ID: request.id}
    if request.parameters:
        document[_PARAMETERS] = request.parameters
    for tensor in request.inputs:
        document[tensor.name] = _given(tensor)
    return Message("POST", path, JSON_HEADERS, json.write_parts(document))


def _check_parameters(request: Request) -> None:
    try:
        writable(request.parameters, _WHAT)
    except GatewayError as error:
        raise unsupported(error.message) from error
    names = {tensor.name for tensor in request.inputs}
    for key in request.parameters:
        # Triton 2.51 hands them to the model and begins no sequence
        if key.startswith("sequence_"):
            raise unsupported(f"Triton's generate_stream has no sequences, and {_WHAT} has the parameter {key!r}")
        if key in names:
            raise unsupported(f"Triton's generate_stream cannot tell parameter {key!r} from the input of that name")
    if any(output.parameters for output in request.outputs):
        raise unsupported("Triton's generate_stream takes no parameters of outputs")


def _given(tensor: Tensor) -> Any:
    """The flat list that Triton gives the shape which its model's metadata leaves open."""
    what, shape = f"input {tensor.name!r}", list(tensor.shape)
    if tensor.name in _OF_REQUESTS:
        raise unsupported(f"Triton's generate_stream takes {tensor.name!r} for a word of its own, not for an input")
    if tensor.datatype in WITHOUT_JSON:
        raise unsupported(f"{what} is {tensor.datatype}, which Triton's generate_stream does not take")
    if any(size != 1 for size in shape[:-1]) or (len(shape) > 1 and not tensor.elements):
        raise unsupported(
            f"{what} has shape {shape}, but Triton's generate_stream takes vectors only; over v2-grpc it streams any"
        )
    try:
        if tensor.datatype is Datatype.BYTES:
            return strings(tensor, _FOR_TRITON, what)
        return json.numbers(tensor.array.reshape(-1), _FOR_TRITON.nan, what)
    except GatewayError as error:
        raise unsupported(error.message) from error


def decode_response(reply: Message, limits: Limits) -> Response:
    """One response of a Triton's stream, which the bridge makes typed tensors of.

    Raises:
        DecodeError: not a response of generate.
    """
    document = json.read_members(reply.body, _OF_RESPONSES, values=limits.json_values, literals=True)
    if "model_name" not in document:
        raise DecodeError("model_name is missing")
    own = {key: document.pop(key) for key in _OF_RESPONSES if key in document}
    outputs, scalars = _apart(document, "output", limits)
    return Response(
        outputs,
        read_text(own, "model_name"),
        read_text(own, "model_version"),
        read_text(own, _ID) or None,
        scalars,
        reply,
        schemaless=True,
    )
