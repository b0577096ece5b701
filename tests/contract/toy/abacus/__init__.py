"""`abacus`: JSON over HTTP, a whole protocol to copy. Its tensors are numbers; it has no BYTES.

    GET  /abacus                        {"abacus": "1.0", "models": ["double"]}
    GET  /abacus/{model}                {"takes": [BEADS], "gives": [BEADS], "does": ["infer", "gradient"]}
    POST /abacus/{model}/{operation}    {"beads": [BEADS], "wanted": ["y"]} to {"beads": [BEADS]}

BEADS are a tensor: {"name": "x", "kind": "FP64", "shape": [1, 2], "data": [0.5, 1]}, without data where they describe
one. An error is {"oops": "why", "reason": "invalid-input"} with the status 400, or 500 for the server's own.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np
from orjson import Fragment

from gateway.core import json
from gateway.core.casting import cast
from gateway.core.datatypes import DATATYPES, GATEWAY_DATATYPE, Datatype
from gateway.core.errors import (
    REASONS,
    DecodeError,
    GatewayError,
    Reason,
    Status,
    error_fields,
    invalid_input,
    refusal,
    unsupported,
)
from gateway.core.messages import Headers, Message
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.path_segments import path_segment
from gateway.core.protocol import HttpBinding, Limits, ListenerSettings, Models, Protocol, Target, Traits, Wire
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import MAX_RANK, Tensor

NAME = "abacus"
VERSION = "1.0"
JSON = Headers(((b"content-type", b"application/json"),))
CALLS = {operation.value: operation for operation in (Operation.INFER, *DERIVATIVES)}
ABOUT = (Operation.LIVE, Operation.READY, Operation.SERVER_METADATA, Operation.MODELS)
ABOUT_SERVER = "GET /abacus"
ABOUT_MODEL = "GET /abacus/{model}"
CALL = "POST /abacus/{model}/{operation}"
MAX_ELEMENTS = 2**53

Document = dict[str, Any]


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks."""
    if message.pattern == ABOUT_SERVER:
        return Request(Operation.MODELS)
    if message.pattern == ABOUT_MODEL:
        return Request(Operation.METADATA, message.captures["model"])
    operation = CALLS.get(message.captures["operation"])
    if operation is None:
        raise unsupported(f"abacus has no operation {message.captures['operation']!r}")
    body = _read(message, listener.limits)
    wanted = tuple(RequestedOutput(_text(name, "wanted")) for name in _list(body, "wanted"))
    return Request(operation, message.captures["model"], inputs=_tensors(body), outputs=wanted)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request of decode_request."""
    return Message(headers=JSON, parts=(json.write(_document(answer, translate)),), status=200)


def _document(answer: Answer, translate: Translate) -> Document:
    if isinstance(answer, Response):
        return {"beads": [_beads(tensor, translate) for tensor in answer.outputs]}
    if isinstance(answer, Signature):
        does = sorted(operation.value for operation in answer.operations)
        return {"takes": [*map(_describe, answer.inputs)], "gives": [*map(_describe, answer.outputs)], "does": does}
    assert isinstance(answer, tuple)
    return {"abacus": VERSION, "models": [entry.name for entry in answer]}


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells of `error`."""
    text = error.message.encode("utf-8", "replace").decode()
    status = 500 if error.status in (Status.INTERNAL, Status.UNKNOWN) else 400
    headers = Headers((*JSON.raw, *error_fields(error)))
    return Message(headers=headers, parts=(json.write({"oops": text, "reason": error.reason.value}),), status=status)


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`."""
    if request.operation in ABOUT:
        return Message("GET", "/abacus", deadline=request.deadline)
    if request.operation in (Operation.METADATA, Operation.MODEL_READY):
        return Message("GET", f"/abacus/{path_segment(request.model, 'model', NAME)}", deadline=request.deadline)
    if request.operation not in CALLS.values():
        raise unsupported(f"abacus has no operation {request.operation.value}")
    _refuse(request.parameters)
    for output in request.outputs:
        _refuse(output.parameters)
    document: Document = {"beads": [_beads(tensor, request.translate) for tensor in request.inputs]}
    if request.outputs:
        document["wanted"] = [output.name for output in request.outputs]
    path = f"/abacus/{path_segment(request.model, 'model', NAME)}/{request.operation.value}"
    return Message("POST", path, JSON, (json.write(document),), deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The answer in a reply of status 200, else the error that it tells."""
    body = _read(reply, target.limits)
    if reply.status != 200:
        error = refusal(REASONS.get(str(body.get("reason")), Reason.MODEL_ERROR), str(body.get("oops")))
        if request.operation is Operation.MODEL_READY and error.status is Status.NOT_FOUND:
            return False
        raise error
    return _ANSWERS.get(request.operation, _response)(body)


def _response(body: Document) -> Response:
    return Response(_tensors(body))


def _signature(body: Document) -> Signature:
    operations = frozenset(CALLS[name] for name in _list(body, "does") if name in CALLS)
    return Signature(_specs(body, "takes"), _specs(body, "gives"), operations)


def _server(body: Document) -> ServerInfo:
    return ServerInfo(NAME, _text(body.get("abacus"), "abacus"))


def _models(body: Document) -> tuple[ModelEntry, ...]:
    return tuple(ModelEntry(_text(name, "models")) for name in _list(body, "models"))


_ANSWERS: dict[Operation, Callable[[Document], Answer]] = {
    Operation.METADATA: _signature,
    Operation.SERVER_METADATA: _server,
    Operation.MODELS: _models,
    **dict.fromkeys((Operation.LIVE, Operation.READY, Operation.MODEL_READY), lambda body: True),
}


def _read(message: Message, limits: Limits) -> Document:
    return json.read(message.body, {"data": json.ArrayForm.ARRAY}, values=limits.json_values, literals=True, level=3)


def _tensors(body: Document) -> tuple[Tensor, ...]:
    return tuple(map(_tensor, _list(body, "beads")))


def _tensor(entry: object) -> Tensor:
    spec = _spec(entry)
    data = entry.get("data") if isinstance(entry, dict) else None
    if spec.datatype not in TRAITS.wire.datatypes or data is None or isinstance(data.values, bytes):
        raise DecodeError(f"beads {spec.name!r} have no numbers")
    if min(spec.shape, default=0) < 0 or prod(spec.shape) != len(data.values):
        raise DecodeError(f"beads {spec.name!r} have {len(data.values)} numbers, expected the shape {list(spec.shape)}")
    numbers = cast(np.asarray(data.values), spec.datatype, f"beads {spec.name!r}") if len(data.values) else np.empty(0)
    return Tensor(spec.name, spec.datatype, spec.shape, np.ascontiguousarray(numbers).view(np.uint8).data)


def _specs(body: Document, key: str) -> tuple[TensorSpec, ...]:
    return tuple(map(_spec, _list(body, key)))


def _spec(entry: object) -> TensorSpec:
    if not isinstance(entry, dict):
        raise DecodeError("beads must be an object")
    datatype, shape = DATATYPES.get(_text(entry.get("kind"), "kind")), _list(entry, "shape")
    if datatype is None or len(shape) > MAX_RANK or not all(type(size) is int and size >= -1 for size in shape):
        raise DecodeError("beads must have a kind and a shape")
    if prod(size or 1 for size in shape) > MAX_ELEMENTS:
        raise DecodeError(f"beads of shape {shape} are too many")
    return TensorSpec(_text(entry.get("name"), "name"), datatype, tuple(shape))


def _list(body: Document, key: str) -> list[Any]:
    found = body.get(key, [])
    if not isinstance(found, list):
        raise DecodeError(f"{key} must be a list")
    return found


def _text(found: object, key: str) -> str:
    if not isinstance(found, str):
        raise DecodeError(f"{key} must be text")
    return found


def _beads(tensor: Tensor, translate: Translate) -> Document:
    _refuse({key: each for key, each in tensor.parameters.items() if key != GATEWAY_DATATYPE})
    if tensor.datatype not in TRAITS.wire.datatypes:
        raise invalid_input(f"tensor {tensor.name!r} is {tensor.datatype}, which abacus cannot carry")
    what = f"tensor {tensor.name!r}"
    data = json.write_numbers(tensor.array.reshape(-1), translate.nan or TRAITS.wire.nan, what)
    return {**_describe(tensor), "data": Fragment(data)}


def _describe(item: Tensor | TensorSpec) -> Document:
    return {"name": item.name, "kind": item.datatype, "shape": item.shape}


def _refuse(parameters: Iterable[str]) -> None:
    for name in parameters:
        raise invalid_input(f"abacus has no parameters; got {name!r}")


TRAITS = Traits(
    wire=Wire(
        datatypes=frozenset({Datatype.INT32, Datatype.INT64, Datatype.FP64}),
        derivatives=True,
        parameters=False,
        nan="literal",
    ),
    models=Models(platform=NAME),
)

PROTOCOLS = (
    Protocol(
        NAME,
        binding=HttpBinding(),
        patterns=(ABOUT_SERVER, ABOUT_MODEL, CALL),
        decode_request=decode_request,
        encode_response=encode_response,
        encode_error=encode_error,
        encode_request=encode_request,
        decode_response=decode_response,
        traits=TRAITS,
        example=lambda address, model, version: f"curl http://{address}/abacus/{model}",
    ),
)
