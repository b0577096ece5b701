"""A tensor's numbers in bulk are those of the general reader, cast to the datatype."""

import math
from unittest import mock

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.json import array, bulk_numbers, number_pieces, packed, written
from gateway.core.json import contents as json_contents

TEXTS = [
    "[1.5,-2]", "[3,4]", "[3.0,4.0]", "[1e3,1E-3]", "[ 1.5 , -2 ]", "[1.5]", "[1.5,-2,3]", "[]", "[[1.5,-2]]",
    "[1.5,null]", '["1","2"]', "[true,false]", "[NaN,1]", "[1e400,1]", "[18446744073709551616,1]", "[-1,0]",
    "[9223372036854775807,1]", "[9223372036854775808,1]", "[9223372036854775808,-1]", "[9007199254740993,1]",
    "[300,-300]", "[1.5,-2", "[1.5,,2]", "[01,2]", "[1.5,-2]]", "null", "1.5", "[1.5,{}]", '[1.5,"]"]',
    "[1.5,-2],[3,4]", "[4e38,1]", "[1152921573326323713,1]", "[1,2] ", " [1,2]", "", "[", "]", "[1,2,]", "[-0,-0.0]",
    "[5e-324,1]", "[18446744073709551616,0.5]", "[true,1.5]", "{}", '{"a":[1,2]}',
]  # fmt: skip


def general(text: bytes, datatype: Datatype, count: int) -> bytes | None:
    """What the general reader makes of `text`; None for what `packed` leaves to it."""
    try:
        found = array(text, values=100, literals=False)
        if found.shape != (count,) or isinstance(found.values, bytes):
            return None
        return cast(found.values, datatype, "").tobytes()
    except DecodeError:
        return None


def both(text: bytes, datatype: Datatype, count: int) -> bool:
    """Whether `text` is read in bulk: then as the general reader reads it, in one piece or in several."""
    expected = general(text, datatype, count)
    found = packed(text, datatype, count)
    with mock.patch.object(bulk_numbers, "PIECE", 8), mock.patch.object(json_contents, "PIECE", 8):
        in_pieces = packed(memoryview(text), datatype, count)
    for each in (found, in_pieces):
        assert each is None or bytes(each) == expected
    return found is not None


@pytest.mark.parametrize("datatype", Datatype)
def test_any_text_is_read_as_the_general_reader_reads_it(datatype: Datatype) -> None:
    for text in TEXTS:
        for count in (0, 1, 2, 3, 10**12):
            both(text.encode(), datatype, count)


@pytest.mark.parametrize("count", [1, 10, 64, 65, 1000])
@pytest.mark.parametrize("datatype", list(json_contents.LETTERS))
def test_numbers_of_the_datatypes_kind_are_read_in_bulk(datatype: Datatype, count: int) -> None:
    numbers = np.random.default_rng(count).uniform(0, 100, count)
    integers = orjson.dumps(numbers.astype(int).tolist())
    assert both(integers, datatype, count)
    assert both(orjson.dumps(numbers.tolist()), datatype, count) is (datatype.kind is Kind.FLOAT)


NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**66), 2**66), st.just(0.5))


@given(st.lists(NUMBERS, min_size=1, max_size=80), st.sampled_from(list(json_contents.LETTERS)), st.booleans())
@example([2**60 + 2**36 + 1], Datatype.FP32, False)
@example([2**64 - 1, 1], Datatype.UINT64, False)
def test_any_numbers(numbers: list[float], datatype: Datatype, blanks: bool) -> None:
    literals = (orjson.dumps(each if -(2**63) <= each < 2**64 else float(each)) for each in numbers)
    both(b"[%b]" % (b" , " if blanks else b",").join(literals), datatype, len(numbers))


@given(
    text=st.sampled_from([b"[1.5,-2.25]", b"[3,4]", b"[1.5,2]", b"[1.0,1e3]"]),
    at=st.integers(0, 11),
    removed=st.integers(0, 4),
    added=st.lists(st.sampled_from([b" ", *b'. e E - 0 1 , [ ] " true null \\'.split()]), max_size=3),
    datatype=st.sampled_from(list(Datatype)),
)
def test_any_change_of_a_text(text: bytes, at: int, removed: int, added: list[bytes], datatype: Datatype) -> None:
    both(text[:at] + b"".join(added) + text[at + removed :], datatype, 2)


def test_no_memory_is_taken_for_numbers_that_the_text_cannot_hold() -> None:
    assert packed(b"[1,2]", Datatype.FP64, 2**60) is None


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 2**14 + 1])
@pytest.mark.parametrize("datatype", [each for each in Datatype if each is not Datatype.BYTES])
def test_raw_data_is_written_as_numpys(datatype: Datatype, count: int) -> None:
    values = np.random.default_rng(count).uniform(0, 100, count).astype(datatype.dtype)
    text = b"".join(written(values.tobytes(), datatype, "error", "x"))
    assert text == b"".join(number_pieces(values, "error", "x"))


@pytest.mark.parametrize("count", [2, 100])
def test_numbers_that_json_lacks(count: int) -> None:
    data = np.array([math.nan, -math.inf] * (count // 2), "<f4").tobytes()
    literal = b"".join(written(data, Datatype.FP32, "literal", "x"))
    assert literal.startswith(b"[NaN,-Infinity")
    with pytest.raises(GatewayError, match="x: element 0 is nan"):
        list(written(data, Datatype.FP32, "error", "x"))
