"""Tensors in JSON: `ndarray`, and the tensors of `gtensors`, whose elements are in the list for the tensor's dtype."""

from math import prod
from reprlib import repr as shown
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements, json
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.json import Array, ArrayForm
from gateway.core.messages import Buffer
from gateway.core.tensors import Shape, Tensor, datatype_of
from gateway.protocols.grps.generic_tensor import DTYPES, read_shape
from gateway.protocols.grps.json.members import read_integer, read_members, spellings

Entry: TypeAlias = dict[str, Any]

NDARRAY = "ndarray"
_ALIASES = {"flat_double": "flat_float64"}
"""A list name from the specification's example.

Real servers ignore this list, treat the tensor as one without data, and report success."""

_ELEMENTS = tuple(dtype.member for dtype in DTYPES.values())
_MEMBERS = spellings(("name", "dtype", "shape", *_ELEMENTS), _ALIASES)
_ARRAY_MEMBERS = spellings(("tensors",))
ARRAYS: dict[str, ArrayForm] = dict.fromkeys((*spellings(_ELEMENTS, _ALIASES), NDARRAY), ArrayForm.ARRAY)
"""The members that are decoded directly into arrays."""

_DATATYPES: dict[object, Datatype] = {
    word: datatype for datatype, dtype in DTYPES.items() for word in (dtype.number, dtype.name)
}
"""The datatype for each valid `dtype`, which is a number or a name."""


def read_tensors(gtensors: object, role: str, limit: int) -> tuple[Tensor, ...]:
    """Return the tensors of a message's `gtensors`.

    `role` (input, output) is the word for the tensors in error messages. `limit` is the maximum size of each tensor, in
    bytes.

    Raises:
        DecodeError: the member is not a list of tensors, has elements that do not match `dtype` or `shape`, or has an
            unknown member.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds the limit.
    """
    entries = None
    if isinstance(gtensors, dict):
        entries = read_members(gtensors, _ARRAY_MEMBERS, "gtensors").get("tensors", [])
    if not isinstance(entries, list):
        raise DecodeError('gtensors must be an object with a list: {"tensors": [...]}')
    return tuple([_read_tensor(entry, at, role, limit) for at, entry in enumerate(entries)])


def _read_tensor(entry: object, at: int, role: str, limit: int) -> Tensor:
    if not isinstance(entry, dict):
        raise DecodeError(f"{role} {at} must be an object, not {shown(entry)}")
    entry = read_members(entry, _MEMBERS, f"{role} {entry.get('name') or at!r}")
    name = entry.get("name", "")
    if not isinstance(name, str):
        raise DecodeError(f"{role} {at}: name must be a string, not {shown(name)}")
    what = f"{role} {name!r}" if name else f"{role} {at}"
    datatype = _read_dtype(entry.get("dtype"), what)
    dimensions = entry.get("shape", [])
    if not isinstance(dimensions, list):
        raise DecodeError(f"{what}: shape must be a list of integers, not {shown(dimensions)}")
    shape = read_shape([read_integer(each) for each in dimensions], what)
    array = _elements(entry, datatype, what)
    _check_count(array.shape[0], shape, datatype, limit, what)
    return Tensor(name, datatype, shape, _raw(array, datatype, what))


def _read_dtype(dtype: object, what: str) -> Datatype:
    datatype = _DATATYPES.get(dtype) if type(dtype) in (str, int) else None
    if datatype is None:
        expected = ", ".join(f"{each.name} ({each.number})" for each in DTYPES.values())
        raise DecodeError(f"{what}: dtype is {shown(dtype)}, expected one of {expected}")
    return datatype


_NO_ELEMENTS = Array(b"", (0,))


def _elements(entry: Entry, datatype: Datatype, what: str) -> Array:
    """Return the only nonempty list of `entry`. Raise DecodeError if it is not the list for `datatype`."""
    expected, elements = DTYPES[datatype].member, _NO_ELEMENTS
    for member in _ELEMENTS:
        array = entry.get(member, _NO_ELEMENTS)
        if len(array.shape) != 1:
            raise DecodeError(f"{what}: {member} must be a flat list, not of shape {list(array.shape)}")
        if not array.shape[0]:
            continue
        if member != expected:
            raise DecodeError(
                f"{what} is {DTYPES[datatype].name}, but has elements in {member}; expected {expected} alone"
            )
        elements = array
    return elements


def _check_count(count: int, shape: Shape, datatype: Datatype, limit: int, what: str) -> None:
    """Raise DecodeError if `count` elements do not fill `shape`.

    Raise GatewayError (RESOURCE_EXHAUSTED) if the tensor exceeds `limit` bytes: the two bytes of `0,` become eight
    bytes of FP64."""
    if count != prod(shape):
        raise DecodeError(f"{what}: {count} elements, but shape {list(shape)} takes {prod(shape)}")
    size = count * (datatype.size or 4)
    if size > limit:
        raise refusal(Reason.TOO_LARGE, f"{what} takes {size} bytes, limits.message is {limit}")


def _raw(array: Array, datatype: Datatype, what: str) -> Buffer:
    """Return the elements as a Tensor's `data`."""
    values = array.values
    if not len(values):
        return b""
    if datatype is Datatype.BYTES:
        if isinstance(values, bytes):
            return values
        raise DecodeError(f"{what} holds no strings, expected DT_STRING as strings")
    if isinstance(values, bytes):
        raise DecodeError(f"{what} holds strings, expected {datatype}")
    return np.ascontiguousarray(cast(values, datatype, what)).view(np.uint8).data


def read_ndarray(array: Array) -> Tensor:
    """Return the tensor in a message's `ndarray`, which is lists of numbers, nested by its shape. Raise DecodeError if
    they contain anything except numbers."""
    values = array.values
    if isinstance(values, bytes) or values.dtype.kind == "b":
        raise DecodeError("ndarray must hold numbers alone")
    return Tensor("", datatype_of(values.dtype), array.shape, values.view(np.uint8).data, untyped=True)


def write_tensor(tensor: Tensor, nan: str, what: str) -> Entry:
    """Return a tensor of `gtensors`, without members that have their default value.

    Raises:
        GatewayError: INVALID_ARGUMENT for NaN or an infinity if `nan` is `error`. The message calls the tensor `what`.
    """
    dtype = DTYPES[tensor.datatype]
    entry: Entry = {"name": tensor.name} if tensor.name else {}
    entry["dtype"] = dtype.name
    if tensor.shape:
        entry["shape"] = tensor.shape
    if len(tensor.data):
        entry[dtype.member] = _write_elements(tensor, nan, what)
    return entry


def _write_elements(tensor: Tensor, nan: str, what: str) -> object:
    if tensor.datatype is Datatype.BYTES:
        lists = ([element.decode() for element in elements] for elements in bytes_elements.pieces(tensor.data))
        return json.placed(json.string_pieces(lists))
    values = tensor.array.reshape(-1)
    if tensor.datatype is Datatype.INT64:
        # "int64 [..] JSON value will be a decimal string": both servers print it in this way
        pieces = (values[at : at + json.PIECE].tolist() for at in range(0, len(values), json.PIECE))
        return json.placed(json.string_pieces(list(map(str, piece)) for piece in pieces))
    return json.numbers(values, nan, what)


def write_ndarray(tensor: Tensor, nan: str) -> object:
    """Return a message's `ndarray`. Raise the same errors as `write_tensor`."""
    return json.numbers(tensor.array, nan, f"output {tensor.name or 0!r}")
