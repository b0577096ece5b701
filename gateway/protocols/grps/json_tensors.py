"""Tensors as JSON has them: those of `gtensors`, each with the list that its datatype names, and `ndarray`."""

from reprlib import repr as shown
from typing import Any, TypeAlias

import numpy as np

from gateway import json
from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import Buffer, Tensor, datatype_of
from gateway.json import Array, ArrayForm
from gateway.protocols.grps.shapes import check_count, read_shape
from gateway.protocols.grps.words import DATATYPES

Entry: TypeAlias = dict[str, Any]

NDARRAY = "ndarray"
_ALIASES = {"flat_double": "flat_float64"}
"""The specification's example has it. Real servers ignore it, and call the tensor without data a success."""

_FLAT = {member: datatype for datatype, (_, _, member) in DATATYPES.items()}
ARRAYS: dict[str, ArrayForm] = dict.fromkeys((*_FLAT, *_ALIASES, NDARRAY), ArrayForm.ARRAY)
"""The members that are read straight into arrays."""

_BY_WORD: dict[object, Datatype] = {
    word: datatype for datatype, (number, name, _) in DATATYPES.items() for word in (number, name)
}


def read_tensors(gtensors: object, role: str, limit: int) -> tuple[Tensor, ...]:
    """The tensors of a message's `gtensors`. `role` (input, output) is for errors, `limit` in bytes of each.

    Raises:
        DecodeError: something else; a list that fits neither `dtype` nor `shape`; a member that is none.
        GatewayError: RESOURCE_EXHAUSTED.
    """
    entries = gtensors.get("tensors", []) if isinstance(gtensors, dict) else None
    if not isinstance(entries, list):
        raise DecodeError('gtensors must be an object with a list: {"tensors": [...]}')
    return tuple([_read_tensor(entry, at, role, limit) for at, entry in enumerate(entries)])


def _read_tensor(entry: object, at: int, role: str, limit: int) -> Tensor:
    if not isinstance(entry, dict):
        raise DecodeError(f"{role} {at} must be an object, not {shown(entry)}")
    name = entry.get("name", "")
    if not isinstance(name, str):
        raise DecodeError(f"{role} {at}: name must be a string, not {shown(name)}")
    what = f"{role} {name!r}" if name else f"{role} {at}"
    datatype = _read_datatype(entry.get("dtype"), what)
    given = entry.get("shape", [])
    if not isinstance(given, list):
        raise DecodeError(f"{what}: shape must be a list of integers, not {shown(given)}")
    shape = read_shape(given, what)
    array = _elements(entry, datatype, what)
    check_count(array.shape[0], shape, datatype, limit, what)
    return Tensor(name, datatype, shape, _raw(array, datatype, what))


def _read_datatype(given: object, what: str) -> Datatype:
    datatype = _BY_WORD.get(given) if type(given) in (str, int) else None
    if datatype is None:
        words = ", ".join(f"{name} ({number})" for number, name, _ in DATATYPES.values())
        raise DecodeError(f"{what}: dtype is {shown(given)}, expected one of {words}")
    return datatype


_NOTHING = Array(b"", (0,))


def _elements(entry: Entry, datatype: Datatype, what: str) -> Array:
    """The one list of `entry`, which must be the datatype's."""
    own, found = DATATYPES[datatype][2], _NOTHING
    for key, array in entry.items():
        if not key.startswith("flat"):
            continue
        member = _ALIASES.get(key, key)
        if member not in _FLAT:
            raise DecodeError(f"{what}: there is no member {key!r}, expected {own}")
        if len(array.shape) != 1:
            raise DecodeError(f"{what}: {key} must be a flat list, not of shape {list(array.shape)}")
        if not array.shape[0]:
            continue
        if member != own or found is not _NOTHING:
            raise DecodeError(f"{what} is {DATATYPES[datatype][1]}, but has elements in {key}; expected {own} alone")
        found = array
    return found


def _raw(array: Array, datatype: Datatype, what: str) -> Buffer:
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
    """The numbers of a message's `ndarray`, nested as their shape. Raises DecodeError for anything but numbers."""
    values = array.values
    if isinstance(values, bytes) or values.dtype.kind == "b":
        raise DecodeError("ndarray must hold numbers alone")
    return Tensor("", datatype_of(values.dtype), array.shape, values.view(np.uint8).data, untyped=True)


def write_tensor(tensor: Tensor, nan: str, what: str) -> Entry:
    """A tensor of `gtensors`, without the members that have their default.

    Raises:
        GatewayError: INVALID_ARGUMENT naming it as `what`, a number that JSON lacks and `nan` does not write.
    """
    number_and_names = DATATYPES[tensor.datatype]
    entry: Entry = {"name": tensor.name} if tensor.name else {}
    entry["dtype"] = number_and_names[1]
    if tensor.shape:
        entry["shape"] = tensor.shape
    if len(tensor.data):
        entry[number_and_names[2]] = _write_elements(tensor, nan, what)
    return entry


def _write_elements(tensor: Tensor, nan: str, what: str) -> object:
    if tensor.datatype is Datatype.BYTES:
        lists = ([element.decode() for element in elements] for elements in bytes_elements.pieces(tensor.data))
        return json.in_document(tuple(json.string_pieces(lists)))
    values = tensor.array.reshape(-1)
    if tensor.datatype is Datatype.INT64:
        # "int64 [..] JSON value will be a decimal string", as both servers print it
        pieces = (values[at : at + json.PIECE].tolist() for at in range(0, len(values), json.PIECE))
        return json.in_document(tuple(json.string_pieces(list(map(str, piece)) for piece in pieces)))
    return json.numbers(values, nan, what)


def write_ndarray(tensor: Tensor, nan: str) -> object:
    """A message's `ndarray`. Raises as `write_tensor` does."""
    return json.numbers(tensor.array, nan, f"output {tensor.name or 0!r}")
