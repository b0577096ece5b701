import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import SourceCodeInfo
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.protobuf.integers import count_integers, read_integers, write_integers
from tests.limits import examples

INTEGERS = [each for each in Datatype if each.dtype.kind in "iu"]


def packed(numbers: list[int]) -> bytes:
    """As the encoding guide words it: "each 7-bit group ... with the continuation bit set on all but the last"."""
    octets = bytearray()
    for number in numbers:
        number %= 2**64
        while number > 0x7F:
            octets.append(number % 0x80 | 0x80)
            number >>= 7
        octets.append(number)
    return bytes(octets)


def raw(numbers: list[int], datatype: Datatype) -> bytes:
    return np.array(numbers, datatype.dtype).tobytes()


@pytest.mark.parametrize("repeats", [1, 30_000], ids=["few", "many"])
@pytest.mark.parametrize(
    ("datatype", "numbers", "octets"),
    [
        (Datatype.UINT8, [0, 127, 128, 255], "00 7f 8001 ff01"),
        (Datatype.INT8, [-1, 1], "ffffffffffffffffff01 01"),
        (Datatype.INT16, [300, -32768], "ac02 8080feffffffffffff01"),
        (Datatype.INT32, [2**31 - 1, -(2**31)], "ffffffff07 80808080f8ffffffff01"),
        (Datatype.INT64, [2**63 - 1, -(2**63)], "ffffffffffffffff7f 80808080808080808001"),
        (Datatype.UINT64, [2**64 - 1, 2**56], "ffffffffffffffffff01 808080808080808001"),
    ],
)
def test_numbers_and_their_bytes(datatype: Datatype, numbers: list[int], octets: str, repeats: int) -> None:
    wire, elements = bytes.fromhex(octets) * repeats, len(numbers) * repeats
    assert count_integers(wire) == elements
    assert bytes(read_integers(wire, datatype, elements, "x")) == raw(numbers, datatype) * repeats
    assert bytes(write_integers(raw(numbers, datatype) * repeats, datatype)) == wire


@settings(max_examples=examples(200))
@given(st.data())
def test_any_numbers(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(INTEGERS))
    bounds = np.iinfo(datatype.dtype)
    bits = data.draw(st.integers(0, datatype.size * 8))
    most = st.integers(max(int(bounds.min), -(2**bits)), min(int(bounds.max), 2**bits))
    numbers = data.draw(st.lists(most, max_size=40)) * data.draw(st.sampled_from([1, 7, 1000]))
    wire = packed(numbers)
    assert bytes(write_integers(raw(numbers, datatype), datatype)) == wire
    assert bytes(read_integers(wire, datatype, len(numbers), "x")) == raw(numbers, datatype)


def test_agrees_with_protobuf() -> None:
    numbers = np.random.default_rng(1).integers(-(2**31), 2**31, 50_000) >> np.arange(50_000) % 32
    location = SourceCodeInfo.Location(path=numbers.tolist()).SerializeToString()
    written = bytes(write_integers(numbers.astype("<i4").data.cast("B"), Datatype.INT32))
    assert location.endswith(written)
    assert bytes(read_integers(written, Datatype.INT32, len(numbers), "x")) == numbers.astype("<i4").tobytes()


@pytest.mark.parametrize("before", [0, 100_000], ids=["few", "many"])
@pytest.mark.parametrize(
    ("datatype", "octets", "told"),
    [
        (Datatype.INT8, "8001", "128, is out of the range of INT8"),
        (Datatype.INT8, "ac02", "300, is out of the range of INT8"),
        (Datatype.UINT8, "ffffffffffffffffff01", "18446744073709551615, is out of the range of UINT8"),
        (Datatype.INT32, "8080808008", "2147483648, is out of the range of INT32"),
        (Datatype.UINT32, "8080808010", "4294967296, is out of the range of UINT32"),
        (Datatype.INT64, "80" * 10 + "01", "longer than 10 bytes"),
        (Datatype.INT64, "80" * 30 + "01", "longer than 10 bytes"),
        (Datatype.INT64, "80" * 10 + "01" + "00" * 20, "longer than 10 bytes"),
    ],
)
def test_refuses(datatype: Datatype, octets: str, told: str, before: int) -> None:
    wire = bytes(before) + bytes.fromhex(octets)
    with pytest.raises(DecodeError, match=told):
        read_integers(wire, datatype, count_integers(wire), "x")


@pytest.mark.parametrize("before", [0, 100_000], ids=["few", "many"])
def test_a_number_that_is_cut_short(before: int) -> None:
    wire = bytes(before) + b"\x05\x80"
    with pytest.raises(DecodeError, match="cut short"):
        read_integers(wire, Datatype.INT64, count_integers(wire), "x")
