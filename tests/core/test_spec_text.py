"""Datatypes and shapes as people write them, in forms and graphs alike."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.models import TensorSpec
from gateway.core.spec_text import read_datatype, read_shape, read_spec


@pytest.mark.parametrize(
    ("text", "datatype", "shape"),
    [
        ("FP64 [-1, 4]", Datatype.FP64, (-1, 4)),
        ("  BYTES[ 2,3 ] ", Datatype.BYTES, (2, 3)),
        ("BOOL []", Datatype.BOOL, ()),
        ("INT8 [0]", Datatype.INT8, (0,)),
        (f"UINT8 [{2**63 - 1}]", Datatype.UINT8, (2**63 - 1,)),
    ],
)
def test_a_datatype_and_a_shape(text: str, datatype: Datatype, shape: tuple[int, ...]) -> None:
    assert read_spec("x", text) == TensorSpec("x", datatype, shape)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("FP64", "expected a datatype and a shape, such as FP64 [-1, 4], got 'FP64'"),
        (["FP64", [1]], "expected a datatype and a shape"),
        ("FP64 [1] [2]", "expected a datatype and a shape"),
        ("float32 [2]", "no datatype 'float32'; did you mean FP32?"),
        ("torch.half [2]", "no datatype 'torch.half'; did you mean FP16?"),
        ("FP65 [2]", "no datatype 'FP65', expected one of BOOL, "),
        ("FP64 [-2]", "[-2] is no shape"),
        ("FP64 [1,]", "[1, ''] is no shape"),
        ("FP64 [a]", "['a'] is no shape"),
        ("FP64 [٣]", "['٣'] is no shape"),
        (f"FP64 [{2**63}]", "is no shape"),
        (f"FP64 [{'1' * 5000}]", "is no shape"),
        (f"FP64 [{', '.join('1' * 65)}]", "is no shape"),
    ],
)
def test_what_is_neither(text: object, told: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read_spec("x", text)
    assert told in str(refused.value)


def test_names_of_datatypes_elsewhere_where_they_are_wanted() -> None:
    assert read_spec("x", "torch.half [2]", foreign=True) == TensorSpec("x", Datatype.FP16, (2,))
    assert read_datatype("STRING", foreign=True) is Datatype.BYTES
    with pytest.raises(DecodeError, match="no datatype 'FP65', expected one of"):
        read_spec("x", "FP65 [2]", foreign=True)


def test_parts_that_are_given_apart() -> None:
    assert read_datatype("INT64") is Datatype.INT64
    assert read_shape([-1, 2]) == (-1, 2)
    for given in (None, 1, "[1]", [True], [1.0]):
        with pytest.raises(DecodeError, match="is no shape"):
            read_shape(given)
    with pytest.raises(DecodeError, match="no datatype 64"):
        read_datatype(64)
