"""Read small JSON documents entirely with orjson. Cutting the arrays out would take three times as long.

The module returns a result only if it is certainly correct. For errors, and for everything that orjson reads
differently from `document` (duplicate keys, integers that do not fit in 64 bits), it raises a DecodeError without a
message. `reading` then calls `document`.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import orjson

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError
from gateway.core.json.arrays import Array, ArrayForm
from gateway.core.json.bulk_numbers import MAX_DEPTH, Numbers
from gateway.core.json.document import LARGE, Walk, Wanted

_FEW = 32
"""Maximum number of floats for which Python finds the minimum and the maximum faster than numpy."""


def read_small(text: bytes, wanted: Wanted, values: int) -> dict[str, Any]:
    """Return the document in `text`, as described for `gateway.core.json.read`.

    Raises:
        DecodeError: the document is invalid, or orjson might read it differently from `document`.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DecodeError from error
    walk = Walk(wanted, lambda key, item: _CONVERT[wanted.arrays[key]](item, values))
    walk.document(document)
    # orjson keeps the last of duplicate keys; the number of colons reveals the duplicates
    if walk.has_large or walk.members != text.count(b":") or walk.values > values:
        raise DecodeError
    return document  # type: ignore[no-any-return]


def _array(item: Any, values: int, level: int = 1) -> Array:
    if type(item) is not list:
        return _scalar(item)
    if level > MAX_DEPTH:
        raise DecodeError
    kinds = frozenset(map(type, item))
    if kinds == _LISTS:
        return _nested(item, values, level)
    if kinds == _STRINGS:
        return Array(bytes_elements.pack(map(str.encode, item)), (len(item),))
    convert = _NUMBERS.get(kinds)
    if convert is None:
        raise DecodeError
    return Array(convert(item), (len(item),))


def _scalar(item: Any) -> Array:
    if type(item) not in _SCALARS:
        raise DecodeError
    return Array(_array([item], 1).values, ())


_SCALARS = frozenset({int, float, bool, str})
_LISTS = frozenset({list})


def _nested(rows: list[Any], values: int, level: int) -> Array:
    lengths = set(map(len, rows))
    leaves = list(chain.from_iterable(rows))
    if len(lengths) > 1 or len(rows) >= len(leaves) + values:
        raise DecodeError
    inner = _array(leaves, values, level + 1)
    return Array(inner.values, (len(rows), lengths.pop(), *inner.shape[1:]))


def _vectors(item: Any, values: int) -> list[Array]:
    if type(item) is not list or len(item) > values:
        raise DecodeError
    return [_vector(vector) for vector in item]


def _vector(item: Any) -> Array:
    if type(item) is not list:
        raise DecodeError
    convert = _NUMBERS.get(frozenset(map(type, item)))
    if convert is None:
        raise DecodeError
    return Array(convert(item), (len(item),))


_CONVERT: dict[ArrayForm, Callable[[Any, int], Any]] = {ArrayForm.ARRAY: _array, ArrayForm.VECTORS: _vectors}


def _integers(item: list[int]) -> Numbers:
    try:
        return np.array(item, np.int64)
    except OverflowError:
        pass
    try:
        return np.array(item, np.uint64)
    except OverflowError as error:
        raise DecodeError from error


def _doubles(item: list[float]) -> Numbers:
    doubles = np.array(item, np.float64)
    if len(item) <= _FEW:
        is_certain = min(item) > -LARGE and max(item) < LARGE
    else:
        is_certain = not np.count_nonzero(np.abs(doubles) >= LARGE)
    if not is_certain:
        raise DecodeError
    return doubles


_NUMBERS: dict[frozenset[type], Callable[[list[Any]], Numbers]] = {
    frozenset(): lambda item: np.array(item, np.int64),
    frozenset({int}): _integers,
    frozenset({float}): _doubles,
    frozenset({int, float}): _doubles,
    frozenset({bool}): lambda item: np.array(item, np.bool_),
}
_STRINGS = frozenset({str})
