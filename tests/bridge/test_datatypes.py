"""Which datatype becomes which."""

import re
from typing import Any

import numpy as np
import pytest

from gateway.bridge.datatypes import carry, fit, typed, with_missing
from gateway.core.datatypes import DATATYPES, NUMBERS, WIDENINGS, Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.tensors import Tensor
from tests.bridge.fakes import named
from tests.bridge.values import FP32, FP64, INT32, INT64, point

FP16, BF16, UINT8, UINT64, BOOL = Datatype.FP16, Datatype.BF16, Datatype.UINT8, Datatype.UINT64, Datatype.BOOL


def values(tensor: Tensor, wanted: Datatype, cast: str = "refuse") -> list[Any]:
    made = Tensor("x", wanted, tensor.shape, fit(tensor, wanted, "input 'x'", cast))
    found: list[Any] = made.array.astype(object).tolist()
    return found


@pytest.mark.parametrize("given", sorted(NUMBERS))
@pytest.mark.parametrize("wanted", sorted(NUMBERS))
def test_every_pair_of_numbers_is_widened_or_refused(given: Datatype, wanted: Datatype) -> None:
    ends = np.iinfo(given.dtype) if given.dtype.kind in "iu" else None
    sent = named("x", [0, 1] if ends is None else [ends.min, ends.max], given)
    if wanted in WIDENINGS[given]:
        assert [float(each) for each in values(sent, wanted)] == [float(each) for each in sent.array.tolist()]
        return
    with pytest.raises(DecodeError, match=re.escape(f"input 'x' is {given}, expected {wanted}")) as refused:
        fit(sent, wanted, "input 'x'", "refuse")
    assert "`translate: {cast: round}`" in str(refused.value)


@pytest.mark.parametrize("given", [BOOL, Datatype.BYTES])
@pytest.mark.parametrize("cast", ["refuse", "round", "saturate"])
def test_no_cast_makes_numbers_of_what_is_none(given: Datatype, cast: str) -> None:
    sent = named("x", [True] if given is BOOL else [b"1"], given)
    with pytest.raises(DecodeError, match=f"^input 'x' is {given}, expected FP64$"):
        fit(sent, FP64, "input 'x'", cast)


def test_missing_numbers_are_told_without_a_cast_that_would_not_help() -> None:
    sent = replace(named("x", [1.0, float("nan")]), untyped=True)
    with pytest.raises(DecodeError, match="element 1, nan, has no exact value as INT64; no cast converts NaN"):
        fit(sent, INT64, "input 'x'", "refuse")


@pytest.mark.parametrize("texts", [[b"[null", b"2"], [b"[1]", b"[null, 2]"], [b'["a"]', b"[null]"]])
def test_texts_that_are_no_rows_of_numbers_stay_texts(texts: list[bytes]) -> None:
    given = replace(named("x", texts, Datatype.BYTES), content_type="json")
    assert with_missing(given, "input 'x'", takes_null=True) is given


def test_texts_without_a_datatype_are_texts() -> None:
    given = replace(named("x", [b"a"], Datatype.BYTES), untyped=True)
    assert typed(given, FP64, "input 'x'") == replace(given, untyped=False)


CASTS: list[tuple[Tensor, Datatype, str, list[Any] | str]] = [
    (named("x", [0.5, 1.5, -2.5]), INT32, "round", [0, 2, -2]),
    (named("x", [2.0**31]), INT32, "round", "element 0, 2147483648.0, is out of the range of INT32"),
    (named("x", [2.0**31, -(2.0**40)]), INT32, "saturate", [2**31 - 1, -(2**31)]),
    (named("x", [2.0**64]), UINT64, "saturate", [2**64 - 1]),
    (named("x", [2.0**63]), INT64, "round", "element 0, 9.223372036854776e+18, is out of the range of INT64"),
    (named("x", [-1.0, 256.0]), UINT8, "saturate", [0, 255]),
    (named("x", [-1], INT64), UINT64, "round", "element 0, -1, is out of the range of UINT64"),
    (named("x", [-1, 5], INT64), UINT64, "saturate", [0, 5]),
    (named("x", [2**64 - 1], UINT64), INT64, "saturate", [2**63 - 1]),
    (named("x", [2**53 + 1], INT64), FP64, "round", [2.0**53]),
    (named("x", [2**63 - 1], INT64), FP32, "saturate", [2.0**63]),
    (named("x", [1e39, -1e39]), FP32, "round", "element 0, 1e+39, is out of the range of FP32"),
    (named("x", [1e39, float("inf")]), FP32, "saturate", [float(np.finfo(np.float32).max), float("inf")]),
    (named("x", [0.1]), FP32, "round", [float(np.float32(0.1))]),
    (named("x", [70000.0]), FP16, "saturate", [65504.0]),
    (named("x", [float("nan")]), INT32, "saturate", "holds NaN, which INT32 cannot hold under any cast"),
    (point(1, 2), FP32, "saturate", [1.0, 2.0]),
    (point(2**53 + 1), FP64, "refuse", [2.0**53]),
]


@pytest.mark.parametrize(("sent", "wanted", "cast", "outcome"), CASTS)
def test_casts(sent: Tensor, wanted: Datatype, cast: str, outcome: list[Any] | str) -> None:
    if isinstance(outcome, list):
        assert values(sent, wanted, cast) == outcome
        return
    with pytest.raises(DecodeError, match=re.escape(outcome)):
        fit(sent, wanted, "input 'x'", cast)


def test_the_same_datatype_is_the_same_data() -> None:
    sent = named("x", [1, 2])
    assert fit(sent, FP64, "x", "refuse") is sent.data


@pytest.mark.parametrize("wanted", [each for each in DATATYPES.values() if each not in NUMBERS])
def test_untyped_numbers_are_nothing_but_numbers(wanted: Datatype) -> None:
    with pytest.raises(DecodeError, match=f"input 'x' is INT64, expected {wanted}$"):
        fit(point(1), wanted, "input 'x'", "round")


@pytest.mark.parametrize(
    ("sent", "carried", "becomes"),
    [
        (named("x", [1.5], BF16), {FP32, FP64}, FP32),
        (named("x", [1.5], FP16), {FP64}, FP64),
        (named("x", [7], Datatype.UINT16), {INT64, INT32, FP32}, INT32),
        (named("x", [True], BOOL), {UINT8, FP64}, UINT8),
    ],
)
def test_what_a_wire_lacks_travels_wider_and_marked(sent: Tensor, carried: set[Datatype], becomes: Datatype) -> None:
    found = carry(sent, frozenset(carried), "tensor 'x'", "grps")
    assert found.datatype is becomes
    assert found.parameters == {"gateway_datatype": sent.datatype.value}
    assert found.array.astype(float).tolist() == sent.array.astype(float).tolist()


def test_what_has_no_wider_form_is_refused_by_name() -> None:
    with pytest.raises(DecodeError, match="tensor 'x' is UINT64, which grps cannot carry"):
        carry(named("x", [1], UINT64), frozenset({FP64, INT64}), "tensor 'x'", "grps")
