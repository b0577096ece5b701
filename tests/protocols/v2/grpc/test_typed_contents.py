import struct

import numpy as np
import pytest

from gateway.core.errors import DecodeError
from tests.protocols.v2.grpc.by_hand import field, large, packed, varint
from tests.protocols.v2.grpc.wire import infer, one_input, values

MINUS_ONE = b"\xff" * 9 + b"\x01"
BIG = b"\xff\xff\xff\xff\x0f"  # 2^32 - 1
SIGNALLING = struct.pack("<I", 0x7FA00001)


@pytest.mark.parametrize(
    ("datatype", "shape", "contents", "expected"),
    [
        ("BOOL", (3,), field(1, b"\x01\x00\x01"), [True, False, True]),
        ("BOOL", (2,), field(1, b"\x02\x80\x01"), [True, True]),  # "true" is any varint but 0
        ("INT8", (2,), field(2, b"\x7f\x80" + b"\xff" * 8 + b"\x01"), [127, -128]),
        ("INT16", (2,), field(2, b"\xff\xff\x01" + MINUS_ONE), [32767, -1]),
        ("INT32", (1, 1), field(2, b"\x80\x80\x80\x80\xf8\xff\xff\xff\xff\x01"), [[-(2**31)]]),
        ("INT64", (2,), field(3, b"\xff" * 8 + b"\x7f" + b"\x80" * 9 + b"\x01"), [2**63 - 1, -(2**63)]),
        ("UINT8", (2,), field(4, b"\x00\xff\x01"), [0, 255]),
        ("UINT16", (1,), field(4, b"\xff\xff\x03"), [65535]),
        ("UINT32", (1,), field(4, BIG), [2**32 - 1]),
        ("UINT64", (2,), field(5, MINUS_ONE + b"\x01"), [2**64 - 1, 1]),
        ("FP32", (2,), field(6, struct.pack("<2f", 0.5, -2)), [0.5, -2.0]),
        ("FP64", (1, 2), field(7, struct.pack("<2d", 0.1, 1e300)), [[0.1, 1e300]]),
        ("BYTES", (3,), field(8, b"") + field(8, b"a\x00b") + field(8, b"\xff"), [b"", b"a\x00b", b"\xff"]),
        # not packed, and in two pieces: "parsers must accept both"
        ("INT32", (3,), field(2, 5) + field(2, b"\x06") + field(2, 7), [5, 6, 7]),
        ("FP64", (1,), b"\x39" + struct.pack("<d", 0.5), [0.5]),
        ("FP32", (2,), (b"\x35" + struct.pack("<f", 0.5)) * 2, [0.5, 0.5]),
        ("INT64", (0,), b"", []),
        ("FP16", (0,), b"", []),
        ("INT8", (), field(2, b"\x05"), 5),
    ],
)
def test_reads_each_field(datatype: str, shape: tuple[int, ...], contents: bytes, expected: object) -> None:
    (tensor,) = one_input(datatype, *shape, contents=contents).inputs
    assert values(tensor) == expected


def test_reads_a_string_whose_length_takes_two_bytes() -> None:
    (tensor,) = infer(large("BYTES", 1, b"\x42\x80\x01" + b"x" * 128)).inputs
    assert values(tensor) == [b"x" * 128]


def test_contents_in_several_fields_are_concatenated() -> None:
    entry = field(1, "x") + field(2, "INT8") + field(3, b"\x02") + field(5, field(2, 5)) + field(5, field(2, 6))
    (tensor,) = infer(field(5, entry)).inputs
    assert values(tensor) == [5, 6]


def test_keeps_the_bits_of_a_signalling_nan() -> None:
    (tensor,) = one_input("FP32", 1, contents=field(6, SIGNALLING)).inputs
    assert bytes(tensor.data) == SIGNALLING


@pytest.mark.parametrize(
    ("datatype", "shape", "contents", "error_text"),
    [
        ("INT8", (2,), field(2, b"\x00\x80\x01"), "element 1, 128, is out of the range of INT8"),
        ("INT16", (1,), field(2, b"\x80\x80\x02"), "element 0, 32768, is out of the range of INT16"),
        ("INT32", (1,), field(2, BIG), "4294967295, is out of the range of INT32"),
        ("UINT8", (1,), field(4, b"\x80\x02"), "256, is out of the range of UINT8"),
        ("UINT16", (1,), field(4, BIG), "4294967295, is out of the range of UINT16"),
        ("UINT32", (1,), field(4, MINUS_ONE), "18446744073709551615, is out of the range of UINT32"),
        ("FP32", (1,), field(7, bytes(8)), "fp64_contents of contents is set, but FP32 takes fp32_contents"),
        ("FP16", (1,), field(6, bytes(4)), "FP16 has no typed contents; send it in raw"),
        ("BF16", (1,), field(6, bytes(4)), "BF16 has no typed contents; send it in raw"),
        ("BYTES", (1,), field(2, b"\x01"), "int_contents of contents is set, but BYTES takes bytes_contents"),
        ("FP64", (3,), field(7, bytes(16)), r"2 elements in contents, but FP64 of shape \[3\] takes 3"),
        ("INT32", (2,), field(2, b"\x01\x02\x03"), r"3 elements in contents, but INT32 of shape \[2\] takes 2"),
        ("INT32", (1,), b"", "0 elements in contents"),
        ("FP64", (0,), field(7, bytes(8)), "more than 0 elements"),
        ("BYTES", (1,), field(8, b"a") * 2, "2 elements in contents, but BYTES"),
        ("BYTES", (2,), field(8, b"a"), "1 elements in contents, but BYTES"),
    ],
)
def test_refuses_what_does_not_fit(datatype: str, shape: tuple[int, ...], contents: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError, match=f"input 'x'.*{error_text}"):
        one_input(datatype, *shape, contents=contents)


N = 500_000  # two blocks, in numbers of one to five bytes


def test_large_integers_are_read_block_by_block() -> None:
    numbers = np.arange(N, dtype=np.int64) * 1000
    encoded = b"".join(varint(number) for number in range(0, N * 1000, 1000))
    (tensor,) = infer(large("INT64", N, packed(3, encoded))).inputs
    assert np.array_equal(tensor.array, numbers)


def test_an_element_out_of_range_is_named_with_its_block() -> None:
    encoded = bytes(2**20) + b"\x01\x80\x02"
    with pytest.raises(DecodeError, match=r"input 'x' \(from element 1048576\): element 1, 256, is out of the range"):
        infer(large("UINT8", 2**20 + 2, packed(4, encoded)))


def test_large_floats_are_a_view_on_the_message() -> None:
    body = large("FP64", 2**15, packed(7, np.arange(2**15, dtype="<f8").tobytes()))
    (tensor,) = infer(body).inputs
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is body
    assert np.array_equal(tensor.array, np.arange(2**15))


MANY = 2**18 + 1
BUT_ONE = field(8, b"") * (2**17 - 1)


@pytest.mark.parametrize(
    ("datatype", "elements", "contents", "error_text"),
    [
        ("INT32", MANY, packed(2, b"\x80" * 2**18), "0 elements"),
        ("INT32", MANY, packed(2, bytes(MANY) + b"\x80"), "cut short"),
        ("INT32", MANY, packed(2, b"\x80" * 10 + bytes(MANY)), "longer than 10 bytes"),
        ("INT32", MANY, packed(2, bytes(2**18) + b"\x80" * 19 + b"\x00"), "longer than 10 bytes"),
        ("INT32", MANY, packed(2, b"\x00")[:2] + bytes(2**18), "no whole field"),
        ("INT32", MANY, b"\x0b" + bytes(2**18), "wire type 3"),
        ("INT32", MANY, field(2, b"") * 2**17, "more than 100000 elements that are not packed"),
        ("INT32", MANY, b"\x12" + b"\xff" * 10 + bytes(2**18), "no whole number"),
        ("FP64", 2**15, packed(7, bytes(2**18 + 7)), "32768.9 elements in contents"),
        ("BYTES", 1, field(8, b"") * 1000, "2 elements in contents"),
        ("BYTES", 2**17, field(8, b"") * (2**17 + 1), "131073 elements in contents"),
        ("BYTES", 2**17, BUT_ONE + b"\x42\x05abc", "element 131071 of bytes_contents reaches past the end"),
        ("BYTES", 2**17, BUT_ONE + b"\x42\x80", "element 131071 of bytes_contents reaches past"),
        ("BYTES", 2**17, BUT_ONE + b"\x42" + b"\x80" * 5 + b"\x01", "element 131071 of bytes_contents reaches past"),
        ("BYTES", 2**17, BUT_ONE + b"\x40\x01", "bytes_contents of contents has wire type 0"),
        ("BYTES", 2**17, BUT_ONE + b"\xc2\x00\x00", "not in its shortest form"),
        ("BYTES", 2**17, BUT_ONE + field(7, bytes(8)), "fp64_contents of contents is set"),
    ],
)
def test_damaged_large_contents(datatype: str, elements: int, contents: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError, match=error_text):
        infer(large(datatype, elements, contents))
