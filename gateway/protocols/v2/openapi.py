"""Describes the paths of V2 REST for OpenAPI documents."""

from typing import Any

import numpy as np

from gateway.core import bytes_elements, json
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.json.openapi import (
    EVENTS,
    JSON,
    OCTETS,
    STRING,
    Content,
    DescribedModel,
    HttpOperation,
    Media,
    Parameter,
    Schema,
    answered,
    dimensions,
    element,
    example_elements,
    example_shape,
    flat,
    has_example,
    in_json,
    list_of,
    named,
    nested,
    object_of,
)
from gateway.core.models import TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Translate
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON
from gateway.protocols.v2.tensors import WIDER

_PARAMETERS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_DIMENSIONS: Schema = list_of({"type": "integer", "minimum": 0})
_ERROR: Content = in_json(object_of({"error": STRING}, ["error"]))
_BINARY = (
    "With the binary tensor data extension, a body is a JSON header and raw bytes. The header is like a JSON body, but "
    "the parameter `binary_data_size` replaces `data`. The raw bytes of these tensors follow in the order of the "
    "header: little-endian, row by row, each element of BYTES after its length as 4 bytes. Outputs have this form if "
    "the request has the parameter `binary_data_output`."
)
_LENGTH = Parameter(
    "header",
    "Inference-Header-Content-Length",
    "The size of the JSON header in bytes, in a body with binary tensors. Without this header the whole body is JSON.",
    {"type": "integer", "minimum": 1},
)


def describe(pattern: str, model: DescribedModel | None, _flavor: str) -> HttpOperation | None:
    """Return the OpenAPI operation of a path pattern, for `model` or for any model."""
    method, _, path = pattern.partition(" ")
    if "sharedmemory" in path:
        return HttpOperation("Shared memory, which cannot cross the gateway: always an error", {}, _ERROR)
    ending = path.rpartition("/")[2]
    if ending in ("infer", "infer_stream", "generate", "generate_stream"):
        return _inference(ending, model)
    if path.startswith("/v2/repository/"):
        return _repository(ending)
    if ending in ("setting", "logging"):
        return _settings(method, path)
    if ending == "stats":
        return HttpOperation("Counters of the model's requests", answered(_STATISTICS), _ERROR)
    if ending == "config":
        return HttpOperation("The model's configuration on its server", answered({"type": "object"}), _ERROR)
    if ending in ("live", "ready"):
        return _health(path, ending)
    if path == "/v2":
        return HttpOperation("The server's name, version and extensions", answered(_SERVER), _ERROR)
    return HttpOperation("The model's inputs and outputs", answered(_metadata(model)), _ERROR)


# --- about servers and models ---

_STATISTICS = object_of({"model_stats": list_of(object_of({"name": STRING, "version": STRING}))}, ["model_stats"])
_SERVER = object_of({"name": STRING, "version": STRING, "extensions": list_of(STRING)}, ["name", "version"])
_ENTRY = object_of({"name": STRING, "version": STRING, "state": STRING, "reason": STRING}, ["name"])


def _health(path: str, word: str) -> HttpOperation:
    of_model = "{model}" in path
    who = "the model" if of_model else "the server"
    name: dict[str, Schema] = {"name": STRING} if of_model else {}
    return HttpOperation(
        f"Whether {who} is {word}",
        {
            200: ("Yes.", in_json(object_of({**name, word: {"const": True}}, [*name, word]))),
            400: ("No.", in_json(object_of({**name, word: {"const": False}, "error": STRING}))),
        },
        in_json(object_of({**name, word: {"const": False}, "error": STRING}, ["error"])),
        operation=Operation.MODEL_READY if of_model else None,
    )


def _metadata(model: DescribedModel | None) -> Schema:
    spec = object_of(
        {
            "name": STRING,
            "datatype": {"enum": [each.value for each in Datatype]},
            "shape": list_of({"type": "integer"}),
        },
        ["name", "datatype", "shape"],
    )
    return object_of(
        {
            "name": named(model),
            "versions": list_of(STRING),
            "platform": STRING,
            "inputs": list_of(spec),
            "outputs": list_of(spec),
            "parameters": _PARAMETERS,
        },
        ["name", "inputs", "outputs"],
    )


def _repository(verb: str) -> HttpOperation:
    if verb == "index":
        body = in_json(object_of({"ready": {"type": "boolean"}}), {})
        return HttpOperation("The models", answered(list_of(_ENTRY)), _ERROR, body=body, body_is_required=False)
    return HttpOperation(
        f"{verb.capitalize()} the model on its server",
        {200: ("Done.", {})},
        _ERROR,
        "Requires `allow_control` on the listener.",
        in_json(object_of({"parameters": {"type": "object"}})),
        body_is_required=False,
    )


def _settings(method: str, path: str) -> HttpOperation:
    what = "log settings" if path.endswith("logging") else "trace settings"
    body = in_json({"type": "object"}) if method == "POST" else {}
    summary = f"Change {what} of the server" if body else f"The {what} of the server"
    return HttpOperation(
        summary,
        answered({"type": "object"}),
        _ERROR,
        "Requires `allow_control` on the listener.",
        body,
        body_is_required=False,
    )


# --- inference ---


def _inference(verb: str, model: DescribedModel | None) -> HttpOperation:
    streams = verb.endswith("_stream")
    is_generate = verb.startswith("generate")
    if is_generate:
        body = _generate_body(model)
        reply: Content = in_json(_generate_reply(model))
    else:
        body = _infer_body(model)
        reply = {JSON: Media(_infer_reply(model)), OCTETS: Media()}
    if streams:
        text = "Each event `data: JSON` is a response; one with the member `error` ends the stream."
        return HttpOperation(
            "Run the model and stream its responses", {200: (text, {EVENTS: Media()})}, _ERROR, "", body
        )
    if is_generate:
        text = "Triton's form: inputs, outputs and parameters are members of one object under their names."
        return HttpOperation("Run the model on plain JSON", {200: ("", reply)}, _ERROR, text, body)
    return HttpOperation("Run the model", {200: ("", reply)}, _ERROR, _BINARY, body, parameters=(_LENGTH,))


def _infer_body(model: DescribedModel | None) -> Content:
    specs = () if model is None else model.signature.inputs
    json_specs = [each for each in specs if each.datatype not in WITHOUT_JSON]
    schema = object_of(
        {
            "id": STRING,
            "parameters": _PARAMETERS,
            "inputs": _tensors([_input(each) for each in json_specs], _ANY_INPUT, exactly=True),
            "outputs": list_of(_requested(model)),
        },
        ["inputs"],
    )
    can_show = bool(specs) and has_example(specs)
    binary = {OCTETS: _binary_example(specs) if can_show else Media()}
    if len(json_specs) < len(specs):
        return binary
    return {JSON: Media(schema, {"inputs": [_example(each) for each in specs]} if can_show else None), **binary}


def _tensors(each: list[Schema], otherwise: Schema, *, exactly: bool) -> Schema:
    """Return the schema of a list of tensors, each of which matches one of these schemas."""
    if not each:
        return list_of(otherwise)
    items = each[0] if len(each) == 1 else {"oneOf": each}
    return list_of(items, maxItems=len(each), **({"minItems": len(each)} if exactly else {}))


def _tensor(name: Schema, datatype: Schema, shape: Schema, data: Schema) -> Schema:
    members = {"name": name, "datatype": datatype, "shape": shape, "parameters": _PARAMETERS, "data": data}
    return object_of(members, ["name", "datatype", "shape", "data"])


_ANY_INPUT = _tensor(
    STRING, {"enum": [each.value for each in Datatype if each not in WITHOUT_JSON]}, _DIMENSIONS, {"type": "array"}
)
_ANY_OUTPUT = _ANY_INPUT


def _input(spec: TensorSpec) -> Schema:
    item = element(spec.datatype)
    shapes: list[Schema] = [flat(item, spec.shape)]
    if len(spec.shape) > 1:
        shapes.append(nested(item, spec.shape))
    data = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    return _tensor({"const": spec.name}, {"const": spec.datatype.value}, dimensions(spec.shape), data)


def _output(spec: TensorSpec, translate: Translate) -> Schema:
    datatype = WIDER.get(spec.datatype, spec.datatype)
    data = flat(element(datatype, translate.nan or "error"), spec.shape)
    return _tensor({"const": spec.name}, {"const": datatype.value}, dimensions(spec.shape), data)


def _requested(model: DescribedModel | None) -> Schema:
    names = [] if model is None else [each.name for each in model.signature.outputs]
    return object_of({"name": {"enum": names} if names else STRING, "parameters": _PARAMETERS}, ["name"])


def _infer_reply(model: DescribedModel | None) -> Schema:
    outputs = [] if model is None else [_output(each, model.translate) for each in model.signature.outputs]
    return object_of(
        {
            "id": STRING,
            "model_name": named(model),
            "model_version": STRING,
            "parameters": _PARAMETERS,
            "outputs": _tensors(outputs, _ANY_OUTPUT, exactly=False),
        },
        ["model_name", "outputs"],
    )


def _example(spec: TensorSpec) -> dict[str, Any]:
    shape = list(example_shape(spec.shape))
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": shape, "data": example_elements(spec)}


def _binary_example(specs: tuple[TensorSpec, ...]) -> Media:
    """Return an example body with all inputs in binary."""
    data = [_raw(each) for each in specs]
    inputs = [
        {
            "name": spec.name,
            "datatype": spec.datatype.value,
            "shape": list(example_shape(spec.shape)),
            "parameters": {"binary_data_size": len(raw)},
        }
        for spec, raw in zip(specs, data, strict=True)
    ]
    header = json.write({"inputs": inputs})
    return Media(binary_example=b"".join((header, *data)), example_headers={_LENGTH.name: str(len(header))})


def _raw(spec: TensorSpec) -> bytes:
    elements = example_elements(spec)
    if spec.datatype is Datatype.BYTES:
        return bytes_elements.pack([each.encode() for each in elements])
    return np.array(elements, spec.datatype.dtype).tobytes()


# --- generate ---


def _generate_body(model: DescribedModel | None) -> Content:
    specs = () if model is None else model.signature.inputs
    properties = {spec.name: _member(spec, "error") for spec in specs}
    schema = object_of({**properties, "id": STRING, "parameters": _PARAMETERS}, list(properties))
    example = {spec.name: example_elements(spec) for spec in specs} if specs and has_example(specs) else None
    return in_json(schema, example)


def _member(spec: TensorSpec, nan: Any) -> Schema:
    item = element(spec.datatype, nan)
    return {"anyOf": [item, flat(item, spec.shape)]}


def _generate_reply(model: DescribedModel | None) -> Schema:
    outputs = () if model is None else model.signature.outputs
    wide = [replace(each, datatype=WIDER.get(each.datatype, each.datatype)) for each in outputs]
    nan = "error" if model is None else model.translate.nan or "error"
    properties = {spec.name: _member(spec, nan) for spec in wide}
    return object_of({**properties, "id": STRING, "model_name": named(model), "model_version": STRING}, ["model_name"])
