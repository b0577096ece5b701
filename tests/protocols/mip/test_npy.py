import io

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.tensors import Tensor
from gateway.protocols.mip import tensors
from tests.core.test_npy import NUMBERS, saved
from tests.protocols.mip.wire import named, shown


def stacked(*files: bytes) -> Tensor:
    return tensors.decode_npy(files, "input 0")


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
    for at, pieces in enumerate(tensors.npy_files(tensor)):
        array = np.load(io.BytesIO(b"".join(pieces)), allow_pickle=False)
        assert array.dtype == datatype.dtype
        assert np.array_equal(array, tensor.array[at])


def test_bf16_is_widened() -> None:
    [pieces] = tensors.npy_files(named("x", [[0.1]], Datatype.BF16))
    array = np.load(io.BytesIO(b"".join(pieces)), allow_pickle=False)
    assert (array.dtype.name, array.tolist()) == ("float32", [0.10009765625])


def test_several_files_are_one_tensor() -> None:
    found = stacked(saved(np.array([[1, 2], [3, 4]])), saved(np.asfortranarray(np.array([[5, 6], [7, 8]], ">i8"))))
    assert shown((found,)) == [("INT64", [2, 2, 2], [1, 2, 3, 4, 5, 6, 7, 8])]


def test_one_file_is_not_copied() -> None:
    file = saved(np.arange(1000.0))
    assert np.shares_memory(stacked(file).array, np.frombuffer(file, np.uint8))


def test_a_file_that_is_none_is_named() -> None:
    with pytest.raises(DecodeError, match=r"^input 0 of example 1 has 31 bytes of data, expected 32"):
        stacked(saved(np.zeros(4)), saved(np.zeros(4))[:-1])


def test_examples_must_have_one_datatype_and_shape() -> None:
    with pytest.raises(DecodeError, match=r"input 0 is float32 \[2\] in example 1 and float64 \[2\] in example 0"):
        stacked(saved(np.zeros(2)), saved(np.zeros(2, "f4")))
    with pytest.raises(DecodeError, match=r"\[3\] in example 1"):
        stacked(saved(np.zeros(2)), saved(np.zeros(3)))


def test_examples_that_span_more_than_a_tensor_can_are_refused() -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, %d)}"
    endless, wide = (header % size for size in (99999999999999999999, 2**60 - 1))
    with pytest.raises(DecodeError, match=r"input 0 of example 0: shape .* spans more than 2\^63 bytes"):
        stacked(b"\x93NUMPY\1\0" + len(endless).to_bytes(2, "little") + endless)
    with pytest.raises(DecodeError, match=r"input 0: 2 examples of .* span more than 2\^63 bytes"):
        stacked(*[b"\x93NUMPY\1\0" + len(wide).to_bytes(2, "little") + wide] * 2)
