"""Functions that read JSON documents. Arrays of numbers and strings become tensor data, and everything else becomes
plain Python values.

orjson reads small documents in one step, because cutting out the arrays would take three times as long. `document`
reads all other documents.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Container, Mapping
from itertools import chain
from typing import Any

import numpy as np
import orjson

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError
from gateway.core.json.arrays import Array, ArrayForm, read_array
from gateway.core.json.bulk_numbers import BLANKS, MAX_DEPTH, Numbers, Text
from gateway.core.json.document import LARGE, AllBut, Json, Walk, Wanted, read_document
from gateway.core.messages import Buffer, as_bytes

_SMALL = 8192
"""Maximum size of a document that `small` reads, in bytes.

`small` creates Python numbers. For larger documents, this costs more than cutting out the arrays."""


def read(
    body: Buffer, arrays: Mapping[str, ArrayForm], *, values: int, literals: bool, level: int | None = None
) -> dict[str, Json]:
    """Return the JSON object in `body`.

    The function reads the value of each key in `arrays` as an Array (ArrayForm.ARRAY) or as a list of Arrays
    (ArrayForm.VECTORS). If `level` is set, only keys at this level count. The document's own keys are at level 1, and
    the keys of objects in one of the document's lists are at level 3. By default, keys at every level count.

    `values` (`limits.json_values`) is the maximum number of values outside these arrays. The number of nested arrays in
    an array can exceed the number of its elements by at most `values`.

    If `literals` is True, the function accepts NaN, Infinity and -Infinity as numbers, and also `nan`, `inf` and
    `-inf`, which old UM-Bridge servers write. A finite number beyond the range of a double, such as 1e400, is always an
    error.

    Raises:
        DecodeError: the body is not a JSON object, or contains something that the package rejects. The message contains
            the position.
    """
    text = (body if isinstance(body, bytes) else as_bytes(body)).removeprefix(BOM_UTF8)
    if not text or text.isspace():
        raise DecodeError("empty body, expected a JSON object")
    wanted = Wanted(arrays, level)
    if len(text) <= _SMALL and b"\\" not in text:
        try:
            return _read_small(text, wanted, values)
        except DecodeError:
            pass  # read_document accepts the document or reports the error
    return read_document(text, wanted, values, literals)


def read_members(body: Buffer, plain: Container[str], *, values: int, literals: bool) -> dict[str, Json]:
    """Return the JSON object in `body`.

    Every member except the members in `plain` becomes an Array. A scalar becomes an Array of shape ().

    `values` and `literals` have the same meaning as in `read`.

    Raises:
        DecodeError: same as `read`. The error is also raised if a member is null, an object, or ragged.
    """
    return read(body, AllBut(plain), values=values, literals=literals, level=1)


def read_bare(text: bytes, *, values: int, literals: bool) -> Array:
    """Return the array or scalar of which `text` consists: numbers, booleans or strings.

    `values` and `literals` have the same meaning as in `read`.

    Raises:
        DecodeError: the text is not JSON, is ragged or mixed, or is an object.
    """
    text = text.strip(BLANKS)
    if text.startswith(b"{"):
        raise DecodeError("an object, expected an array")
    return read_array(Text(text, 0, len(text)), values, literals)


# --- Small documents ---

# These functions return a result only if it is certainly correct. For errors, and for everything that orjson reads
# differently from `document` (duplicate keys, integers that do not fit in 64 bits), they raise a DecodeError without a
# message. `read` then calls `document`.

_FEW = 32
"""Maximum number of floats whose minimum and maximum Python finds faster than numpy."""


def _read_small(text: bytes, wanted: Wanted, values: int) -> dict[str, Any]:
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
