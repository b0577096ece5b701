"""Comparing two answers."""

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import invalid_input, not_found
from gateway.core.requests import Response
from gateway.core.tensors import Tensor, tensor
from gateway.policies.comparing import (
    EXACT,
    MOST_OUTPUTS,
    PIECE,
    DifferenceKind,
    Differing,
    Largest,
    Tolerance,
    compare,
    compare_elements,
)
from tests.contract.strategies import elements
from tests.traced import traced

FLOATS = [each for each in Datatype if each.kind is Kind.FLOAT]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def of(datatype: Datatype, values: list[Any], shape: tuple[int, ...] | None = None, name: str = "y") -> Tensor:
    array = np.empty(len(values), object)
    array[:] = values
    with np.errstate(over="ignore"):
        typed = array if datatype is Datatype.BYTES else array.astype(datatype.dtype)
    return tensor(name, typed.reshape(shape or (len(values),)), datatype)


def answer(*outputs: Tensor) -> Response:
    return Response(outputs)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two tensors of one datatype and shape; about half of their elements are the same."""
    datatype, shape = draw(st.sampled_from(Datatype)), draw(SHAPES)
    count = math.prod(shape)
    element = elements(datatype)
    if datatype.kind is Kind.FLOAT:
        element = st.one_of(element, st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]))
    old = draw(st.lists(element, min_size=count, max_size=count))
    new = [draw(st.one_of(st.just(each), element)) for each in old]
    return of(datatype, old, shape), of(datatype, new, shape)


TOLERANCES = st.builds(
    Tolerance,
    st.sampled_from([0.0, 1e-6, 0.1, 3.0]),
    st.sampled_from([0.0, 1e-6, 0.1, 100.0]),
    st.sampled_from([0, 1, 1000]),
    st.sampled_from(["equal", "different"]),
)


def neighbours(value: Any, datatype: Datatype) -> tuple[float, float]:
    """The next smaller and the next larger float."""
    import ml_dtypes

    step = ml_dtypes.bfloat16 if datatype is Datatype.BF16 else datatype.dtype.type
    with np.errstate(over="ignore"):
        return float(np.nextafter(step(value), step(-math.inf))), float(np.nextafter(step(value), step(math.inf)))


def is_equal(old: Any, new: Any, tolerance: Tolerance) -> bool:
    """One element at a time, without steps."""
    if not isinstance(old, float):
        return bool(old == new)
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new) and tolerance.nan == "equal"
    if math.isinf(old) or math.isinf(new):
        return bool(old == new)
    return bool(abs(new - old) <= tolerance.atol + tolerance.rtol * abs(old))


@given(pairs(), TOLERANCES)
def test_elements_are_compared_as_one_by_one(pair: tuple[Tensor, Tensor], tolerance: Tolerance) -> None:
    old, new = pair
    tolerance = Tolerance(tolerance.rtol, tolerance.atol, 0, tolerance.nan)
    values = [each.array.reshape(-1).tolist() for each in pair]
    if old.datatype.kind is Kind.FLOAT:
        values = [list(map(float, each)) for each in values]
    differing = [at for at, each in enumerate(zip(*values, strict=True)) if not is_equal(each[0], each[1], tolerance)]
    found = compare_elements(old, new, tolerance, shown=3)
    assert (found.count, found.of) == (len(differing), old.elements)
    assert [each.index for each in found.first] == [tuple(np.unravel_index(at, old.shape)) for at in differing[:3]]


@given(pairs(), TOLERANCES)
def test_a_larger_tolerance_finds_no_more(pair: tuple[Tensor, Tensor], tolerance: Tolerance) -> None:
    exact = Tolerance(nan=tolerance.nan)
    assert compare_elements(*pair, tolerance).count <= compare_elements(*pair, exact).count


@given(pairs())
def test_an_answer_is_equal_to_itself_and_the_largest_distances_are_where_they_are_said_to_be(
    pair: tuple[Tensor, Tensor],
) -> None:
    old, new = pair
    assert compare(answer(old), answer(old)) is None
    found = compare_elements(old, new, EXACT)
    if found.absolute is not None:
        a, b = (each.array[found.absolute.index].item() for each in pair)
        assert found.absolute.value == abs(b - a)
        assert all(
            abs(two - one) <= found.absolute.value
            for one, two in zip(old.array.reshape(-1).tolist(), new.array.reshape(-1).tolist(), strict=True)
            if math.isfinite(two - one)
        )


@pytest.mark.parametrize("datatype", FLOATS)
@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, -0.0, 1.5, -3.0])
def test_neighbours_are_one_step_apart(datatype: Datatype, value: float) -> None:
    for other in neighbours(value, datatype):
        old, new = of(datatype, [value]), of(datatype, [other])
        found = compare_elements(old, new, EXACT)
        assert found.count == 1
        assert found.ulp == Largest(1, (0,))
        assert compare_elements(old, new, Tolerance(ulp=1)).count == 0


def test_steps_are_counted_across_zero_and_to_the_ends() -> None:
    smallest, largest = 5e-324, sys.float_info.max
    across = compare_elements(of(Datatype.FP64, [-smallest]), of(Datatype.FP64, [smallest]), EXACT)
    assert across.ulp == Largest(2, (0,))
    whole = compare_elements(of(Datatype.FP64, [-largest]), of(Datatype.FP64, [largest]), Tolerance(ulp=10))
    assert whole.count == 1
    assert whole.ulp == Largest(2 * 0x7FEFFFFFFFFFFFFF, (0,))
    assert whole.absolute is None  # it is beyond every float


def test_the_ends_of_integers_have_a_distance() -> None:
    found = compare_elements(of(Datatype.INT64, [-(2**63), 3]), of(Datatype.INT64, [2**63 - 1, 3]), Tolerance(rtol=9.0))
    assert (found.count, found.absolute) == (1, Largest(2**64 - 1, (0,)))


def test_infinity_is_near_nothing_else() -> None:
    generous = Tolerance(rtol=1e9, atol=1e9, ulp=2**60)
    for other in (sys.float_info.max, -math.inf, math.nan):
        assert compare_elements(of(Datatype.FP64, [math.inf]), of(Datatype.FP64, [other]), generous).count == 1
    assert compare_elements(of(Datatype.FP64, [math.inf]), of(Datatype.FP64, [math.inf]), EXACT).count == 0


def test_nan_is_equal_to_nan_unless_told_otherwise() -> None:
    nan, negative = of(Datatype.FP32, [math.nan]), of(Datatype.FP32, [-math.nan])
    assert compare(answer(nan), answer(negative)) is None
    assert compare(answer(nan), answer(nan), Tolerance(nan="different")) is not None


def test_the_relative_distance_is_to_the_expected_value() -> None:
    old, new = answer(of(Datatype.FP64, [100.0])), answer(of(Datatype.FP64, [110.0]))
    assert compare(old, new, Tolerance(rtol=0.1)) is None
    assert compare(new, old, Tolerance(rtol=0.09)) is not None
    assert compare(old, new, Tolerance(rtol=0.099)) is not None


def test_pieces_are_compared_as_one_tensor() -> None:
    old = np.zeros((3, PIECE), np.float32)
    new = old.copy()
    new[1, 5], new[2, PIECE - 1] = 0.5, -2
    found = compare_elements(tensor("y", old), tensor("y", new), EXACT, shown=5)
    assert found.count == 2
    assert found.first == (Differing((1, 5), "0.0", "0.5"), Differing((2, PIECE - 1), "0.0", "-2.0"))
    assert found.absolute == Largest(2, (2, PIECE - 1))


def test_large_tensors_are_compared_in_little_memory() -> None:
    old = np.random.default_rng(1).random(2**22)  # 32 MiB
    one, other = tensor("y", old), tensor("y", old + 1)
    with traced() as memory:
        assert compare_elements(one, other, Tolerance(rtol=1e-5)).count == 2**22
    assert memory.peak < 16 * 2**20


def test_bytes_must_be_equal_and_long_ones_are_cut() -> None:
    old, new = of(Datatype.BYTES, [b"a", b"x" * 999, b""]), of(Datatype.BYTES, [b"a", b"y" * 999, b"!"])
    found = compare(answer(old), answer(new), Tolerance(rtol=9.0), shown=2)
    assert found is not None
    [output] = found.outputs
    assert output.elements is not None
    assert output.elements.count == 2
    assert [each.index for each in output.elements.first] == [(1,), (2,)]
    assert max(len(each.actual) for each in output.elements.first) < 80


def test_outputs_are_paired_by_name_whatever_their_order() -> None:
    a, b = of(Datatype.INT32, [1], name="a"), of(Datatype.INT32, [2], name="b")
    assert compare(answer(a, b), answer(b, a)) is None
    assert str(compare(answer(a, b), answer(b, a), by_position=True)) == (
        "output 'a': 1 of 1 elements differ, at [0] 2, expected 1 (largest distance: absolute 1, relative 1); "
        "output 'b': 1 of 1 elements differ, at [0] 1, expected 2 (largest distance: absolute 1, relative 0.5)"
    )


def test_outputs_without_names_are_paired_by_position() -> None:
    named = [of(Datatype.INT32, [1], name="a"), of(Datatype.INT32, [2], name="b")]
    unnamed = [of(Datatype.INT32, [1], name=""), of(Datatype.INT32, [2], name="")]
    assert compare(answer(*named), answer(*unnamed)) is None
    assert compare(answer(*unnamed), answer(*reversed(unnamed))) is not None


def test_missing_and_further_outputs_are_told() -> None:
    a, b, c = (of(Datatype.INT32, [1], name=name) for name in "abc")
    found = compare(answer(a, b), answer(a, c))
    assert found is not None
    assert found.kinds == {DifferenceKind.MISSING, DifferenceKind.EXTRA}
    assert str(found) == "output 'b' is missing; output 'c' is not expected"


def test_datatypes_and_shapes_are_compared_before_the_elements() -> None:
    old = answer(of(Datatype.FP32, [1, 2]))
    told = str(compare(old, answer(of(Datatype.FP64, [1, 2]))))
    assert told == "output 'y': datatype FP64, expected FP32"
    told = str(compare(old, answer(of(Datatype.FP32, [1, 2], (1, 2)))))
    assert told == "output 'y': shape [1, 2], expected [2]"


def test_errors_are_equal_if_their_statuses_are() -> None:
    assert compare(invalid_input("a"), invalid_input("b")) is None
    found = compare(answer(), not_found("no"))
    assert found is not None
    assert found.kinds == {DifferenceKind.STATUS}
    assert str(found) == "status NOT_FOUND, expected OK"


def test_the_list_of_outputs_is_bounded() -> None:
    many = [of(Datatype.INT32, [1], name=f"{at}") for at in range(1000)]
    found = compare(answer(*many), answer(of(Datatype.FP32, [1], name="0")))
    assert found is not None
    assert len(found.outputs) == MOST_OUTPUTS
    assert found.kinds == {DifferenceKind.MISSING, DifferenceKind.DATATYPE}
