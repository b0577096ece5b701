"""Tensors before and after fitting, side by side."""

import numpy as np
import pytest

from gateway.bridge.comparison import CastShown, as_text, cast, compare
from gateway.bridge.settings import Renaming
from gateway.core.datatypes import Datatype
from gateway.core.tensors import tensor

X = tensor("x", np.array([1.0, 2.0]))
Y = tensor("y", np.array([3.0]))


def test_tensors_are_paired_by_name_then_by_position() -> None:
    after = (tensor("b", np.array([1.0, 2.0])), tensor("y", np.array([[3.0]])), tensor("added", np.array([0.0])))
    changes = compare((X, Y, tensor("dropped", np.array([9.0]))), after, [Renaming("x", "b")])
    names = [(each.before and each.before.name, each.after and each.after.name) for each in changes]
    assert names == [("x", "b"), ("y", "y"), (None, "added"), ("dropped", None)]
    unnamed = compare((tensor("", np.array([1.0])), tensor("", np.array([2.0, 3.0]))), (X, Y), ())
    assert [each.before.shape for each in unnamed if each.before] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("before", "datatype", "error"),
    [
        (np.array([1, 2**53 + 1]), Datatype.FP64, 1.0),
        (np.array([0.5, 2.5]), Datatype.INT32, 0.5),
        (np.array([1.0, np.nan, np.inf]), Datatype.FP32, None),
        (np.array([2**64 - 1], np.uint64), Datatype.FP64, 1.0),
    ],
)
def test_the_largest_error_of_a_cast(
    before: "np.ndarray[tuple[int], np.dtype[np.generic]]", datatype: Datatype, error: float | None
) -> None:
    old = tensor("x", before)
    with np.errstate(invalid="ignore"):
        new = tensor("x", before.astype(datatype.dtype), datatype)
    found = cast(old, new)
    assert found is not None
    assert (found.from_datatype, found.to_datatype, found.error) == (old.datatype.value, datatype.value, error)


def test_the_element_with_the_largest_error_is_named() -> None:
    found = cast(tensor("x", np.array([1.25, 7.75])), tensor("x", np.array([1, 8]), Datatype.INT64))
    assert found == CastShown("FP64", "INT64", 0.25, 0, "1.25", "1")


def test_texts_that_became_numbers_have_no_error() -> None:
    assert cast(tensor("x", np.array([b"1"], object)), X) == CastShown("BYTES", "FP64")


def test_a_line_has_the_first_numbers_and_no_texts() -> None:
    many, texts = tensor("n", np.arange(5)), tensor("t", np.array([b"secret"], object))
    assert as_text((X, many, texts)) == "x FP64[2] 1 2; n INT64[5] 0 1 2 3 ...; t BYTES[1]"


def test_without_a_cast_there_is_none() -> None:
    assert cast(X, X) is None
