"""`.npy` files, held against those that numpy reads and writes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gateway.core import npy
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.tensors import Tensor, tensor
from tests.limits import examples

NUMBERS = [datatype for datatype in DATATYPES.values() if datatype not in (Datatype.BYTES, Datatype.BF16)]


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()


def decoded(file: bytes) -> Tensor:
    return npy.decode(file, "input 0")


def encoded(array: Any, datatype: Datatype | None = None) -> bytes:
    return b"".join(npy.encode(tensor("x", np.asarray(array), datatype)))


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }".ljust(117) + b"\n"
FILE = b"\x93NUMPY\1\0v\0" + HEADER + bytes.fromhex("0000803f 00002040 000040c0")


def test_the_bytes_of_a_file() -> None:
    assert encoded([1.0, 2.5, -3.0], Datatype.FP32) == FILE
    found = decoded(FILE)
    assert (found.datatype, found.shape, bytes(found.data)) == (Datatype.FP32, (3,), FILE[-12:])


def test_bf16_is_widened() -> None:
    found = np.load(io.BytesIO(encoded([0.1], Datatype.BF16)), allow_pickle=False)
    assert (found.dtype.name, found.tolist()) == ("float32", [0.10009765625])


def test_bytes_are_not_written() -> None:
    with pytest.raises(GatewayError, match=r"x is BYTES, but \.npy files hold numbers and booleans") as refused:
        encoded(["a"])
    assert refused.value.reason is Reason.INVALID_INPUT


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_order_and_endianness(version: tuple[int, int]) -> None:
    array = np.asfortranarray(np.array([[1, 2, 3], [4, 5, 6]], ">i4"))
    found = decoded(saved(array, version))
    assert (found.datatype, found.array.tolist()) == (Datatype.INT32, [[1, 2, 3], [4, 5, 6]])


def test_a_file_is_not_copied() -> None:
    file = saved(np.arange(1000.0))
    assert np.shares_memory(decoded(file).array, np.frombuffer(file, np.uint8))


def header(text: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode() + data


GOOD = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }"


def test_the_keys_may_stand_in_any_order() -> None:
    text = "{'shape':(1 , 2),'fortran_order':False,'descr':'<i4'}\n"
    found = decoded(header(text, bytes(8)))
    assert (found.datatype, found.shape) == (Datatype.INT32, (1, 2))


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
        (header(GOOD.replace("(2,)", "(0, 99999999999999999999)")), "spans more than 2"),
        (header(GOOD.replace("(2,)", "(0, 2147483648, 2147483648)")), "spans more than 2"),
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
    with pytest.raises(DecodeError, match=r"^input 0.*" + why.replace("(", r"\(")):
        decoded(file)


@settings(max_examples=examples(200))
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
    found = decoded(file.getvalue())
    assert (found.datatype.dtype, found.content_type) == (array.dtype.newbyteorder("<"), "")
    assert np.array_equal(found.array, array)
    loaded = np.load(io.BytesIO(b"".join(npy.encode(found))), allow_pickle=False)
    assert loaded.dtype == found.datatype.dtype
    assert np.array_equal(loaded, array)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    file = io.BytesIO()
    np.save(file, np.array([Touch()], object))
    with pytest.raises(DecodeError, match="is not that of an array of numbers"):
        decoded(file.getvalue())
    assert not (tmp_path / "ran").exists()
