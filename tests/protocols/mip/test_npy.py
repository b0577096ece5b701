import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import Tensor
from gateway.protocols.mip import npy
from tests.protocols.mip.wire import named, shown

NUMBERS = [datatype for datatype in DATATYPES.values() if datatype not in (Datatype.BYTES, Datatype.BF16)]


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()


def stacked(*files: bytes) -> Tensor:
    return npy.decode(files, "input 0")


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_numpys_own_files_are_read(datatype: Datatype, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(datatype.dtype)
    found = stacked(saved(array))
    assert (found.datatype, found.shape, found.content_type) == (datatype, (1, *shape), "npy")
    assert np.array_equal(found.array[0], array)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numpy_reads_what_is_written(datatype: Datatype) -> None:
    tensor = named("x", [[[0, 1, 1]], [[1, 0, 1]]], datatype)
    for at, pieces in enumerate(npy.encode(tensor)):
        array = np.load(io.BytesIO(b"".join(pieces)), allow_pickle=False)
        assert array.dtype == datatype.dtype
        assert np.array_equal(array, tensor.array[at])


def test_bf16_is_widened() -> None:
    [pieces] = npy.encode(named("x", [[0.1]], Datatype.BF16))
    array = np.load(io.BytesIO(b"".join(pieces)), allow_pickle=False)
    assert (array.dtype.name, array.tolist()) == ("float32", [0.10009765625])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_order_and_endianness(version: tuple[int, int]) -> None:
    array = np.asfortranarray(np.array([[1, 2, 3], [4, 5, 6]], ">i4"))
    assert shown((stacked(saved(array, version)),)) == [("INT32", [1, 2, 3], [1, 2, 3, 4, 5, 6])]


def test_one_file_is_not_copied() -> None:
    file = saved(np.arange(1000.0))
    assert np.shares_memory(stacked(file).array, np.frombuffer(file, np.uint8))


def header(text: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode() + data


GOOD = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }"


def test_the_keys_may_stand_in_any_order() -> None:
    text = "{'shape':(1 , 2),'fortran_order':False,'descr':'<i4'}\n"
    assert shown((stacked(header(text, bytes(8))),)) == [("INT32", [1, 1, 2], [0, 0])]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "is no .npy file"),
        (b"\x93NUMPY\1", "is no .npy file"),
        (b"\x93NUMPY\4\0v\0", "is no .npy file of version 1, 2 or 3"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff", "the header of the .npy file ends at byte"),
        (saved(np.zeros(4))[:100], "ends at byte 128, of 100"),
        (saved(np.zeros(4))[:-1], "31 bytes of data, expected 32"),
        (saved(np.zeros(4)) + b"x", "33 bytes of data, expected 32"),
        (header(GOOD.replace("(2,)", "(99999999999999999999,)")), "0 bytes of data, expected"),
        (header(GOOD.replace("(2,)", "(-1,)"), bytes(4)), "is not that of an array of numbers"),
        (header(GOOD.replace("(2,)", f"({'1,' * 33})"), bytes(4)), "has 33 dimensions, expected at most 32"),
        (header(GOOD.replace("<i4", "|O"), bytes(16)), "is not that of an array of numbers"),
        (header(GOOD.replace("<i4", "<U1"), bytes(8)), "is not that of an array of numbers"),
        (header(GOOD.replace("<i4", "<i3"), bytes(6)), "is not that of an array of numbers"),
        (header(GOOD.replace("<i4", "<f16"), bytes(32)), "has no datatype"),
        (header(GOOD.replace("'<i4'", "[('a', '<i4')]"), bytes(8)), "is not that of an array of numbers"),
        (header(GOOD.replace("False", "__import__('os')"), bytes(8)), "is not that of an array of numbers"),
        (header("{'descr': '<i4', 'descr': '<i4', 'shape': (2,)}", bytes(8)), "is not that of an array of numbers"),
        (header(GOOD.replace("'<i4'", "('<i4', (2,))"), bytes(16)), "is not that of an array of numbers"),
        (header(GOOD.replace("(2,)", "(True,)"), bytes(4)), "is not that of an array of numbers"),
        (header(GOOD.replace("(2,)", f"({'9' * 4000},)")[:4000]), "is not that of an array of numbers"),
        (header("[" * 3000), "is not that of an array of numbers"),
        (header("-" * 4000 + "1"), "is not that of an array of numbers"),
        (header("{[]: 1}"), "is not that of an array of numbers"),
        (header("\0"), "is not that of an array of numbers"),
        (b"\x93NUMPY\3\0\2\0\0\0\xff\xff", "is not that of an array of numbers"),
        (header(GOOD.replace("<i4", "|b1"), b"\1\2"), "booleans other than 0 and 1"),
    ],
)
def test_other_files_are_refused(file: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=r"^input 0 of example 0.*" + why.replace("(", r"\(")):
        stacked(file)


@settings(max_examples=200)
@given(
    arrays.arrays(
        st.sampled_from([dtype for each in NUMBERS for dtype in (each.dtype, each.dtype.newbyteorder(">"))]),
        arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
        elements={"allow_nan": False},
    ),
    st.sampled_from("CF"),
)
def test_numpy_saves_what_is_read_and_loads_what_is_written(array: Any, order: Any) -> None:
    file = io.BytesIO()
    np.save(file, np.asarray(array, order=order))
    found = stacked(file.getvalue())
    assert np.array_equal(found.array[0], array)
    [pieces] = npy.encode(found)
    assert np.array_equal(np.load(io.BytesIO(b"".join(pieces)), allow_pickle=False), array)


def test_examples_must_have_one_datatype_and_shape() -> None:
    with pytest.raises(DecodeError, match=r"input 0 is float32 \[2\] in example 1 and float64 \[2\] in example 0"):
        stacked(saved(np.zeros(2)), saved(np.zeros(2, "f4")))
    with pytest.raises(DecodeError, match=r"\[3\] in example 1"):
        stacked(saved(np.zeros(2)), saved(np.zeros(3)))
