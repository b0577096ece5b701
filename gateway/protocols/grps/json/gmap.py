"""`gmap` in JSON: bytes in base64, int64 as a string, NaN and infinities as words."""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from math import isfinite
from reprlib import repr as shown
from typing import Any

import numpy as np
from orjson import Fragment

from gateway import json
from gateway.core import bytes_elements
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.types import Tensor
from gateway.json import INT64_MAX, INT64_MIN, Array
from gateway.protocols.grps import gmap
from gateway.protocols.grps.schema import MAPS

_NUMBER = re.compile(r"-?[0-9]{1,400}(?P<fraction>(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?)|NaN|-?Infinity")


def read_entries(given: object) -> tuple[Tensor, ...]:
    """The entries of a message's `gmap`.

    Raises:
        DecodeError: naming its key, a value that its map cannot hold.
    """
    if not isinstance(given, dict):
        raise DecodeError("gmap must be an object of maps")
    return tuple([entry for name in MAPS for entry in _read_map(name, given.get(name))])


def _read_map(name: str, given: object) -> Iterator[Tensor]:
    if given is None:
        return
    if not isinstance(given, dict):
        raise DecodeError(f"gmap: {name} must be an object")
    for key, value in given.items():
        yield gmap.entry(name, key, _read_value(name, _plain(value), f"gmap: {name}[{key!r}]"))


def _plain(value: object) -> object:
    """The value of a key that is called like a list of numbers, which was read as one."""
    if not isinstance(value, Array) or value.shape:
        return value
    return bytes_elements.unpack(value.values)[0].decode() if isinstance(value.values, bytes) else value.values.item()


def _read_value(name: str, value: object, what: str) -> object:
    datatype = MAPS[name]
    if datatype is not Datatype.BYTES:
        return cast(_number(value, datatype, what), datatype, what)[0]
    return _string(value, what) if name == "s_s" else of_base64(value, what)


def _string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{what} is {shown(value)}, expected a string")
    return value


def of_base64(value: object, what: str) -> bytes:
    """Bytes, as proto3 has them in JSON. Raises DecodeError naming `what` for anything else."""
    text = _string(value, what)
    try:
        return b64decode(text, validate=True)
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


def write_entries(tensors: tuple[Tensor, ...], nan: str) -> dict[str, dict[str, object]]:
    """A message's `gmap`; a map without entries is left out.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the key, a number that JSON lacks and `nan` does not write.
    """
    maps: dict[str, dict[str, object]] = {}
    for name, key, value in gmap.entries(tensors):
        maps.setdefault(name, {})[key] = _written(name, value, nan, f"gmap: {name}[{key!r}]")
    return maps


def _written(name: str, value: Any, nan: str, what: str) -> object:
    if name == "s_b":
        return b64encode(value).decode()
    if name == "s_i64":
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return Fragment(json.write_numbers(np.array(value), nan, what))
    return value
