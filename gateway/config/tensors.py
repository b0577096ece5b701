"""`signature:` and `constants:` of a route, held as the core's own values."""

from itertools import chain
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, Strict

from gateway.config.fields import VALUE, Keys, Name, Written, refusal
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.types import MAX_RANK, Signature, Tensor, TensorSpec, tensor
from gateway.json import INT64_MAX, INT64_MIN, UINT64_MAX

Dimension = Annotated[int, Strict(), Field(ge=0, le=INT64_MAX)]
FreeDimension = Annotated[int, Strict(), Field(ge=-1, le=INT64_MAX)]


class TensorSpecConfig(Keys):
    """One tensor of a signature."""

    name: Name
    """Its name in the backend."""
    datatype: Datatype
    """One of V2's datatypes."""
    shape: Annotated[tuple[FreeDimension, ...], Field(max_length=MAX_RANK)]
    """Its dimensions; -1 is a free one, and a first -1 before others is the batch."""
    content_type: Literal["text", "json", "image", "npy"] | None = None
    """The form in which it travels where a wire has several, such as mip's: of BYTES each element as a `text`, as the
    text of a `json` value or as the file of an `image`; numbers as `json` or, without loss, as `npy`."""


def _tensor_spec(keys: TensorSpecConfig) -> TensorSpec:
    form = keys.content_type or ""
    if form in ("text", "image") and keys.datatype is not Datatype.BYTES:
        raise refusal(f"{VALUE} is a form of BYTES, not of {keys.datatype}", "content_type")
    if form == "npy" and keys.datatype is Datatype.BYTES:
        raise refusal(f"{VALUE} is a form of numbers and BOOL, not of BYTES", "content_type")
    return TensorSpec(keys.name, keys.datatype, keys.shape, form)


def _distinct_names(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    names = [spec.name for spec in specs]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise refusal("{value} is the name of a tensor before it", at, "name")
    return specs


TensorSpecs = Annotated[
    tuple[Annotated[TensorSpec, Written(TensorSpecConfig, _tensor_spec)], ...], AfterValidator(_distinct_names)
]


class SignatureConfig(Keys):
    """What the model takes and gives, in place of what the backend's metadata says."""

    inputs: TensorSpecs = ()
    """Its inputs, in order; without them the metadata's hold."""
    outputs: TensorSpecs = ()
    """Its outputs, in order; without them the metadata's hold."""


def _signature(keys: SignatureConfig) -> Signature:
    return Signature(keys.inputs, keys.outputs)


class ConstantConfig(Keys):
    """An input that every request to the backend gets."""

    name: Name
    """The backend's name of it."""
    datatype: Datatype
    """One of V2's datatypes."""
    shape: Annotated[tuple[Dimension, ...], Field(max_length=MAX_RANK)]
    """Its dimensions, none of them free."""
    data: Any
    """Its elements: nested as the shape is, or one flat list; a bare value for shape []. BYTES elements are text."""


def _constant(keys: ConstantConfig) -> Tensor:
    elements = _elements(keys.data, keys.shape)
    expected = prod(keys.shape)
    if len(elements) != expected:
        raise refusal(f"{len(elements)} elements, but shape {list(keys.shape)} holds {expected}", "data")
    array = _READERS.get(keys.datatype.kind, _numbers)(elements, keys.datatype)
    return tensor(keys.name, array.reshape(keys.shape), keys.datatype)


def _elements(data: Any, shape: tuple[int, ...]) -> list[Any]:
    """`data` flattened, if it is flat or nested as `shape` is."""
    if not isinstance(data, list):
        return [data]
    if not any(isinstance(item, list) for item in data):
        return data
    return _flattened(data, shape)


def _flattened(data: Any, shape: tuple[int, ...]) -> list[Any]:
    if not shape:
        return [data]
    if not isinstance(data, list) or len(data) != shape[0]:
        raise refusal("the lists are not nested as the shape is", "data")
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
        raise refusal("an integer is out of the range of INT64 and UINT64", "data")
    return np.array(elements, np.int64 if most <= INT64_MAX else np.uint64)


def _booleans(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if not all(isinstance(element, bool) for element in elements):
        raise refusal("expected true and false for BOOL", "data")
    return np.array(elements, np.bool_)


def _texts(elements: list[Any], datatype: Datatype) -> "np.ndarray[Any, Any]":
    if not all(isinstance(element, str) for element in elements):
        raise refusal("expected texts for BYTES; quote what looks like a number", "data")
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


_READERS = {Kind.BOOL: _booleans, Kind.BYTES: _texts}

RouteSignature = Annotated[Signature, Written(SignatureConfig, _signature)]
Constant = Annotated[Tensor, Written(ConstantConfig, _constant)]
