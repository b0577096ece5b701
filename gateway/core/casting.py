"""Functions that cast numbers to a datatype, mainly for codecs that read numbers from JSON text.

The functions check every value: integers never wrap around, and floats never become infinite.

`bridge/datatypes.py` converts tensors that already have a datatype, according to the route's `cast`.
`datatypes.WIDENINGS` lists the exact conversions between datatypes.
"""

from typing import Any

import numpy as np

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError

_EXACT_IN_DOUBLE = 2.0**53


def cast(values: "np.ndarray[Any, Any]", datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    """Return `values` (int64, uint64, float64 or bool, any shape) in the same shape, with the dtype of `datatype`.

    An integer datatype accepts integral numbers in its range, including `1.0` and `1e3`. Numbers that arrive as doubles
    are exact up to 2^53. A float datatype rounds to the nearest value. It accepts NaN and infinities but rejects finite
    numbers beyond its range.

    Raises:
        DecodeError: a number cannot be cast. The message contains `what`, the first number that cannot be cast, and the
        datatype.
    """
    if values.dtype == datatype.dtype:
        return values
    if values.dtype.kind == "b":
        raise DecodeError(f"{what} holds booleans, expected {datatype}")
    if datatype.kind is Kind.FLOAT:
        return _to_float(values, datatype, what)
    if datatype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        return _to_integer(values, datatype, what)
    raise DecodeError(f"{what} holds numbers, expected {datatype}")


def _to_float(values: "np.ndarray[Any, Any]", datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    if datatype is not Datatype.BF16:
        # numpy reads overflows from the processor's flag; searching for infinities takes three times as long
        try:
            with np.errstate(over="raise"):
                return values.astype(datatype.dtype)
        except FloatingPointError:
            pass  # handled below
    with np.errstate(over="ignore"):
        cast_values = (_single_for_bf16(values) if datatype is Datatype.BF16 else values).astype(datatype.dtype)
    beyond = np.isinf(cast_values.astype(np.float64)) & np.isfinite(values)
    _refuse_first(values, beyond, datatype, what, "is out of the range of")
    return cast_values


def _single_for_bf16(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return `values` as float32 numbers that round to the same BF16 numbers as the exact values.

    ml_dtypes rounds to float32 first, and this double rounding can produce the wrong number. For example, 1 + 2^-8 +
    2^-40 becomes a tie between two BF16 numbers, and the tie is then rounded in the wrong direction. Therefore, this
    function moves each tie by one float32 step in the direction of the exact value."""
    single = values.astype(np.float32)
    tie = (single.view(np.uint32) & 0xFFFF) == 0x8000
    rounded, true = single[tie], values[tie]
    back = rounded.astype(values.dtype)
    single[tie] = np.where(
        true == back, rounded, np.nextafter(rounded, np.where(true > back, np.float32(np.inf), np.float32(-np.inf)))
    )
    return single


def _to_integer(values: "np.ndarray[Any, Any]", datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    if values.dtype.kind == "f":
        inexact = ~(np.isfinite(values) & (np.abs(values) <= _EXACT_IN_DOUBLE))
        _refuse_first(values, inexact, datatype, what, "has no exact value as")
        _refuse_first(values, values != np.floor(values), datatype, what, "is not integral, so no")
        values = values.astype(np.int64)
    integers = values.astype(datatype.dtype)
    # numpy compares integers of different dtypes by value
    if np.count_nonzero(integers != values) == 0:
        return integers
    bounds = np.iinfo(datatype.dtype)
    # numpy compares integer arrays with Python integers exactly, even beyond the array's own dtype
    beyond = (values < bounds.min) | (values > bounds.max)
    _refuse_first(values, beyond, datatype, what, "is out of the range of")
    return integers


def _refuse_first(
    values: "np.ndarray[Any, Any]", wrong: "np.ndarray[Any, Any]", datatype: Datatype, what: str, why: str
) -> None:
    if wrong.any():
        at = int(np.argmax(wrong.reshape(-1)))
        place = f"{what}: element" if what else "element"
        raise DecodeError(f"{place} {at}, {values.reshape(-1)[at]!s}, {why} {datatype}")
