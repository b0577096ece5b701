"""Describes the paths of grps-rest for OpenAPI documents."""

from typing import Any

from gateway.core.datatypes import Datatype
from gateway.core.json.openapi import (
    HTML,
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
    object_of,
)
from gateway.core.models import TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Translate
from gateway.protocols.grps.gmap import MAPS
from gateway.protocols.grps.rest.bodies import NAN
from gateway.protocols.grps.rest.urls import METRICS_PATTERNS, METRICS_SERIES, OPERATIONS
from gateway.protocols.grps.schema import DTYPES

_STATUS = object_of({"code": {"type": "integer"}, "msg": STRING, "status": {"enum": ["UNKNOWN", "SUCCESS", "FAILURE"]}})
_MESSAGE = (
    "A GrpsMessage as JSON, with its data in `gtensors`, `str_data`, `ndarray` or `gmap`. Or, with the Content-Type "
    "`application/octet-stream`, only the bytes of `bin_data`. In responses, an int64 is a string of digits."
)
_PARAMETERS = (
    Parameter("query", "model", "The model, for a message without a model name.", STRING),
    Parameter("query", "streaming", "Respond with a stream of messages.", {"enum": ["true", "false"]}),
    Parameter("query", "return-ndarray", "Respond with `ndarray`.", {"enum": ["true", "false"]}),
)
_SUMMARIES = {
    Operation.ONLINE: "Take the listener online",
    Operation.OFFLINE: "Take the listener offline: it reports that it is not ready, but still runs models",
    Operation.LIVE: "Check that the server is live",
    Operation.READY: "Check that the server is ready",
    Operation.MODELS: "The models, as YAML in `str_data`",
    Operation.METADATA: "The model's inputs and outputs, as YAML in `str_data`",
}
_ERROR: Content = in_json(object_of({"status": object_of({"code": {"type": "integer"}}, ["code"])}, ["status"]))


def describe(pattern: str, model: DescribedModel | None, _flavor: str) -> HttpOperation | None:
    """Return the operation of a path pattern, for `model` or for any model. A path that is not a grps path counts as an
    inference path."""
    if pattern in METRICS_PATTERNS:
        is_series = pattern == METRICS_SERIES
        content: Content = in_json({"type": "object"}) if is_series else {HTML: Media()}
        name = (Parameter("query", "name", "The name of the series.", STRING),) if is_series else ()
        return HttpOperation("The metrics of the listener", {200: ("", content)}, _ERROR, parameters=name)
    operation = OPERATIONS.get(pattern)
    return _inference(model) if operation is None else _about(operation, pattern.startswith("POST"), model)


def _about(operation: Operation, is_post: bool, model: DescribedModel | None) -> HttpOperation:
    has_text = operation in (Operation.MODELS, Operation.METADATA)
    reply = object_of({"status": _STATUS, "str_data": STRING}, ["status", "str_data"] if has_text else ["status"])
    replies: dict[int, tuple[str, Content]] = answered(reply)
    if operation is Operation.READY:
        replies[503] = ("No.", in_json(reply))
    text = "Requires `allow_offline` on the listener." if operation in (Operation.ONLINE, Operation.OFFLINE) else ""
    body: Content = {}
    parameters: tuple[Parameter, ...] = ()
    if operation is Operation.METADATA:
        parameters = _PARAMETERS[:1]
        if is_post:
            message = object_of({"str_data": {"type": "string", "description": "The model name."}})
            body = in_json(message, None if model is None else {"str_data": model.name})
    return HttpOperation(
        _SUMMARIES[operation], replies, _ERROR, text, body, body_is_required=False, parameters=parameters
    )


def _inference(model: DescribedModel | None) -> HttpOperation:
    specs, outputs = ((), ()) if model is None else (model.signature.inputs, model.signature.outputs)
    translate = Translate() if model is None else model.translate
    example = None
    if model is not None and specs and has_example(specs) and all(each.datatype in DTYPES for each in specs):
        example = {"model": model.name, "gtensors": {"tensors": list(map(_example, specs))}}
    request = _message("model", [_tensor(each, Translate()) for each in specs])
    reply = _message("status", [_tensor(each, translate) for each in outputs if each.datatype in DTYPES])
    return HttpOperation(
        "Run the model",
        {200: ("A GrpsMessage, or only the bytes of `bin_data`.", {JSON: Media(reply), OCTETS: Media()})},
        _ERROR,
        _MESSAGE,
        {JSON: Media(request, example), OCTETS: Media()},
        parameters=_PARAMETERS,
    )


def _message(role: str, tensors: list[Schema]) -> Schema:
    own: dict[str, Schema] = {"model": STRING} | ({"status": _STATUS} if role == "status" else {})
    items = {"oneOf": tensors} if tensors else _ANY_TENSOR
    return object_of(
        {
            **own,
            "gtensors": object_of({"tensors": list_of(items)}),
            "str_data": STRING,
            "ndarray": {"type": "array"},
            "gmap": object_of({name: {"type": "object"} for name in MAPS}),
        },
        ["status"] if role == "status" else [],
    )


_ANY_TENSOR = object_of(
    {
        "name": STRING,
        "dtype": {"enum": [each.name for each in DTYPES.values()]},
        "shape": list_of({"type": "integer", "minimum": 0}),
        **{each.member: {"type": "array"} for each in DTYPES.values()},
    },
    ["dtype"],
)


def _tensor(spec: TensorSpec, translate: Translate) -> Schema:
    dtype = DTYPES.get(spec.datatype)
    if dtype is None:
        return _ANY_TENSOR
    item = element(spec.datatype, translate.nan or NAN)
    if spec.datatype is Datatype.INT64:
        item = {"anyOf": [item, {"type": "string", "pattern": "^-?[0-9]+$"}]}
    members = {
        "name": {"const": spec.name},
        "dtype": {"const": dtype.name},
        "shape": dimensions(spec.shape),
        dtype.member: flat(item, spec.shape),
    }
    return object_of(members, ["dtype"])


def _example(spec: TensorSpec) -> dict[str, Any]:
    dtype, shape = DTYPES[spec.datatype], list(example_shape(spec.shape))
    return {"name": spec.name, "dtype": dtype.name, "shape": shape, dtype.member: example_elements(spec)}
