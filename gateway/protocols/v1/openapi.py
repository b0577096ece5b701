"""Describes the paths of V1 for OpenAPI documents."""

from collections.abc import Sequence
from typing import Any

from gateway.core.datatypes import Datatype
from gateway.core.json.openapi import (
    STRING,
    Content,
    DescribedModel,
    HttpOperation,
    Schema,
    answered,
    element,
    example_nested,
    example_shape,
    has_example,
    in_json,
    list_of,
    named,
    nested,
    object_of,
)
from gateway.core.models import TensorSpec
from gateway.core.requests import Nan
from gateway.protocols.v1.schema import KSERVE, REPLY, REQUEST, BodyKeys
from gateway.protocols.v1.server import DEFAULT_NAN

_B64 = object_of({"b64": {"type": "string", "contentEncoding": "base64"}}, ["b64"])
_BODIES = (
    "`instances` has one entry for each row of the batch, and the response has `predictions`. `inputs` has whole "
    "tensors, and the response has `outputs`. A single tensor does not need a name. Bytes that are not text are "
    '`{"b64": BASE64}`.'
)


def describe(pattern: str, model: DescribedModel | None, flavor: str) -> HttpOperation | None:
    """Return the operation of a path pattern on a listener with this server type, for `model` or for any model."""
    flavor = flavor or KSERVE
    error = _error(flavor)
    path = pattern.partition(" ")[2]
    if path.endswith((":classify", ":regress")):
        return HttpOperation("Rejected: examples are accepted only over gRPC", {}, error)
    if path.endswith(":predict"):
        reply = answered(_reply(flavor, REPLY, model))
        return HttpOperation("Run the model", reply, error, _BODIES, _request(model))
    if path.endswith(":explain"):
        reply = answered({})
        text = "Same body as `:predict`. The response depends on the explainer, and often has `explanations`."
        return HttpOperation("Explain a prediction", reply, error, text, in_json({"type": "object"}))
    if path.endswith("/metadata"):
        return HttpOperation("The model's inputs and outputs", answered(_METADATA), error)
    if path.endswith("/models"):
        return HttpOperation("The model names", answered(object_of({"models": list_of(STRING)}, ["models"])), error)
    if path == "/":
        alive = object_of({"status": {"const": "alive"}}, ["status"])
        return HttpOperation("Check that the server is live", answered(alive), error)
    if flavor == KSERVE:
        ready = object_of({"name": named(model), "ready": {"const": True}}, ["name", "ready"])
        replies = {**answered(ready), 503: ("No.", in_json(object_of({"error": STRING}, ["error"])))}
        return HttpOperation("Check that the model is ready", replies, error)
    return HttpOperation("The state of the model's version", answered(_STATUS), error)


def _error(flavor: str) -> Content:
    if flavor == KSERVE:
        either = object_of(
            {"error": STRING, "detail": STRING}, anyOf=[{"required": ["error"]}, {"required": ["detail"]}]
        )
        return in_json(either)
    return in_json(object_of({"error": STRING}, ["error"]))


_METADATA = object_of(
    {
        "model_spec": object_of({"name": STRING, "signature_name": STRING, "version": STRING}, ["name"]),
        "metadata": object_of({"signature_def": {"type": "object"}}, ["signature_def"]),
    },
    ["model_spec", "metadata"],
)
_STATUS = object_of(
    {"model_version_status": list_of(object_of({"version": STRING, "state": STRING}, ["version", "state"]))},
    ["model_version_status"],
)


def _item(spec: TensorSpec, nan: Nan = "error") -> Schema:
    item = element(spec.datatype, nan)
    return {"anyOf": [item, _B64]} if spec.datatype is Datatype.BYTES else item


def _whole(specs: Sequence[TensorSpec], nan: Nan = "error") -> Schema:
    """Return the schema of complete tensors: an object of tensors by name, or a single tensor."""
    by_name = object_of(
        {each.name: nested(_item(each, nan), each.shape) for each in specs}, [each.name for each in specs]
    )
    if len(specs) > 1:
        return by_name
    return {"anyOf": [nested(_item(specs[0], nan), specs[0].shape), by_name]}


def _rows(specs: Sequence[TensorSpec], nan: Nan = "error") -> Schema:
    """Return the schema of a list with one entry per row. An entry is an object with the row of each tensor, or the row
    of a single tensor."""
    rows = {each.name: nested(_item(each, nan), each.shape[1:]) for each in specs}
    by_name = list_of(object_of(rows, [*rows]))
    if len(specs) > 1:
        return by_name
    return {"anyOf": [nested(_item(specs[0], nan), specs[0].shape), by_name]}


def _have_rows(specs: Sequence[TensorSpec]) -> bool:
    return all(each.shape for each in specs) and len({each.shape[0] for each in specs}) == 1


def _body(keys: BodyKeys, rows: Schema, columns: Schema) -> Schema:
    one = [{"required": [keys.rows]}, {"required": [keys.columns]}]
    return object_of({keys.rows: rows, keys.columns: columns, "parameters": {"type": "object"}}, oneOf=one)


def _request(model: DescribedModel | None) -> Content:
    specs = () if model is None else model.signature.inputs
    if not specs:
        return in_json(_body(REQUEST, {"type": "array"}, {}))
    rows = _have_rows(specs)
    schema = _body(REQUEST, _rows(specs) if rows else {"type": "array"}, _whole(specs))
    return in_json(schema, _example(specs, rows=rows) if has_example(specs) else None)


def _example(specs: Sequence[TensorSpec], *, rows: bool) -> dict[str, Any]:
    wholes = {each.name: example_nested(each) for each in specs}
    if not rows:
        return {REQUEST.columns: wholes}
    if len(specs) == 1:
        return {REQUEST.rows: wholes[specs[0].name]}
    count = example_shape(specs[0].shape)[0]
    return {REQUEST.rows: [{name: whole[at] for name, whole in wholes.items()} for at in range(count)]}


def _reply(flavor: str, keys: BodyKeys, model: DescribedModel | None) -> Schema:
    specs = () if model is None else model.signature.outputs
    if model is None or not specs:
        return _body(keys, {}, {})
    nan = model.translate.nan or DEFAULT_NAN[flavor]
    whole = _whole(specs, nan)
    # outputs that are not rows are written as complete values under the key of the rows
    return _body(keys, {"anyOf": [_rows(specs, nan), whole]} if _have_rows(specs) else whole, whole)
