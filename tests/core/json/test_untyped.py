"""Numbers without a datatype are those of the general reader of arrays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.json import array
from gateway.core.json.contents import untyped_numbers

NUMBER = st.one_of(st.floats(), st.integers(-(2**65), 2**65), st.sampled_from([2**63, 2**64 - 1, 2**53 + 1, True]))
NESTED = st.recursive(NUMBER, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def assert_is_certain(text: bytes) -> None:
    """That `untyped_numbers` refuses the text, or says the same as `array`."""
    try:
        datatype, data, shape = untyped_numbers(text)
    except DecodeError:
        return
    expected = array(text, values=1000, literals=False)
    assert not isinstance(expected.values, bytes)
    assert (datatype.dtype, data, shape) == (expected.values.dtype, expected.values.tobytes(), expected.shape)


@given(NESTED)
def test_any_value(value: Any) -> None:
    assert_is_certain(json.dumps(value).encode())


@given(st.lists(st.sampled_from(["[", "]", ",", "1", "2.5", " ", "-", "e3", "true", '"', "{", "0"]), max_size=9))
def test_any_text(pieces: list[str]) -> None:
    assert_is_certain("".join(pieces).encode())


@pytest.mark.parametrize(
    ("text", "shape", "numbers"),
    [
        (b"[1.5, 2]", (2,), [1.5, 2]),
        (b"[[1], [2]]", (2, 1), [1, 2]),
        (b"[]", (0,), []),
        (b"[[], []]", (2, 0), []),
        (b"[18446744073709551615]", (1,), [2**64 - 1]),
    ],
)
def test_what_clients_write_is_read(text: bytes, shape: tuple[int, ...], numbers: list[Any]) -> None:
    datatype, data, found = untyped_numbers(text)
    assert (found, memoryview(data).cast("B").tobytes()) == (shape, datatype.dtype.type(numbers).tobytes())


@pytest.mark.parametrize(
    "text", [b"", *b'1 [1,] [true] ["a"] "[" "[1]" [NaN] [[1],2] [1e400] [-1,9223372036854775808]'.split()]
)
def test_what_others_read(text: bytes) -> None:
    with pytest.raises(DecodeError):
        untyped_numbers(text)
