"""The inputs that checks send."""

import re
import struct

import pytest

from gateway.tools.conformance.inputs import InputSpec, parse_input, same, sample, unpacked


@pytest.mark.parametrize(
    ("spec", "shape", "values"),
    [
        (InputSpec("x", "FP64", (-1, 3)), (1, 3), [0.5, 0.75, 1.0]),
        (InputSpec("x", "INT32", (-1,)), (2,), [1, 2]),
        (InputSpec("x", "BYTES", ()), (), ["a"]),
        (parse_input("x=BOOL[2]:false,true"), (2,), [False, True]),
        (parse_input("x=FP32[1,2]:-1,0.5"), (1, 2), [-1.0, 0.5]),
    ],
)
def test_a_sample_by_its_specification(spec: InputSpec, shape: tuple[int, ...], values: list[object]) -> None:
    found = sample(spec)
    assert (found.shape, found.values) == (shape, values)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x=FP65[1]", "is not NAME=DATATYPE"),
        ("x=FP64[1", "is not NAME=DATATYPE"),
        ("x=INT8[1]:300", "out of the range of INT8"),
        ("x=FP64[3]:1,2", "has 2 values; its shape [3] has 3 elements"),
        ("x=BOOL[1]:1", "not true or false"),
        ("x=FP64[1000000000]", "expected at most"),
    ],
)
def test_wrong_specifications(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        parse_input(text)


def test_bytes_of_samples() -> None:
    assert sample(parse_input("x=INT16[2]:1,-2")).raw == b"\x01\0\xfe\xff"
    assert sample(parse_input("x=BYTES[2]:ab,c")).raw == b"\x02\0\0\0ab\x01\0\0\0c"
    assert unpacked("BYTES", b"\x02\0\0\0ab\x01\0\0\0c") == [b"ab", b"c"]
    with pytest.raises(ValueError, match="the bytes end within the length of an element"):
        unpacked("BYTES", b"\x01\0\0\0a\x01")
    with pytest.raises(ValueError, match="ends beyond the data"):
        unpacked("BYTES", b"\x09\0\0\0ab")
    with pytest.raises(ValueError, match="not a whole number of FP32"):
        unpacked("FP32", b"abc")


def test_what_is_the_same() -> None:
    assert same("FP32", [0.1], [struct.unpack("<f", struct.pack("<f", 0.1))[0]])
    assert same("FP64", [float("nan")], [float("nan")])
    assert not same("FP64", [0.1], [0.1 + 1e-9])
    assert not same("INT32", [1], ["1"])
    assert not same("INT32", [1], [1, 2])
    assert same("BYTES", ["a"], [b"a"])
