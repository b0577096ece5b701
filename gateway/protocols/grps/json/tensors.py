"""Reads and writes the data of a GrpsMessage in JSON: `gtensors`, `ndarray` and `gmap`.

As protobuf requires, the reader accepts two spellings of every member: the name in `grps.proto`, and the same name in
lowerCamelCase. It accepts base64 in both alphabets of RFC 4648, with or without padding. int64, NaN and infinities are
strings.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, prod
from reprlib import repr as shown
from typing import Any, TypeAlias

import numpy as np
from msgspec import Raw

from gateway.core import bytes_elements, json
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.json import INT64_MAX, INT64_MIN, Array, ArrayForm
from gateway.core.messages import Buffer
from gateway.core.tensors import Shape, Tensor, datatype_of
from gateway.protocols.grps import gmap
from gateway.protocols.grps.gmap import MAPS
from gateway.protocols.grps.schema import DTYPES, read_shape

# --- Members ---


def _lower_camel_case(name: str) -> str:
    """Return the JSON name that protobuf gives to a field: `sI32` for `s_i32`."""
    first, *further = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in further)


def spellings(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a map from every JSON spelling to the member's name. `aliases` are additional spellings."""
    known = {name: name for name in names} | dict(aliases or {})
    return {_lower_camel_case(spelling): name for spelling, name in known.items()} | known


def read_members(
    entry: Mapping[str, Any], known: Mapping[str, str], what: str, *, more: bool = False
) -> dict[str, Any]:
    """Return the members of `entry` by their names in `grps.proto`.

    The result omits members with the value null, which stands for the default. If `more` is True, the result also omits
    members that are not `known`.

    Raises:
        DecodeError: a member is not `known`, or occurs in two spellings.
    """
    members: dict[str, Any] = {}
    for key, value in entry.items():
        name = known.get(key)
        if name is None:
            if more:
                continue
            expected = ", ".join(dict.fromkeys(filter(None, known.values())))
            raise DecodeError(f"{what}: there is no member {key!r}, expected one of {expected}")
        if value is None:
            continue
        if name in members:
            raise DecodeError(f"{what}: {name} is there in two spellings, expected {name} alone")
        members[name] = value
    return members


def read_integer(value: object) -> object:
    """Return `value` as an int if it is an integer in protobuf's JSON mapping, which allows quotes and the form `2.0`.
    Return any other value unchanged."""
    if isinstance(value, str) and len(value) <= _LONGEST and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return int(value) if type(value) is float and value.is_integer() else value


_LONGEST = 20
"""Maximum length of a 64-bit integer, in characters."""


# --- gtensors and ndarray ---

Entry: TypeAlias = dict[str, Any]

_NDARRAY = "ndarray"
_ALIASES = {"flat_double": "flat_float64"}
"""A list name from the specification's example.

Real servers ignore this list, treat the tensor as a tensor without data, and report success."""

_ELEMENTS = tuple(dtype.member for dtype in DTYPES.values())
_TENSOR_MEMBERS = spellings(("name", "dtype", "shape", *_ELEMENTS), _ALIASES)
_ARRAY_MEMBERS = spellings(("tensors",))
ARRAYS: dict[str, ArrayForm] = dict.fromkeys((*spellings(_ELEMENTS, _ALIASES), _NDARRAY), ArrayForm.ARRAY)
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
    entry = read_members(entry, _TENSOR_MEMBERS, f"{role} {entry.get('name') or at!r}")
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
    """Return the only nonempty list of `entry`. Raise DecodeError if this list is not the list for `datatype`."""
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

    Raise GatewayError (RESOURCE_EXHAUSTED) if the tensor exceeds `limit` bytes. A tensor can be larger than its text,
    because the two bytes of `0,` become eight bytes of FP64."""
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
    """Return the tensor in a message's `ndarray`, which consists of lists of numbers, nested by shape. Raise
    DecodeError if the lists contain anything except numbers."""
    values = array.values
    if isinstance(values, bytes) or values.dtype.kind == "b":
        raise DecodeError("ndarray must hold numbers alone")
    return Tensor("", datatype_of(values.dtype), array.shape, values.view(np.uint8).data, untyped=True)


def write_tensor(tensor: Tensor, nan: str, what: str) -> Entry:
    """Return a tensor of `gtensors`, without members that have default values.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor contains NaN or an infinity and `nan` is `error`. The message calls
        the tensor `what`.
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
        return json.placed(json.utf8_pieces(bytes_elements.pieces(tensor.data)))
    values = tensor.array.reshape(-1)
    if tensor.datatype is Datatype.INT64:
        # "int64 [..] JSON value will be a decimal string": both servers print it like this
        pieces = (values[at : at + json.PIECE].tolist() for at in range(0, len(values), json.PIECE))
        return json.placed(json.string_pieces(list(map(str, piece)) for piece in pieces))
    return json.numbers(values, nan, what)


def write_ndarray(tensor: Tensor, nan: str) -> object:
    """Return a message's `ndarray`. Raise the errors of `write_tensor`."""
    return json.numbers(tensor.array, nan, f"output {tensor.name or 0!r}")


# --- gmap ---

_MAP_MEMBERS = spellings(MAPS)
_NUMBER_TEXT = re.compile(r"-?[0-9]{1,400}(?P<fraction>(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?)|NaN|-?Infinity")


def read_gmap(maps: object) -> tuple[Tensor, ...]:
    """Return the entries of a message's `gmap`.

    Raises:
        DecodeError: a map is unknown, or a value is invalid for its map. The message contains the map and the key.
    """
    if not isinstance(maps, dict):
        raise DecodeError("gmap must be an object of maps")
    maps = read_members(maps, _MAP_MEMBERS, "gmap")
    return tuple([entry for name in MAPS for entry in _read_map(name, maps.get(name))])


def _read_map(name: str, entries: object) -> Iterator[Tensor]:
    if entries is None:
        return
    if not isinstance(entries, dict):
        raise DecodeError(f"gmap: {name} must be an object")
    for key, value in entries.items():
        yield gmap.entry(name, key, _read_value(name, _plain(value), f"gmap: {name}[{key!r}]"))


def _plain(value: object) -> object:
    """Return `value` as a Python value. For a key such as `flat_int32` or `ndarray`, the JSON reader returned an
    Array."""
    if not isinstance(value, Array) or value.shape:
        return value
    return bytes_elements.unpack(value.values)[0].decode() if isinstance(value.values, bytes) else value.values.item()


def _read_value(name: str, value: object, what: str) -> object:
    datatype = MAPS[name]
    if datatype is not Datatype.BYTES:
        return cast(_number(value, datatype, what), datatype, what)[0]
    return _string(value, what) if name == "s_s" else read_base64(value, what)


def _string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{what} is {shown(value)}, expected a string")
    return value


_STANDARD = str.maketrans("-_", "+/")


def read_base64(value: object, what: str) -> bytes:
    """Return the bytes of a base64 string. Raise DecodeError, with `what` in the message, for any other value."""
    text = _string(value, what)
    try:
        return b64decode(text.translate(_STANDARD) + "=" * (-len(text) % 4), validate=True)
    except (Base64Error, ValueError) as error:
        raise DecodeError(f"{what} is not base64: {error}") from error


def _number(value: object, datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    if isinstance(value, str) and (text := _NUMBER_TEXT.fullmatch(value)):
        value = float(value) if text["fraction"] != "" else int(value)
    if type(value) is float:
        return np.array([value])
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return np.array([value], np.int64)
    if type(value) is int and datatype.kind is Kind.FLOAT and abs(value) < 2**1023:
        return np.array([float(value)])
    raise DecodeError(f"{what} is {shown(value)}, expected {datatype}")


def write_gmap(tensors: tuple[Tensor, ...], nan: str) -> dict[str, dict[str, object]]:
    """Return a message's `gmap`, without empty maps.

    Raises:
        GatewayError: INVALID_ARGUMENT if an entry is NaN or an infinity and `nan` is `error`. The message contains the
        key.
    """
    maps: dict[str, dict[str, object]] = {}
    for name, key, value in gmap.entries(tensors):
        maps.setdefault(name, {})[key] = _write_value(name, value, nan, f"gmap: {name}[{key!r}]")
    return maps


def _write_value(name: str, value: Any, nan: str, what: str) -> object:
    if name == "s_b":
        return b64encode(value).decode()
    if name == "s_i64":
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return Raw(json.write_numbers(np.array(value), nan, what))
    return value
