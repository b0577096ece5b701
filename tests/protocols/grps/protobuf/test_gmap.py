"""gmap in literal bytes, read and written."""

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import GrpsMessage, Payload

LIMIT = 2**20


def entries(octets: str, limit: int = LIMIT) -> list[tuple[str, str, object]]:
    message = read_message(bytes.fromhex(octets), limit)
    assert message.payload is Payload.GMAP
    return list(gmap.entries(message.tensors))


EXAMPLES = [
    ("3a08 0a06 0a016b 120176", gmap.entry("s_s", "k", "v")),
    ("3a09 1207 0a016b 1202ff00", gmap.entry("s_b", "k", b"\xff\x00")),
    ("3a10 1a0e 0a016b 10ffffffffffffffffff01", gmap.entry("s_i32", "k", -1)),
    ("3a0f 220d 0a016b 10ffffffffffffffff7f", gmap.entry("s_i64", "k", 2**63 - 1)),
    ("3a0a 2a08 0a016b 150000003f", gmap.entry("s_f", "k", 0.5)),
    ("3a0e 320c 0a016b 11000000000000e03f", gmap.entry("s_d", "k", 0.5)),
]


@pytest.mark.parametrize(("octets", "entry"), EXAMPLES)
def test_each_map(octets: str, entry: Tensor) -> None:
    message = GrpsMessage(payload=Payload.GMAP, tensors=(entry,))
    assert b"".join(write_message(message)) == bytes.fromhex(octets)
    assert entries(octets) == list(gmap.entries([entry]))


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        # "if the key or value is missing, it has its default"
        ("3a02 0a00", [("s_s", "", "")]),
        ("3a05 0a03 0a016b", [("s_s", "k", "")]),
        ("3a05 1203 0a016b", [("s_b", "k", b"")]),
        ("3a05 1a03 0a016b", [("s_i32", "k", 0)]),
        ("3a05 2203 0a016b", [("s_i64", "k", 0)]),
        ("3a05 2a03 0a016b", [("s_f", "k", 0.0)]),
        ("3a05 3203 0a016b", [("s_d", "k", 0.0)]),
        ("3a04 1a02 1005", [("s_i32", "", 5)]),
        # the last one of a key counts; unknown fields do not
        ("3a0e 1a05 0a016b1001 1a05 0a016b1002", [("s_i32", "k", 2)]),
        ("3a0b 7801 1a07 0a016b 1001 7801", [("s_i32", "k", 1)]),
        # maps in pieces
        ("3a05 1a03 0a0161 3a05 1a03 0a0162", [("s_i32", "a", 0), ("s_i32", "b", 0)]),
    ],
)
def test_maps_as_other_writers_have_them(octets: str, expected: list[object]) -> None:
    assert entries(octets) == expected


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("3a02 0801", "s_s has wire type 0, expected 2"),
        ("3a07 1a05 0a016b 0d00", "no whole field"),
        ("3a06 1a04 120178 00", "a value of s_i32 has wire type 2, expected 0|no whole field"),
        ("3a04 1a02 0801", "a key of s_i32 has wire type 0, expected 2"),
        ("3a05 1a03 0a01ff", "a key of s_i32 is not UTF-8"),
        ("3a05 0a03 1201ff", "'' of s_s is not UTF-8"),
        ("3a08 0a06 1201ff 120161", "'' of s_s is not UTF-8"),
        ("3a08 1a06 108080808008", "'' of s_i32: element 0, 2147483648, is out of the range of INT32"),
    ],
)
def test_refuses(octets: str, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        entries(octets)


def test_a_key_in_two_maps_is_two_tensors_with_the_names_of_the_maps() -> None:
    message = read_message(bytes.fromhex("3a15 1a05 0a016b1001 2205 0a016b1002 1a05 0a01611003"), LIMIT)
    tensors, keys = gmap.with_distinct_names(message.tensors)
    assert [each.name for each in tensors] == ["s_i32.k", "s_i64.k", "a"]
    assert keys == {"s_i32.k": gmap.GmapPlace("s_i32", "k"), "s_i64.k": gmap.GmapPlace("s_i64", "k")}
    assert [gmap.fit(each, keys) for each in tensors] == list(message.tensors)


def test_many_entries_are_refused_before_they_cost() -> None:
    wire = bytes.fromhex("3a 808008") + bytes.fromhex("1a00") * 2**16
    with pytest.raises(DecodeError, match="too many fields"):
        read_message(wire, LIMIT)


def test_a_large_value_is_data_with_the_limit_of_data() -> None:
    value = gmap.entry("s_b", "k", bytes(2**22))
    wire = b"".join(write_message(GrpsMessage(payload=Payload.GMAP, tensors=(value,))))
    assert bytes(read_message(wire, 2**23).tensors[0].data) == bytes(value.data)
    with pytest.raises(GatewayError, match="'k' of s_b takes") as raised:
        read_message(wire, 2**21)
    assert raised.value.reason is Reason.TOO_LARGE


def test_a_name_that_is_not_utf8() -> None:
    with pytest.raises(GatewayError, match="UTF-8"):
        write_message(GrpsMessage(payload=Payload.GMAP, tensors=(tensor("\ud800", np.array([1], np.int32)),)))
