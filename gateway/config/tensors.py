"""The keys `signature` and `constants` of a route, which become a Signature and Tensors of `gateway.core`."""

from itertools import chain
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, Strict

from gateway.config.fields import VALUE, Keys, Name, Written, distinct_by, refusal
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.json import INT64_MAX, INT64_MIN, UINT64_MAX
from gateway.core.models import Signature, TensorSpec
from gateway.core.tensors import MAX_RANK, Tensor, tensor

Dimension = Annotated[int, Strict(), Field(ge=0, le=INT64_MAX)]
FreeDimension = Annotated[int, Strict(), Field(ge=-1, le=INT64_MAX)]


class TensorSpecConfig(Keys):
    """One tensor of a signature."""

    name: Name
    """Name of the tensor at the backend."""
    datatype: Datatype
    """V2 datatype."""
    shape: Annotated[tuple[FreeDimension, ...], Field(max_length=MAX_RANK)]
    """Dimensions of the tensor. -1 is a dimension of any size. If the first of several dimensions is -1, it is the
    batch dimension."""
    content_type: Literal["text", "json", "image", "npy"] | None = None
    """Content type of the tensor, for protocols with several content types, such as mip. For each BYTES element:
    `text`, `json` (a JSON value) or `image` (an image file). For numbers: `json`, or `npy`, which is lossless."""


class InputSpecConfig(TensorSpecConfig):
    """One input of a signature."""

    optional: bool = False
    """Allow requests without this input."""


def _tensor_spec(keys: TensorSpecConfig) -> TensorSpec:
    form = keys.content_type or ""
    if form in ("text", "image") and keys.datatype is not Datatype.BYTES:
        raise refusal(f"{VALUE} is a content type for BYTES, not for {keys.datatype}", "content_type")
    if form == "npy" and keys.datatype is Datatype.BYTES:
        raise refusal(f"{VALUE} is a content type for numbers and BOOL, not for BYTES", "content_type")
    return TensorSpec(keys.name, keys.datatype, keys.shape, form)


def _input_spec(keys: InputSpecConfig) -> TensorSpec:
    return replace(_tensor_spec(keys), optional=keys.optional)


_DistinctNames = AfterValidator(distinct_by("name", message=f"{VALUE} is already the name of another tensor"))
TensorSpecs = Annotated[tuple[Annotated[TensorSpec, Written(TensorSpecConfig, _tensor_spec)], ...], _DistinctNames]

InputSpecs = Annotated[tuple[Annotated[TensorSpec, Written(InputSpecConfig, _input_spec)], ...], _DistinctNames]


class SignatureConfig(Keys):
    """The model's inputs and outputs, which replace the backend's metadata."""

    inputs: InputSpecs = ()
    """Inputs, in order. Default: the inputs in the metadata."""
    outputs: TensorSpecs = ()
    """Outputs, in order. Default: the outputs in the metadata."""


class ConstantConfig(Keys):
    """An input that the gateway adds to every request."""

    name: Name
    """Name of the input at the backend."""
    datatype: Datatype
    """V2 datatype."""
    shape: Annotated[tuple[Dimension, ...], Field(max_length=MAX_RANK)]
    """Dimensions of the input; free dimensions are not allowed."""
    data: Any
    """Elements of the input: nested lists that match the shape, a flat list, or a single value for shape []. BYTES
    elements are strings."""


def _constant(keys: ConstantConfig) -> Tensor:
    elements = _elements(keys.data, keys.shape)
    expected = prod(keys.shape)
    if len(elements) != expected:
        raise refusal(f"{len(elements)} elements, but shape {list(keys.shape)} has {expected}", "data")
    array = _READERS.get(keys.datatype.kind, _numbers)(elements, keys.datatype)
    return tensor(keys.name, array.reshape(keys.shape), keys.datatype)


def _elements(data: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the elements of `data` in one list."""
    if not isinstance(data, list):
        return [data]
    if not any(isinstance(item, list) for item in data):
        return data
    return _flattened(data, shape)


def _flattened(data: Any, shape: tuple[int, ...]) -> list[Any]:
    if not shape:
        return [data]
    if not isinstance(data, list) or len(data) != shape[0]:
        raise refusal(
            "the nesting of the lists does not match the shape; nest them like the shape, or write one flat list",
            "data",
        )
    return list(chain.from_iterable(_flattened(item, shape[1:]) for item in data))


def _numbers(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if not all(type(element) in (int, float) for element in elements):
        raise refusal(f"expected numbers for {datatype}", "data")
    try:
        return cast(_widest(elements), datatype, "the constant")
    except DecodeError as error:
        raise refusal(str(error), "data") from error


def _widest(elements: list[int | float]) -> "np.ndarray[Any, Any]":
    if any(isinstance(element, float) for element in elements):
        return np.array(elements, np.float64)
    least, most = min(elements, default=0), max(elements, default=0)
    if most > UINT64_MAX or least < (INT64_MIN if most <= INT64_MAX else 0):
        raise refusal("an integer is outside the range of INT64 and UINT64; write it as a float", "data")
    return np.array(elements, np.int64 if most <= INT64_MAX else np.uint64)


def _booleans(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if not all(isinstance(element, bool) for element in elements):
        raise refusal("expected true and false for BOOL", "data")
    return np.array(elements, np.bool_)


def _texts(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if not all(isinstance(element, str) for element in elements):
        raise refusal("expected texts for BYTES; put quotes around numbers", "data")
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


_READERS = {Kind.BOOL: _booleans, Kind.BYTES: _texts}

RouteSignature = Annotated[Signature, Written(SignatureConfig, lambda keys: Signature(keys.inputs, keys.outputs))]
Constant = Annotated[Tensor, Written(ConstantConfig, _constant)]
