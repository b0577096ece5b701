"""JSON with numbers in bulk: tensor data goes straight into arrays, everything else into plain Python values.

Refused, since real servers disagree on what they mean or die of them: duplicate keys, nesting beyond 64, ragged arrays,
bytes after the document, and more values outside tensor data than the limit.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import orjson

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer, Shape
from gateway.core.values import value

MAX_DEPTH = 64
INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Form(Enum):
    """How a key's array is read."""

    ARRAY = "one rectangular array of any rank, or one scalar"
    VECTORS = "a list of vectors of any lengths, each perhaps a bare scalar"


@value
class Array:
    """One rectangular JSON array. `shape` is its nesting, () for a bare scalar; `values` are flat, row-major: an int64,
    uint64 (some literal is above INT64), float64 (some literal is no integer) or bool array, or a list of strings.
    An array without elements is int64."""

    values: "np.ndarray[Any, Any] | list[str]"
    shape: Shape


Json: TypeAlias = Any


def read(body: Buffer, arrays: Mapping[str, Form], *, values: int, literals: bool) -> dict[str, Json]:
    """The JSON object in `body`.

    Wherever a key of `arrays` stands, at any level, its value is an Array (Form.ARRAY) or a list of them
    (Form.VECTORS). `values` limits how many values may stand outside those arrays (`limits.json_values`), and how many containers
    within them. `literals`: NaN, Infinity and -Infinity (also `nan`, `inf` and `-inf`, as old UM-Bridge servers print
    them) are numbers.

    Raises:
        DecodeError: not JSON, not an object, or one of the things that the module refuses; says where.
    """
    raise DecodeError("not written yet")


def write(document: Json) -> bytes:
    """Compact JSON text of plain Python values (no bare NaN among them)."""
    return orjson.dumps(document)


def write_numbers(array: "np.ndarray[Any, Any]", nan: str, what: str) -> bytes:
    """The JSON array of `array`, nested as its shape; a bare number for rank 0. Floats are widened to double first, so
    that every reader gets the same number.

    `nan` says how NaN and infinities are written: `literal` (NaN, Infinity, -Infinity), `null`, `string`, or `error`.

    Raises:
        GatewayError: INVALID_ARGUMENT naming `what`, for `error`.
    """
    raise DecodeError("not written yet")
