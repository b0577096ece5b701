"""Tensors in literal bytes, and what is refused of them."""

import struct

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.protobuf.wire import varint
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import DTYPES, GrpsMessage, Payload

LIMIT = 2**20
SIGNALLING = struct.pack("<I", 0x7FA00001)


def field(number: int, octets: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(octets)) + octets


def entry(dtype: int, shape: list[int], lists: bytes, name: str = "x") -> bytes:
    dimensions = b"".join(map(varint, shape))
    return field(1, name.encode()) + bytes((0x10, dtype)) + (field(3, dimensions) if shape else b"") + lists


def message(*entries: bytes) -> bytes:
    return field(5, b"".join(field(1, each) for each in entries))


def read(*entries: bytes, limit: int = LIMIT) -> tuple[Tensor, ...]:
    return read_message(message(*entries), limit).tensors


LISTS = [
    (Datatype.UINT8, [0, 127, 255], "22 04 00 7f ff01"),
    (Datatype.INT8, [1, -1], "2a 0b 01 ffffffffffffffffff01"),
    (Datatype.INT16, [300, -32768], "32 0c ac02 8080feffffffffffff01"),
    (Datatype.INT32, [-(2**31)], "3a 0a 80808080f8ffffffff01"),
    (Datatype.INT64, [2**63 - 1], "42 09 ffffffffffffffff7f"),
    (Datatype.FP16, [0.5, -65504], "4a 08 0000003f 00e07fc7"),
    (Datatype.FP32, [0.5, float("inf")], "52 08 0000003f 0000807f"),
    (Datatype.FP64, [0.1], "5a 08 9a9999999999b93f"),
    (Datatype.BYTES, [b"", b"a\x00b", "é".encode()], "6200 6203610062 6202c3a9"),
]


@pytest.mark.parametrize(("datatype", "numbers", "octets"), LISTS)
def test_each_list(datatype: Datatype, numbers: list[object], octets: str) -> None:
    number, shape = DTYPES[datatype][0], [len(numbers)]
    wire = message(entry(number, shape, bytes.fromhex(octets)))
    sent = tensor("x", np.array(numbers, datatype.dtype), datatype)
    [found] = read_message(wire, LIMIT).tensors
    assert (found.name, found.datatype, found.shape, bytes(found.data)) == ("x", datatype, sent.shape, bytes(sent.data))
    assert b"".join(write_message(GrpsMessage(payload=Payload.GTENSORS, tensors=(sent,)))) == wire


@pytest.mark.parametrize(("datatype", "numbers", "octets"), LISTS)
def test_empty_lists(datatype: Datatype, numbers: list[object], octets: str) -> None:
    wire = message(entry(DTYPES[datatype][0], [0, 3], b""))
    [found] = read_message(wire, LIMIT).tensors
    assert (found.shape, bytes(found.data)) == ((0, 3), b"")
    assert b"".join(write_message(GrpsMessage(payload=Payload.GTENSORS, tensors=(found,)))) == wire


@pytest.mark.parametrize(
    ("dtype", "lists", "expected"),
    [
        # "parsers must accept both": elements on their own, and lists in pieces
        (5, "4001 4002 4003", [1, 2, 3]),
        (5, "4201 01 4003 4201 05", [1, 3, 5]),
        (1, "2001 20ff01", [1, 255]),
        (7, "55 0000003f 52 04 00000040", [0.5, 2]),
        (6, "4d 0000003f", [0.5]),
        (8, "59 000000000000e03f", [0.5]),
        (9, "620161 1a00 620162", [b"a", b"b"]),
        # a key in more bytes than it needs
        (9, "620161 e2000162 620163", [b"a", b"b", b"c"]),
        # fields that nobody knows between them
        (7, "7801 52 04 0000003f ba0100", [0.5]),
        # lists that are there, but empty
        (7, "3a00 52 04 0000003f", [0.5]),
    ],
)
def test_lists_as_other_writers_have_them(dtype: int, lists: str, expected: list[object]) -> None:
    [found] = read(entry(dtype, [len(expected)], bytes.fromhex(lists)))
    assert found.array.tolist() == expected


def test_a_shape_that_is_not_packed_and_fields_in_another_order() -> None:
    [found] = read(bytes.fromhex("52 08 0000003f 00000040 1801 1007 1802 0a0178"))
    assert (found.name, found.array.tolist()) == ("x", [[0.5, 2]])


def test_signalling_nans_of_a_small_message() -> None:
    [found] = read(entry(7, [2], field(10, SIGNALLING * 2)))
    assert bytes(found.data) == SIGNALLING * 2


def test_the_floats_of_a_large_message_stay_where_they_are_both_ways() -> None:
    wire = message(entry(7, [2**15], field(10, SIGNALLING * 2**15)))
    [found] = read_message(wire, LIMIT).tensors
    assert isinstance(found.data, memoryview)
    assert found.data.obj is wire
    assert bytes(found.data) == SIGNALLING * 2**15
    parts = write_message(GrpsMessage(payload=Payload.GTENSORS, tensors=(found, found)))
    assert any(part is found.data for part in parts)


def test_several_tensors_without_names() -> None:
    found = read(entry(4, [], bytes.fromhex("3a0105"), ""), entry(9, [], bytes.fromhex("620161"), ""))
    assert [(each.name, each.shape) for each in found] == [("", ()), ("", ())]
    assert [each.array.tolist() for each in found] == [5, b"a"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (entry(0, [1], b""), r"tensor 'x': dtype is 0, expected one of 1 DT_UINT8, .* 9 DT_STRING"),
        (entry(10, [1], b"", ""), "tensor 0: dtype is 10"),
        (b"\x10" + varint(2**32 + 7), "dtype is 4294967303, expected one of"),
        (b"\x10" + varint(2**64 - 1), "dtype is 18446744073709551615, expected one of"),
        (entry(7, [1], field(7, b"\x01")), "flat_int32 is filled, but DT_FLOAT32 takes flat_float32"),
        (entry(7, [1], field(12, b"a")), "flat_string is filled, but DT_FLOAT32 takes flat_float32"),
        (entry(9, [1], field(10, bytes(4))), "flat_float32 is filled, but DT_STRING takes flat_string"),
        (entry(7, [1], field(10, bytes(4)) + field(7, b"\x01")), "flat_int32 is filled"),
        (entry(7, [3], b""), r"0 elements in flat_float32, but shape \[3\] takes 3"),
        (entry(7, [], b""), r"0 elements in flat_float32, but shape \[\] takes 1"),
        (entry(7, [0], field(10, bytes(4))), "1 elements in flat_float32"),
        (entry(7, [1], field(10, bytes(5))), "1.25 elements in flat_float32"),
        (entry(4, [2], field(7, b"\x01")), "1 elements in flat_int32"),
        (entry(9, [1], field(12, b"") * 2), "2 elements in flat_string"),
        (entry(2, [1], field(5, varint(300))), "element 0, 300, is out of the range of INT8"),
        (entry(1, [2], field(4, b"\x00" + varint(256))), "element 1, 256, is out of the range of UINT8"),
        (entry(1, [1], field(4, varint(2**32))), "4294967296, is out of the range of UINT8"),
        (entry(4, [1], field(7, varint(2**31))), "out of the range of INT32"),
        (entry(5, [1], field(8, b"\x80" * 11 + b"\x01")), "cut short|10"),
        (entry(6, [2], field(9, struct.pack("<2f", 1, 0.1))), "element 1, 0.1, is not a value of DT_FLOAT16"),
        (entry(6, [1], field(9, struct.pack("<f", 1e6))), r"element 0, 1(e\+06|000000.0), is not a value"),
        (entry(9, [2], field(12, b"a") + field(12, b"\xff")), "element 1 of flat_string is not UTF-8"),
        (entry(9, [1], b"\x62\x05a"), "element 0 of flat_string reaches past the end"),
        (entry(9, [1], b"\x62"), "element 0 of flat_string reaches past the end"),
        (entry(9, [1], b"\x62" + varint(2**63)), "element 0 of flat_string reaches past the end"),
        (entry(7, [2**32], b""), r"shape \[4294967296\]"),
        (entry(7, [2**31, 2**31, 0], b""), "spans more than"),
        (entry(7, [1] * 33, field(10, bytes(4))), "at most 32"),
        (entry(7, [1], b"", "") + b"\x0a\x01\xff", "tensor 0: name is not UTF-8"),
        (b"\x08\x01", "name has wire type 0, expected 2"),
        (b"\x12\x00", "dtype has wire type 2, expected 0"),
        (b"\x1d\x00\x00\x00\x00", "shape has wire type 5"),
        (entry(7, [1], b"\x50\x01"), "flat_float32 has wire type 0, expected 2 or 5"),
        (entry(8, [1], b"\x5d\x00\x00\x00\x00"), "flat_float64 has wire type 5, expected 2 or 1"),
        (entry(9, [1], b"\x60\x01"), "flat_string has wire type 0, expected 2"),
    ],
)
def test_refuses(wrong: bytes, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        read(wrong)


@pytest.mark.parametrize(
    "entries",
    [
        [entry(5, [2**17 + 1], field(8, bytes(2**17 + 1)))],
        [entry(5, [2**16], field(8, bytes(2**16))), entry(5, [2**16 + 1], field(8, bytes(2**16 + 1)))],
        [entry(5, [2**31, 2**25], b"")],
        [entry(9, [2**18 + 1], field(12, b"") * (2**18 + 1))],
    ],
    ids=["one", "together", "claimed", "strings"],
)
def test_tensors_that_would_be_larger_than_the_limit(entries: list[bytes]) -> None:
    with pytest.raises(GatewayError, match=r"limits\.message") as raised:
        read(*entries)
    assert raised.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "entries",
    [[entry(7, [0], b"", "")] * 100_000, [entry(7, [50_000], b"\x55\x00\x00\x00\x00" * 50_000)] * 2],
    ids=["empty tensors", "elements that are not packed"],
)
def test_many_small_fields_are_refused_before_they_cost(entries: list[bytes]) -> None:
    with pytest.raises(DecodeError, match="too many fields"):
        read(*entries, limit=2**30)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            Tensor("x", Datatype.UINT16, (1,), bytes(2)),
            "tensor 'x' is UINT16, which grps does not have; expected one of UINT8",
        ),
        (Tensor("x", Datatype.FP32, (0, 2**32), b""), "a dimension of 4294967296"),
        (Tensor("\ud800", Datatype.FP32, (0,), b""), "UTF-8"),
    ],
)
def test_what_has_no_form(wrong: Tensor, told: str) -> None:
    with pytest.raises(GatewayError, match=told) as raised:
        write_message(GrpsMessage(payload=Payload.GTENSORS, tensors=(wrong,)))
    assert raised.value.reason is Reason.INVALID_INPUT


def test_a_tag_in_more_bytes_than_needed() -> None:
    lists = bytes.fromhex("42 01 05")
    [found] = read(field(1, b"x") + b"\x90\x00\x05" + b"\x9a\x00\x01\x01" + lists)
    assert (found.datatype, found.shape, found.array.tolist()) == (Datatype.INT64, (1,), [5])
