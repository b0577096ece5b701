"""GrpsMessage in literal bytes, read and written."""

from contextlib import nullcontext

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps.protobuf.message import check_message, read_message, write_message
from gateway.protocols.grps.schema import FAILURE, SUCCESS, GrpsMessage, GrpsStatus, Payload
from tests.protocols.grps.protobuf.upb import comparable

LIMIT = 2**20
OK = GrpsStatus(200, "OK", SUCCESS)


def bytes_tensor(element: bytes, content_type: str = "") -> Tensor:
    return Tensor("", Datatype.BYTES, (1,), len(element).to_bytes(4, "little") + element, content_type)


def floats(*numbers: float) -> Tensor:
    return tensor("x", np.array(numbers, np.float32))


EXAMPLES = [
    # what real servers and clients sent
    ("0a09 08c801 12024f4b 1801", GrpsMessage(status=OK)),
    (
        "120b74776963652d312e302e30 2a18 0a16 0a0178 1007 1a0103 520c 0000803f0000004000004040",
        GrpsMessage("twice-1.0.0", None, Payload.GTENSORS, (floats(1, 2, 3),)),
    ),
    (
        "0a09 08c801 12024f4b 1801 2a18 0a16 0a0178 1007 1a0103 520c 00000040000080400000c040",
        GrpsMessage("", OK, Payload.GTENSORS, (floats(2, 4, 6),)),
    ),
    (
        "0a09 08c801 12024f4b 1801 2a19 0a17 0a0178 1007 1a020103 520c 00000040 00008040 0000c040",
        GrpsMessage("", OK, Payload.GTENSORS, (tensor("x", np.array([[2, 4, 6]], np.float32)),)),
    ),
    # and every other member
    ("", GrpsMessage()),
    ("0a00", GrpsMessage(status=GrpsStatus())),
    ("0a13 08f703 120c 4e6f7420666f756e642e2121 1802", GrpsMessage(status=GrpsStatus(503, "Not found.!!", FAILURE))),
    ("0a0b 08ffffffffffffffffff01", GrpsMessage(status=GrpsStatus(-1))),
    ("1a00", GrpsMessage(payload=Payload.BIN_DATA, tensors=(bytes_tensor(b""),))),
    ("1a02 ff00", GrpsMessage(payload=Payload.BIN_DATA, tensors=(bytes_tensor(b"\xff\x00"),))),
    ("2200", GrpsMessage(payload=Payload.STR_DATA, tensors=(bytes_tensor(b"", content_type="text"),))),
    (
        "12016d 2205 68c3a96c6c",
        GrpsMessage("m", None, Payload.STR_DATA, (bytes_tensor("héll".encode(), content_type="text"),)),
    ),
    ("2a00", GrpsMessage(payload=Payload.GTENSORS)),
    ("3a00", GrpsMessage(payload=Payload.GMAP)),
]


def same(left: GrpsMessage, right: GrpsMessage) -> bool:
    return comparable(left) == comparable(right)


@pytest.mark.parametrize(("octets", "message"), EXAMPLES)
def test_bytes_and_messages(octets: str, message: GrpsMessage) -> None:
    wire = bytes.fromhex(octets)
    assert b"".join(write_message(message)) == wire
    assert same(read_message(wire, LIMIT), message)
    assert same(read_message(memoryview(bytearray(wire)), LIMIT), message)


@pytest.mark.parametrize("octets", [octets for octets, _ in EXAMPLES])
def test_cut_anywhere_it_is_another_message_or_none(octets: str) -> None:
    wire = bytes.fromhex(octets)
    for end in range(1, len(wire)):
        try:
            message = read_message(wire[:end], LIMIT)
        except DecodeError:
            continue
        # a whole number of its fields
        assert b"".join(write_message(message)) == wire[:end]


@pytest.mark.parametrize("tail", ["07", "0a", "0a05", "2a01", "1a0a00", "15", "80" * 11])
def test_a_tail_that_is_no_field(tail: str) -> None:
    with pytest.raises(DecodeError):
        read_message(bytes.fromhex(EXAMPLES[1][0] + tail), LIMIT)


@pytest.mark.parametrize(
    ("octets", "is_right"),
    [
        (EXAMPLES[1][0], True),
        ("2a02 4005", True),
        ("2a04 4005 0a05", False),
        ("2a04 0a02 0a05", False),
        # is not looked at to the end
        ("4005" * 100_001 + "0a05", True),
    ],
    ids=["recorded", "an unknown field", "no tensor", "no name", "many fields"],
)
def test_a_message_is_checked_without_its_values(octets: str, is_right: bool) -> None:
    with nullcontext() if is_right else pytest.raises(DecodeError):
        check_message(bytes.fromhex(octets))


@pytest.mark.parametrize("unknown", ["4005", "420178", "4d00000000", "410000000000000000", "f87f01"])
def test_unknown_fields_are_ignored(unknown: str) -> None:
    octets, message = EXAMPLES[1]
    assert same(read_message(bytes.fromhex(unknown + octets + unknown), LIMIT), message)


@pytest.mark.parametrize(
    ("octets", "last"),
    [
        ("1a01ff 2a00 2203616263", "2203616263"),
        ("2a0d 0a0b 0a0178 1004 1a0101 3a0105 3a00", "3a00"),
        ("3a05 1a03 0a016b 2a00", "2a00"),
        ("220161 220162", "220162"),
        ("1a0101 2a00 1a0102", "1a0102"),
    ],
)
def test_of_several_members_the_last_counts(octets: str, last: str) -> None:
    assert same(read_message(bytes.fromhex(octets), LIMIT), read_message(bytes.fromhex(last), LIMIT))


def test_a_message_in_two_pieces_is_their_concatenation() -> None:
    entry = "0a08 0a0178 1002 2a01"
    wire = bytes.fromhex(f"2a0a {entry}05 0a03 08c801 2a0a {entry}06 0a02 1801")
    message = read_message(wire, LIMIT)
    assert message.status == GrpsStatus(200, "", SUCCESS)
    assert [each.array.tolist() for each in message.tensors] == [5, 6]
