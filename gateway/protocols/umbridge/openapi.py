"""Describes the paths of UM-Bridge for OpenAPI documents."""

from typing import Any

from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.json.openapi import (
    JSON,
    Content,
    DescribedModel,
    HttpOperation,
    Media,
    Schema,
    answered,
    element,
    example_elements,
    has_example,
    in_json,
    list_of,
    named,
    nested,
    object_of,
    tuple_of,
)
from gateway.core.models import TensorSpec
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Nan
from gateway.core.tensors import Shape
from gateway.protocols.umbridge.errors import TYPES
from gateway.protocols.umbridge.schema import CALLS, INPUT_SIZES, KEYS, MODEL_INFO, NAN, OUTPUT_SIZES, SIZES_KEYS

_SIZES: Schema = list_of({"type": "integer", "minimum": 0})
_CONFIG: Schema = {"description": "Any JSON that the model accepts; without a configuration, clients send `{}`."}
_INDEX: Schema = {"type": "integer", "description": "The position of an input or output, counted from 0."}
_ERROR: Content = {
    JSON: Media(
        object_of(
            {"error": object_of({"type": {"enum": list(TYPES)}, "message": {"type": "string"}}, ["type", "message"])},
            ["error"],
        )
    )
}
_SUMMARIES = {
    Operation.INFER: "Run the model",
    Operation.GRADIENT: "The gradient: `sens` multiplied by the Jacobian",
    Operation.APPLY_JACOBIAN: "The Jacobian applied to a vector",
    Operation.APPLY_HESSIAN: "The Hessian, of an output weighted by `sens`, applied to a vector",
}


def describe(pattern: str, model: DescribedModel | None, _flavor: str) -> HttpOperation | None:
    """Return the operation of a path pattern, for `model` or for any model."""
    word = pattern.partition("/")[2]
    if word.endswith("ShMem"):
        return HttpOperation("Shared memory, which cannot cross the gateway", {}, _ERROR)
    if word in CALLS:
        return _call(CALLS[word], model)
    if word == "Info":
        info = object_of({"protocolVersion": {"const": 1.0}, "models": list_of({"type": "string"})}, ["models"])
        return HttpOperation("The protocol version and the model names", answered(info), _ERROR)
    body = {"name": named(model)} if word == MODEL_INFO else {"name": named(model), "config": _CONFIG}
    example = None if model is None or not _has_sizes(word, model) else {"name": model.name}
    content = in_json(object_of(body, ["name"]), example)
    if word == MODEL_INFO:
        support = object_of({call: {"type": "boolean"} for call in CALLS}, list(CALLS))
        reply = answered(object_of({"support": support}, ["support"]))
        return HttpOperation("The operations that the model supports", reply, _ERROR, body=content)
    if word in SIZES_KEYS:
        what = "inputs" if word == INPUT_SIZES else "outputs"
        reply = answered(object_of({SIZES_KEYS[word]: _SIZES}, [SIZES_KEYS[word]]))
        return HttpOperation(f"The lengths of the model's {what}", reply, _ERROR, body=content)
    return None


def _has_sizes(word: str, model: DescribedModel) -> bool:
    """Return whether the gateway can answer a metadata request.

    The gateway cannot answer if a tensor is text or has a dimension of any size, because the length of the tensor's
    vector is then undefined."""
    asked = {INPUT_SIZES: model.signature.inputs, OUTPUT_SIZES: model.signature.outputs}.get(word, ())
    return not any(-1 in each.shape or each.datatype is Datatype.BYTES for each in asked)


def _call(operation: Operation, model: DescribedModel | None) -> HttpOperation:
    names = DERIVATIVES.get(operation, ())
    inputs = () if model is None else model.signature.inputs
    properties: dict[str, Schema] = {"name": named(model), "input": _vectors(inputs)}
    properties |= {KEYS[name]: _INDEX if name in INDEX_TENSORS else _vector((-1,)) for name in names}
    properties["config"] = _CONFIG
    required = [key for key in properties if key != "config"]
    supported = model is None or operation in model.signature.operations
    example = _example(operation, model) if model is not None and supported else None
    text = "" if supported else "This model does not support it."
    return HttpOperation(
        _SUMMARIES[operation],
        answered(object_of({"output": _output(operation, model)}, ["output"])),
        _ERROR,
        text,
        in_json(object_of(properties, required), example),
    )


def _vector(shape: Shape, nan: Nan = "error") -> Schema:
    return nested(element(Datatype.FP64, nan), shape)


def _vectors(specs: tuple[TensorSpec, ...], nan: Nan = "error") -> Schema:
    return tuple_of([_vector(spec.shape, nan) for spec in specs]) if specs else list_of(_vector((-1,), nan))


def _output(operation: Operation, model: DescribedModel | None) -> Schema:
    nan = NAN if model is None else model.translate.nan or NAN
    if operation is not Operation.INFER:
        return _vector((-1,), nan)
    return _vectors(() if model is None else model.signature.outputs, nan)


def _example(operation: Operation, model: DescribedModel) -> dict[str, Any] | None:
    """Return an example request for the first input and the first output, or None for a derivative call whose vector
    lengths are unknown."""
    inputs, outputs = model.signature.inputs, model.signature.outputs
    tensors = (*inputs, *outputs)
    if not inputs or not outputs or not has_example(tensors):
        return None
    if operation is not Operation.INFER and any(-1 in each.shape for each in tensors):
        return None
    lengths = {"sens": outputs[0], "vec": inputs[0]}
    names = DERIVATIVES.get(operation, ())
    return {
        "name": model.name,
        "input": [_values(each) for each in inputs],
        **{KEYS[name]: 0 if name in INDEX_TENSORS else _values(lengths[name]) for name in names},
        "config": {},
    }


def _values(spec: TensorSpec) -> list[float]:
    return example_elements(replace(spec, datatype=Datatype.FP64))
