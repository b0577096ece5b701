"""The functions of tensors between steps: literal values, types, and derivatives against each other."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.bridge.graphs.transforms import TRANSFORMS, GraphError, Transform
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.models import TensorSpec
from gateway.core.tensors import MAX_RANK, datatype_of

A = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
B = np.array([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])


def made(name: str, **options: Any) -> Transform:
    return TRANSFORMS[name]({key.rstrip("_"): value for key, value in options.items()})


def specs(*arrays: Any) -> list[TensorSpec]:
    return [TensorSpec("", datatype_of(each.dtype), each.shape) for each in arrays]


def applied(transform: Transform, *arrays: Any) -> Any:
    """The result; its datatype and shape are those that `spec` tells."""
    told = transform.spec(specs(*arrays))
    found = transform.apply(arrays)
    assert (datatype_of(found.dtype), found.shape) == (told.datatype, told.shape)
    return found


VALUES = [
    ("reshape", {"shape": [3, -1]}, [A], [[1, 2], [3, 4], [5, 6]]),
    ("cast", {"datatype": "INT32"}, [A], [[1, 2, 3], [4, 5, 6]]),
    ("cast", {"datatype": "FP64"}, [A], A),
    ("cast", {"datatype": "BOOL"}, [np.array([0, 2, -1])], [False, True, True]),
    ("cast", {"datatype": "FP32"}, [np.array([True, False])], [1, 0]),
    ("cast", {"datatype": "UINT8"}, [np.array([255], np.uint64)], [255]),
    ("concat", {"axis": 1}, [A, B[:, :1]], [[1, 2, 3, 10], [4, 5, 6, 40]]),
    ("concat", {}, [A[:1], B], [[1, 2, 3], [10, 20, 30], [40, 50, 60]]),
    ("stack", {"axis": -1}, [A[:, 0], B[:, 0]], [[1, 10], [4, 40]]),
    ("slice", {"axis": 1, "from": 1}, [A], [[2, 3], [5, 6]]),
    ("slice", {"axis": -1, "from": -2, "to": -1}, [A], [[2], [5]]),
    ("slice", {"to": 0}, [A], np.zeros((0, 3))),
    ("split", {"parts": 3, "part": 1, "axis": 1}, [A], [[2], [5]]),
    ("sum", {}, [A, B], [[11, 22, 33], [44, 55, 66]]),
    ("sum", {"weights": [2, -0.5]}, [A, B], [[-3, -6, -9], [-12, -15, -18]]),
    ("sum", {"axis": 1}, [A], [6, 15]),
    ("sum", {"axis": -2}, [A], [5, 7, 9]),
    ("mean", {}, [A, B, A], [[4, 8, 12], [16, 20, 24]]),
    ("mean", {"weights": [3, 1]}, [A, B], [[3.25, 6.5, 9.75], [13, 16.25, 19.5]]),
    ("mean", {"axis": 0}, [A], [2.5, 3.5, 4.5]),
    ("vote", {}, [np.array([1, 2, 3]), np.array([1, 5, 6]), np.array([9, 5, 7])], [1, 5, 3]),
    ("vote", {}, [np.array([b"cat", b"dog"], object), np.array([b"cow", b"dog"], object)], [b"cat", b"dog"]),
    ("argmax", {}, [np.array([[1, 7, 3], [9, 5, 9]])], [1, 0]),
    ("argmax", {"axis": 0}, [A], [1, 1, 1]),
]


@pytest.mark.parametrize(("name", "options", "arrays", "expected"), VALUES)
def test_values(name: str, options: dict[str, Any], arrays: list[Any], expected: Any) -> None:
    np.testing.assert_array_equal(applied(made(name, **options), *arrays), np.array(expected))


LINEAR = [each for each in VALUES if each[0] not in ("vote", "argmax", "cast")] + [
    ("cast", {"datatype": "FP32"}, [A], A)
]


@pytest.mark.parametrize(("name", "options", "arrays", "_"), LINEAR)
def test_pull_is_the_transpose_of_push(name: str, options: dict[str, Any], arrays: list[Any], _: Any) -> None:
    transform, random = made(name, **options), np.random.default_rng(1)
    tangents = [random.normal(size=each.shape) for each in arrays]
    result = transform.push(tangents)
    sens = random.normal(size=result.shape)
    pulled = transform.pull(arrays, sens)
    assert [each.shape for each in pulled] == [each.shape for each in arrays]
    there = (result * sens).sum()
    back = sum((one * other).sum() for one, other in zip(pulled, tangents, strict=True))
    assert there == pytest.approx(back, rel=1e-13)
    # And it is linear: its derivative is its own difference.
    moved = [each + tangent for each, tangent in zip(arrays, tangents, strict=True)]
    if name != "cast":
        np.testing.assert_allclose(transform.apply(moved) - transform.apply(arrays), result, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_of_two_byte_floats_are_rounded_once(dtype: Any) -> None:
    array = np.full(3000, 1.0, dtype)
    total = applied(made("sum", axis=0), array)
    assert total.dtype == dtype
    assert float(total) == float(np.asarray(3000.0).astype(dtype))  # in FP16 or BF16 it would stop at 2048, or 256
    assert float(applied(made("mean", axis=0), array)) == 1.0
    third = applied(made("mean"), *(np.array([each], dtype) for each in (1, 1, 2)))
    assert third[0] == np.asarray(4 / 3, np.float32).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.int8, [100, 28]), (np.int64, [2**63 - 1, 1]), (np.int64, [-(2**63), -1]),
        (np.uint64, [2**64 - 1, 1]), (np.uint8, [200, 56]),
    ],
)  # fmt: skip
def test_integers_do_not_wrap_around(dtype: Any, values: list[int]) -> None:
    one, other = (np.array([each], dtype) for each in values)
    told = rf"a sum is out of the range of {datatype_of(one.dtype).value}"
    with pytest.raises(GraphError, match=told):
        made("sum").apply([one, other])
    with pytest.raises(GraphError, match=told):
        made("sum", axis=0).apply([np.concatenate([one, other])])
    fits = np.array([values[0], 0], dtype)
    assert applied(made("sum", axis=0), fits) == values[0]
    assert applied(made("sum"), fits[:1], fits[1:]) == values[0]


def test_large_integers_that_cancel_are_exact() -> None:
    array = np.array([2**62, 2**62, -(2**62), 1], np.int64)
    assert applied(made("sum", axis=0), array) == 2**62 + 1


@pytest.mark.parametrize(
    ("array", "datatype", "told"),
    [
        (np.array([1.5]), "INT32", "element 0, 1.5, is not integral, so no INT32"),
        (np.array([np.nan]), "INT32", "element 0, nan, has no exact value as INT32"),
        (np.array([300]), "UINT8", "element 0, 300, is out of the range of UINT8"),
        (np.array([1e300]), "FP32", "is out of the range of FP32"),
    ],
)
def test_a_cast_refuses_what_the_datatype_does_not_have(array: Any, datatype: str, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        made("cast", datatype=datatype).apply([array])


def test_nan_goes_through() -> None:
    nan = np.array([np.nan, 1.0])
    assert np.isnan(applied(made("sum"), nan, nan)[0])
    assert np.isnan(applied(made("cast", datatype="FP32"), nan)[0])
    assert applied(made("argmax"), nan) == 0  # as numpy has it


def shape(*sizes: int, datatype: Datatype = Datatype.FP64) -> TensorSpec:
    return TensorSpec("", datatype, sizes)


TYPES = [
    ("reshape", {"shape": [-1, 4]}, [shape(-1, 2, 2)], shape(-1, 4)),
    ("reshape", {"shape": [2, 3]}, [shape(6)], shape(2, 3)),
    ("concat", {"axis": 1}, [shape(-1, 2), shape(5, 3)], shape(5, 5)),
    ("concat", {"axis": 1}, [shape(-1, -1), shape(-1, 3)], shape(-1, -1)),
    ("stack", {}, [shape(-1, 2), shape(-1, 2)], shape(2, -1, 2)),
    ("slice", {"axis": 1, "from": 1}, [shape(-1, 4)], shape(-1, 3)),
    ("slice", {"axis": 0, "to": 2}, [shape(-1, 4)], shape(-1, 4)),
    ("split", {"parts": 2, "part": 0, "axis": 1}, [shape(-1, 4)], shape(-1, 2)),
    ("sum", {}, [shape(-1, -1), shape(-1, 3)], shape(-1, 3)),
    ("sum", {"axis": 1}, [shape(-1, 3)], shape(-1)),
    ("argmax", {}, [shape(-1, 3)], shape(-1, datatype=Datatype.INT64)),
]


@pytest.mark.parametrize(("name", "options", "given", "expected"), TYPES)
def test_types(name: str, options: dict[str, Any], given: list[TensorSpec], expected: TensorSpec) -> None:
    assert made(name, **options).spec(given) == expected


MISFITS = [
    ("reshape", {"shape": [4]}, [shape(6)], r"FP64 \[6\] cannot have shape \[4\]"),
    ("reshape", {"shape": [-1, 4]}, [shape(6)], r"FP64 \[6\] cannot have shape \[-1, 4\]"),
    ("cast", {"datatype": "FP32"}, [shape(2, datatype=Datatype.BYTES)], r"BYTES \[2\] has no numbers for FP32"),
    ("concat", {"axis": 2}, [shape(2, 2)], r"axis 2 is out of range for FP64 \[2, 2\]"),
    (
        "concat",
        {"axis": 0},
        [shape(2, 2), shape(2, 3)],
        r"expected tensors of the same shape, got FP64 \[2, 2\] and FP64 \[2, 3\]",
    ),
    ("concat", {"axis": 0}, [shape(2), shape(2, datatype=Datatype.FP32)], "different datatypes.*`cast` one of them"),
    ("stack", {"axis": 2}, [shape(2)], "axis 2 is out of range for"),
    ("stack", {}, [shape(*[1] * MAX_RANK)], f"expected at most {MAX_RANK} dimensions"),
    ("slice", {"axis": 1}, [shape(2)], "axis 1 is out of range for"),
    ("split", {"parts": 3, "part": 0}, [shape(4)], r"FP64 \[4\] has no 3 equal parts along axis 0"),
    ("split", {"parts": 2, "part": 2}, [shape(4)], "expected a part from 0 to 1, got 2"),
    ("sum", {}, [shape(2), shape(3)], "tensors of the same shape"),
    ("sum", {}, [shape(2, datatype=Datatype.BYTES)], r"expected numbers, got BYTES \[2\]"),
    ("sum", {}, [shape(2, datatype=Datatype.BOOL)], r"expected numbers, got BOOL \[2\]"),
    ("sum", {"weights": [1]}, [shape(2), shape(2)], "1 weights for 2 tensors"),
    ("sum", {"weights": [1]}, [shape(2, datatype=Datatype.INT64)], "weights need floats"),
    ("mean", {}, [shape(2, datatype=Datatype.INT64)], "a mean needs floats"),
    ("mean", {"axis": 0}, [shape(2, datatype=Datatype.INT64)], "a mean needs floats"),
    ("vote", {}, [shape(2), shape(3)], "tensors of the same shape"),
    ("argmax", {}, [shape(2, 0)], r"FP64 \[2, 0\] has no largest element along axis -1"),
    ("argmax", {}, [shape(2, datatype=Datatype.BYTES)], "expected numbers"),
]


@pytest.mark.parametrize(("name", "options", "given", "told"), MISFITS)
def test_tensors_that_do_not_fit(name: str, options: dict[str, Any], given: list[TensorSpec], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        made(name, **options).spec(given)


@pytest.mark.parametrize(
    ("name", "options", "given", "expected"),
    [
        ("reshape", {"shape": [-1, 4]}, [shape(-1, 2, 2)], True),
        ("reshape", {"shape": [-1, 4]}, [shape(-1, 8)], False),
        ("reshape", {"shape": [-1, 4]}, [shape(-1, -1)], False),
        ("reshape", {"shape": [4, -1]}, [shape(-1, 4)], False),
        ("concat", {"axis": -2}, [shape(-1, 4)], False),
        ("concat", {"axis": 1}, [shape(-1, 4)], True),
        ("stack", {"axis": 0}, [shape(-1, 4)], False),
        ("stack", {"axis": -1}, [shape(-1, 4)], True),
        ("slice", {"axis": -2, "from": 1}, [shape(-1, 4)], False),
        ("split", {"axis": 1, "parts": 2, "part": 0}, [shape(-1, 4)], True),
        ("sum", {"axis": 0}, [shape(-1, 4)], False),
        ("sum", {"axis": 1}, [shape(-1, 4)], True),
        ("sum", {}, [shape(-1, 4)], True),
    ],
)
def test_which_keep_the_rows_of_a_batch_apart(
    name: str, options: dict[str, Any], given: list[TensorSpec], expected: bool
) -> None:
    assert made(name, **options).keeps_rows(given) is expected


@pytest.mark.parametrize(
    ("name", "options", "told", "place"),
    [
        ("reshape", {}, "needs shape", ()),
        ("reshape", {"shape": [-1, -1]}, "at most one of them -1", ("shape",)),
        ("reshape", {"shape": [1.5]}, "expected a list of sizes", ("shape",)),
        ("cast", {"datatype": "float64"}, "no datatype 'float64'; did you mean FP64?", ("datatype",)),
        ("cast", {"datatype": "X"}, "no datatype 'X', expected one of", ("datatype",)),
        ("slice", {"axis": "1"}, "expected an integer, got '1'", ("axis",)),
        ("slice", {"axis": True}, "expected an integer, got True", ("axis",)),
        ("split", {"parts": 2}, "needs part, axis", ()),
        ("sum", {"weight": [1]}, "no option 'weight'; expected weights", ("weight",)),
        ("sum", {"weights": [1, "x"]}, "expected a list of numbers", ("weights",)),
        ("mean", {"weights": [1, -1]}, "their sum not 0", ("weights",)),
        ("mean", {"weights": [float("inf")]}, "weights must be finite", ("weights",)),
        ("vote", {"axis": 1}, "no option 'axis'; expected none", ("axis",)),
    ],
)
def test_wrong_options(name: str, options: dict[str, Any], told: str, place: tuple[str, ...]) -> None:
    with pytest.raises(GraphError) as refused:
        made(name, **options)
    assert told in refused.value.message
    assert refused.value.place == place
