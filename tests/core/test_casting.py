import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError

SIGNED = [Datatype.INT8, Datatype.INT16, Datatype.INT32, Datatype.INT64]
UNSIGNED = [Datatype.UINT8, Datatype.UINT16, Datatype.UINT32, Datatype.UINT64]
FLOATS = [Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64]


def array(*numbers: Any) -> "np.ndarray[Any, Any]":
    """What the JSON reader would make of `numbers`."""
    if any(type(number) is float for number in numbers):
        return np.array(numbers, np.float64)
    return np.array(numbers, np.uint64 if max(numbers) > 2**63 - 1 else np.int64)


@pytest.mark.parametrize("datatype", SIGNED + UNSIGNED)
def test_integers_keep_their_extremes(datatype: Datatype) -> None:
    bounds = np.iinfo(datatype.dtype)
    for number in (int(bounds.min), int(bounds.max)):
        result = cast(array(number), datatype, "x")
        assert result.dtype == datatype.dtype
        assert result.tolist() == [number]


@pytest.mark.parametrize("datatype", SIGNED + UNSIGNED)
def test_integers_out_of_range_are_never_wrapped(datatype: Datatype) -> None:
    bounds = np.iinfo(datatype.dtype)
    for number in (int(bounds.min) - 1, int(bounds.max) + 1):
        if -(2**63) <= number < 2**64:
            with pytest.raises(DecodeError, match=f"x: element 1, {number}, is out of the range of {datatype}$"):
                cast(array(0, number), datatype, "x")


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16, Datatype.FP32])
@pytest.mark.parametrize("at", [0, 77, 999])
def test_one_beyond_the_range_is_found_among_many(at: int, datatype: Datatype) -> None:
    many = np.ones(1000)
    many[at] = 1e39
    with pytest.raises(DecodeError, match=f"x: element {at}, 1e\\+39, is out of the range of {datatype}"):
        cast(many, datatype, "x")


@pytest.mark.parametrize("datatype", SIGNED + UNSIGNED)
def test_integral_doubles_are_integers(datatype: Datatype) -> None:
    assert cast(array(1.0, 1e2, -0.0), datatype, "x").tolist() == [1, 100, 0]


@pytest.mark.parametrize(
    ("number", "datatype", "why"),
    [
        (65520.0, Datatype.FP16, "is out of the range of FP16"),
        (70000, Datatype.FP16, "is out of the range of FP16"),
        (1e39, Datatype.FP32, "is out of the range of FP32"),
        (-1e39, Datatype.BF16, "is out of the range of BF16"),
        (1.5, Datatype.INT32, "is not integral, so no INT32"),
        (5e-324, Datatype.UINT8, "is not integral"),
        (2.0**53 + 2, Datatype.INT64, "has no exact value as INT64"),
        (-(2.0**53) - 2, Datatype.INT64, "has no exact value as INT64"),
        (1e300, Datatype.UINT64, "has no exact value as UINT64"),
        (math.nan, Datatype.INT8, "nan, has no exact value as INT8"),
        (-math.inf, Datatype.INT8, "-inf, has no exact value as INT8"),
        (-1.0, Datatype.UINT64, "is out of the range of UINT64"),
        (256.0, Datatype.UINT8, "256, is out of the range of UINT8"),
    ],
)
def test_numbers_without_a_value_of_the_datatype(number: float, datatype: Datatype, why: str) -> None:
    with pytest.raises(DecodeError, match=f"^input 'n': element 1, .*{why}"):
        cast(array(type(number)(0), number), datatype, "input 'n'")


def test_doubles_are_integers_up_to_2_to_the_53() -> None:
    assert cast(array(2.0**53, -(2.0**53)), Datatype.INT64, "x").tolist() == [2**53, -(2**53)]


@pytest.mark.parametrize("datatype", FLOATS)
def test_floats_keep_what_is_not_finite(datatype: Datatype) -> None:
    result = cast(array(math.nan, math.inf, -math.inf, -0.0), datatype, "x").astype(np.float64)
    np.testing.assert_array_equal(result, [math.nan, math.inf, -math.inf, -0.0])
    assert math.copysign(1, result[3]) == -1


@pytest.mark.parametrize(
    ("number", "datatype", "rounded"),
    [
        (65519.0, Datatype.FP16, 65504.0),
        (1 + 2**-11 + 2**-40, Datatype.FP16, 1 + 2**-10),
        (1 + 2**-8, Datatype.BF16, 1.0),
        (1 + 2**-8 + 2**-40, Datatype.BF16, 1 + 2**-7),
        (1 + 3 * 2**-8 - 2**-40, Datatype.BF16, 1 + 2**-7),
        (-1 - 2**-8 - 2**-40, Datatype.BF16, -1 - 2**-7),
        (2**40 + 2**32 + 1, Datatype.BF16, 2.0**40 + 2**33),
        (2**64 - 1, Datatype.BF16, 2.0**64),
        (2**53 + 1, Datatype.FP64, 2.0**53),
        (0.1, Datatype.FP32, 0.10000000149011612),
        (2**24 + 1, Datatype.FP32, 2.0**24),
    ],
)
def test_floats_round_once_to_the_nearest(number: float, datatype: Datatype, rounded: float) -> None:
    result = cast(array(number), datatype, "x")
    assert result.dtype == datatype.dtype
    assert result.astype(np.float64).tolist() == [rounded]


@given(st.floats(-1e38, 1e38) | st.integers(-(2**63), 2**63 - 1))
def test_bf16_is_the_nearest(number: float) -> None:
    result = cast(array(number), Datatype.BF16, "x")
    distance = abs(Fraction(float(result[0])) - Fraction(number))
    for neighbour in (math.inf, -math.inf):
        other = float(np.nextafter(result[0], ml_dtypes.bfloat16(neighbour)))
        assert distance <= abs(Fraction(other) - Fraction(number))


@pytest.mark.parametrize("datatype", [Datatype.BOOL, Datatype.BYTES])
def test_numbers_are_neither_booleans_nor_bytes(datatype: Datatype) -> None:
    with pytest.raises(DecodeError, match=f"x holds numbers, expected {datatype}"):
        cast(array(1), datatype, "x")


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.INT64, Datatype.UINT8, Datatype.BYTES])
def test_booleans_are_not_numbers(datatype: Datatype) -> None:
    with pytest.raises(DecodeError, match=f"x holds booleans, expected {datatype}"):
        cast(np.array([True]), datatype, "x")


def test_booleans_are_booleans() -> None:
    assert cast(np.array([True, False]), Datatype.BOOL, "x").tolist() == [True, False]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
@pytest.mark.parametrize("datatype", SIGNED + FLOATS)
def test_the_shape_stays(shape: tuple[int, ...], datatype: Datatype) -> None:
    for dtype in (np.int64, np.uint64, np.float64):
        assert cast(np.ones(shape, dtype), datatype, "x").shape == shape
