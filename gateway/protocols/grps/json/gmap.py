"""`gmap` in JSON.

Bytes are base64; int64, NaN and infinities are strings. As protobuf requires, the reader accepts base64 in both
alphabets of RFC 4648, with or without padding.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from math import isfinite
from reprlib import repr as shown
from typing import Any

import numpy as np
from msgspec import Raw

from gateway.core import bytes_elements, json
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.json import INT64_MAX, INT64_MIN, Array
from gateway.core.tensors import Tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps.gmap import MAPS
from gateway.protocols.grps.json.members import read_members, spellings

_MEMBERS = spellings(MAPS)
_NUMBER = re.compile(r"-?[0-9]{1,400}(?P<fraction>(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?)|NaN|-?Infinity")


def read_gmap(maps: object) -> tuple[Tensor, ...]:
    """Return the entries of a message's `gmap`.

    Raises:
        DecodeError: a map is unknown, or a value is invalid for its map. The message contains the map and the key.
    """
    if not isinstance(maps, dict):
        raise DecodeError("gmap must be an object of maps")
    maps = read_members(maps, _MEMBERS, "gmap")
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
    if isinstance(value, str) and (text := _NUMBER.fullmatch(value)):
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
        GatewayError: INVALID_ARGUMENT for NaN or an infinity if `nan` is `error`. The message contains the key.
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
