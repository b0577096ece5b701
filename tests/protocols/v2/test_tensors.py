import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.tensors import Tensor
from gateway.protocols.v2.tensors import check_raw, read_shape

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("datatype", "dimensions"),
    [(Datatype.INT8, [LARGEST]), (Datatype.BYTES, [LARGEST]), (Datatype.FP64, [0, 2**59]), (Datatype.FP64, [])],
)
def test_reads_shapes_up_to_what_64_bits_count(datatype: Datatype, dimensions: list[int]) -> None:
    assert read_shape(dimensions, datatype, "input 'x'") == tuple(dimensions)


@pytest.mark.parametrize(
    ("datatype", "dimensions"),
    [(Datatype.INT8, [2**63]), (Datatype.INT16, [2**62]), (Datatype.FP64, [0, 2**60]), (Datatype.INT8, [10**400])],
)
def test_refuses_shapes_that_overflow(datatype: Datatype, dimensions: list[int]) -> None:
    with pytest.raises(DecodeError, match=r"input 'x': shape .* spans more than 2\^63 bytes"):
        read_shape(dimensions, datatype, "input 'x'")


@pytest.mark.parametrize("datatype", [each for each in Datatype if each not in (Datatype.BYTES, Datatype.BOOL)])
def test_numbers_take_exactly_their_bytes(datatype: Datatype) -> None:
    check_raw(bytes(6 * datatype.size), datatype, (2, 3), "x")
    for wrong in (6 * datatype.size - 1, 6 * datatype.size + 1, 0):
        with pytest.raises(DecodeError, match=f"x: {wrong} bytes, but {datatype} of shape .2, 3. takes"):
            check_raw(bytes(wrong), datatype, (2, 3), "x")


def test_a_shape_that_is_read_makes_an_array() -> None:
    shape = read_shape([0, 2**59], Datatype.FP64, "x")
    assert Tensor("x", Datatype.FP64, shape, b"").array.shape == shape
