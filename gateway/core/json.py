"""JSON with numbers in bulk: tensor data goes straight into arrays, everything else into plain Python values.

Refused, since real servers disagree on what they mean or die of them: duplicate keys, nesting beyond 64, ragged arrays,
bytes after the document, and more values outside tensor data than the limit.
"""

import json
from collections.abc import Container, Mapping
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import orjson

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json_arrays import Array, Form, read_array
from gateway.core.json_document import AllBut, Wanted, read_document
from gateway.core.json_numbers import BLANKS, INT64_MAX, INT64_MIN, MAX_DEPTH, UINT64_MAX, Numbers, Text
from gateway.core.json_small import read_small
from gateway.core.types import Buffer

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MAX_DEPTH",
    "UINT64_MAX",
    "Array",
    "Form",
    "Numbers",
    "read",
    "read_bare",
    "read_members",
    "write",
    "write_numbers",
]

Json: TypeAlias = Any

_SMALL = 8192  # bytes; about where cutting the arrays out becomes cheaper than making Python numbers
_BOM = b"\xef\xbb\xbf"


def read(
    body: Buffer, arrays: Mapping[str, Form], *, values: int, literals: bool, level: int | None = None
) -> dict[str, Json]:
    """The JSON object in `body`.

    Wherever a key of `arrays` stands, its value is an Array (Form.ARRAY) or a list of them (Form.VECTORS): at any
    level, or at `level` alone (the document's own keys are at 1, those of objects in a list there at 3), so that such
    a key elsewhere is an ordinary one. `values` limits how many values may stand outside those arrays
    (`limits.json_values`), and how many more containers than elements within them. `literals`: NaN, Infinity and
    -Infinity (also `nan`, `inf` and `-inf`, as old UM-Bridge servers print them) are numbers. 1e400 never is one, nor
    an infinity: the text means a finite number that no double holds.

    Raises:
        DecodeError: not JSON, not an object, or one of the things that the module refuses; says where.
    """
    text = (body if isinstance(body, bytes) else bytes(body)).removeprefix(_BOM)
    if not text or text.isspace():
        raise DecodeError("empty body, expected a JSON object")
    wanted = Wanted(arrays, level)
    if len(text) <= _SMALL and b"\\" not in text:
        try:
            return read_small(text, wanted, values)
        except DecodeError:
            pass  # the careful way tells whether it is one, and why
    return read_document(text, wanted, values, literals)


def read_members(body: Buffer, plain: Container[str], *, values: int, literals: bool) -> dict[str, Json]:
    """The JSON object in `body`, of which every member of its own is an Array (of shape () for a scalar), but for those
    named in `plain`. `values` and `literals` are those of `read`.

    Raises:
        DecodeError: as `read`; also a member that is null or an object, or ragged.
    """
    return read(body, AllBut(plain), values=values, literals=literals, level=1)


def read_bare(text: bytes, *, values: int, literals: bool) -> Array:
    """The rectangular array, or the scalar, that the whole of `text` is: numbers, booleans or strings. `values` and
    `literals` are those of `read`.

    Raises:
        DecodeError: it is something else.
    """
    text = text.strip(BLANKS)
    if text.startswith(b"{"):
        raise DecodeError("an object, expected an array")
    return read_array(Text(text, 0, len(text)), values, literals)


def write(document: Json) -> bytes:
    """Compact JSON text of plain Python values (no bare NaN among them)."""
    try:
        return orjson.dumps(document)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def write_numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> bytes:
    """The JSON array of `array`, nested as its shape; a bare number for rank 0. Floats are widened to double first, so
    that every reader gets the same number.

    `nan` says how NaN and infinities are written: `literal` (NaN, Infinity, -Infinity), `null`, `string`, or `error`.

    Raises:
        GatewayError: INVALID_ARGUMENT naming `what`, for `error`.
    """
    whole = array.dtype.kind in "biu"
    text = _write_array(array if whole else array.astype(np.float64, copy=False))
    # numbers and booleans are written without an n; whatever is not finite orjson writes as null, without a word
    return text if whole or b"n" not in text else _with_words(text, array, nan, what)


def _write_array(array: "np.ndarray[Any, Any]") -> bytes:
    if array.ndim == 0 or array.size == 0:
        return orjson.dumps(array.tolist())
    # orjson takes the array for aligned, which views on a message often are not
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "A"])
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)


_WORDS = {
    "literal": (b"NaN", b"Infinity", b"-Infinity"),
    "string": (b'"NaN"', b'"Infinity"', b'"-Infinity"'),
    "null": (b"null", b"null", b"null"),
}


def _with_words(text: bytes, array: "np.ndarray[Any, Any]", nan: str, what: str) -> bytes:
    """`text` with the words that `nan` wants in place of each null."""
    flat = array.astype(np.float64, copy=False).reshape(-1)
    places = np.flatnonzero(~np.isfinite(flat))
    others = flat[places].tolist()
    if nan not in _WORDS:
        raise invalid_input(
            f"{what}: element {places[0]} is {others[0]}, for which JSON has no number; "
            "`translate: {nan: literal}` (or null, or string) would write it"
        )
    not_a_number, above, below = _WORDS[nan]
    words = [not_a_number if other != other else above if other > 0 else below for other in others]
    return b"".join(chain.from_iterable(zip(text.split(b"null"), [*words, b""], strict=True)))
