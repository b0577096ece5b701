"""Describes GraphPipe paths for OpenAPI documents. GraphPipe messages are flatbuffers, which JSON schemas cannot
describe."""

import numpy as np

from gateway.core.frozen import replace
from gateway.core.json.openapi import (
    OCTETS,
    STRING,
    TEXT,
    DescribedModel,
    HttpOperation,
    Media,
    Parameter,
    answered,
    example_elements,
    example_shape,
    has_example,
    list_of,
    object_of,
)
from gateway.core.models import TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.protocols.graphpipe.client import encode_request
from gateway.protocols.graphpipe.errors import UNDER_200
from gateway.protocols.graphpipe.schema import TYPE_NUMBERS

_MESSAGES = (
    "A flatbuffer of the schema graphpipe.fbs. The request is a `Request`. With an `InferRequest` (input names and "
    "tensors in the same order, output names, `config`), the response is an `InferResponse`. With a `MetadataRequest`, "
    "the response is a `MetadataResponse`."
)
_UNDER_200 = Parameter(
    "query",
    UNDER_200.partition("=")[0],
    "`200`: send errors with status 200, under which the Python client shows their texts.",
    {"enum": [UNDER_200.partition("=")[2]]},
)


def describe(pattern: str, model: DescribedModel | None, _flavor: str) -> HttpOperation | None:
    """Return the operation of a path pattern, for `model` or for any model.

    A GET request returns metadata, and a POST request runs the model."""
    if pattern.startswith("GET "):
        about = answered(_METADATA)
        return HttpOperation("The model's inputs and outputs", about, {TEXT: Media(STRING)})
    reply = {200: ("An `InferResponse` with the outputs' tensors.", {OCTETS: Media()})}
    return HttpOperation(
        "Run the model",
        reply,
        {OCTETS: Media()},
        _MESSAGES + _tensors(model),
        {OCTETS: Media(binary_example=b"" if model is None else _example(model))},
        parameters=(_UNDER_200,),
    )


_SPEC = object_of(
    {"Name": STRING, "Description": STRING, "Shape": list_of({"type": "integer"}), "Type": {"type": "integer"}},
    ["Name", "Shape", "Type"],
)
_METADATA = object_of(
    {
        "Name": STRING, "Version": STRING, "Server": STRING, "Description": STRING,
        "Inputs": list_of(_SPEC), "Outputs": list_of(_SPEC),
    },
    ["Name", "Inputs", "Outputs"],
)  # fmt: skip


def _tensors(model: DescribedModel | None) -> str:
    if model is None or not model.signature.inputs:
        return ""
    inputs, outputs = map(_listed, (model.signature.inputs, model.signature.outputs))
    return f"\n\nInputs of this model: {inputs}. Outputs: {outputs}."


def _listed(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"`{each.name}` {each.datatype} {list(each.shape)}" for each in specs)


def _example(model: DescribedModel) -> bytes:
    """Return an example request that runs the model, or an empty request if no example can be generated."""
    specs = model.signature.inputs
    if not specs or not has_example(specs) or any(each.datatype not in TYPE_NUMBERS for each in specs):
        return b""
    inputs = tuple(
        replace(tensor(each.name, np.array(example_elements(each)), each.datatype), shape=example_shape(each.shape))
        for each in specs
    )
    return bytes(encode_request(Request(Operation.INFER, model.name, inputs=inputs), Target()).body)
