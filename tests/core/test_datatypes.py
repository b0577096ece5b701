import numpy as np
import pytest

from gateway.core.datatypes import DATATYPES, NUMBERS, WIDENINGS, Datatype, Kind, meant_by, sent_as


@pytest.mark.parametrize("datatype", Datatype)
def test_names_sizes_and_byte_order(datatype: Datatype) -> None:
    assert DATATYPES[str(datatype)] is datatype
    if datatype is not Datatype.BYTES:
        assert datatype.dtype.itemsize == datatype.size
        assert datatype.dtype.newbyteorder("<") == datatype.dtype


def test_numbers_are_neither_booleans_nor_bytes() -> None:
    assert set(Datatype) - {Datatype.BOOL, Datatype.BYTES} == NUMBERS


# Written by hand: the narrow datatype and every other that holds all of its values.
EXPECTED = {
    "BOOL": "",
    "BYTES": "",
    "UINT8": "UINT16 UINT32 UINT64 INT16 INT32 INT64 FP16 BF16 FP32 FP64",
    "UINT16": "UINT32 UINT64 INT32 INT64 FP32 FP64",
    "UINT32": "UINT64 INT64 FP64",
    "UINT64": "",
    "INT8": "INT16 INT32 INT64 FP16 BF16 FP32 FP64",
    "INT16": "INT32 INT64 FP32 FP64",
    "INT32": "INT64 FP64",
    "INT64": "",
    "FP16": "FP32 FP64",
    "BF16": "FP32 FP64",
    "FP32": "FP64",
    "FP64": "",
}


@pytest.mark.parametrize("narrow", Datatype)
def test_widenings(narrow: Datatype) -> None:
    assert {str(wide) for wide in WIDENINGS[narrow]} == {str(narrow), *EXPECTED[narrow].split()}


@pytest.mark.parametrize("narrow", sorted(NUMBERS))
def test_widening_is_exact(narrow: Datatype) -> None:
    limits = np.iinfo(narrow.dtype) if narrow.kind is not Kind.FLOAT else None
    values = [0, 1, int(limits.min), int(limits.max)] if limits else [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf]
    array = np.array(values, narrow.dtype)
    for wide in WIDENINGS[narrow]:
        np.testing.assert_array_equal(array.astype(wide.dtype).astype(narrow.dtype), array)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float64", "FP64"), ("double", "FP64"), ("torch.float32", "FP32"), ("np.int32", "INT32"), ("half", "FP16"),
        ("bfloat16", "BF16"), ("TYPE_FP32", "FP32"), ("DT_STRING", "BYTES"), ("fp64", "FP64"), ("complex64", None),
    ],
)  # fmt: skip
def test_names_that_others_have_for_a_datatype(name: str, meant: str | None) -> None:
    assert meant_by(name) == meant


def test_a_datatype_is_sent_as_the_narrowest_that_holds_its_values() -> None:
    wires: dict[frozenset[Datatype], dict[Datatype, Datatype | None]] = {
        frozenset(Datatype): {each: each for each in Datatype},
        frozenset({Datatype.INT32, Datatype.FP32, Datatype.FP64}): {
            Datatype.UINT16: Datatype.INT32, Datatype.BF16: Datatype.FP32, Datatype.UINT32: Datatype.FP64,
            Datatype.INT64: None, Datatype.BOOL: None, Datatype.BYTES: None,
        },
        frozenset({Datatype.UINT8}): {Datatype.BOOL: Datatype.UINT8, Datatype.INT8: None},
    }  # fmt: skip
    for carried, expected in wires.items():
        assert {each: sent_as(each, carried) for each in expected} == expected
