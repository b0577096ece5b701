"""`GenericTensor` of a large message in protobuf's form, read where it lies: upb would copy each list."""

from collections.abc import Iterable
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import MAX_RANK, Buffer, Shape, Tensor
from gateway.protobuf.integers import count_integers, read_integers
from gateway.protobuf.wire import I32, I64, LENGTH, VARINT, Field, read_field, read_varint
from gateway.protocols.grps.generic_tensor import read_shape
from gateway.protocols.grps.protobuf.fields import Room, read_text
from gateway.protocols.grps.schema import DATATYPES

NAME, DTYPE, SHAPE = 1, 2, 3
NUMBERS = {datatype: number + 3 for datatype, (number, _, _) in DATATYPES.items()}
"""The numbers of a tensor's fields."""

_MEMBERS = {NUMBERS[datatype]: member for datatype, (_, _, member) in DATATYPES.items()}
_BY_DTYPE = {number: datatype for datatype, (number, _, _) in DATATYPES.items()}

_SINGLE = {NUMBERS[Datatype.FP16]: I32, NUMBERS[Datatype.FP32]: I32, NUMBERS[Datatype.FP64]: I64}
"""The wire type of one element that is not packed; VARINT for the rest."""

_FIELDS = {
    NAME: ("name", (LENGTH,)),
    DTYPE: ("dtype", (VARINT,)),
    SHAPE: ("shape", (LENGTH, VARINT)),
    # "parsers must accept both"
    **{number: (member, (LENGTH, _SINGLE.get(number, VARINT))) for number, member in _MEMBERS.items()},
    NUMBERS[Datatype.BYTES]: ("flat_string", (LENGTH,)),
}
"""Each field's name and the wire types that it may have; protobuf would ignore another."""

WIDTHS = {Datatype.FP16: 4, Datatype.FP32: 4, Datatype.FP64: 8}
"""Bytes of an element on the wire. float16 travels as float."""

_STRINGS = NUMBERS[Datatype.BYTES]
_STRING_KEY = _STRINGS << 3 | LENGTH
_LENGTH = Struct("<I")


class _Entry:
    """What was found of a tensor: its lists by number, in pieces."""

    __slots__ = ("count", "dtype", "lists", "name", "shape", "strings")

    def __init__(self) -> None:
        self.name = ""
        self.dtype = 0
        self.shape: list[memoryview] = []
        self.lists: dict[int, list[memoryview]] = {}
        self.strings = bytearray()
        self.count = 0


def read_tensor(message: memoryview, position: int, room: Room) -> Tensor:
    """The tensor in `message`; FP32 and FP64 in one piece are views on it. `position` names one without a name.

    Raises:
        DecodeError: not a GenericTensor; another list filled than that of its dtype, another number of elements than
            the shape takes, an element out of the datatype's range.
        GatewayError: RESOURCE_EXHAUSTED, more than `room`.
    """
    what = f"tensor {position}"
    entry = _scan(message, what, room)
    what = f"tensor {entry.name!r}" if entry.name else what
    datatype = read_datatype(entry.dtype, what)
    check_list([*entry.lists, *([_STRINGS] if entry.count else [])], datatype, what)
    shape = _read_dimensions(entry.shape, what)
    take_tensor(room, shape, datatype, what)
    return Tensor(entry.name, datatype, shape, _read_data(entry, datatype, shape, what))


def read_datatype(dtype: int, what: str) -> Datatype:
    """The datatype that `dtype` stands for. Raises DecodeError where it stands for none."""
    datatype = _BY_DTYPE.get(dtype)
    if datatype is None:
        expected = ", ".join(f"{number} {name}" for number, name, _ in DATATYPES.values())
        raise DecodeError(f"{what}: dtype {dtype} is none of {expected}")
    return datatype


def take_tensor(room: Room, shape: Shape, datatype: Datatype, what: str) -> None:
    """Take the data of a tensor, of BYTES at least the lengths, from `room`."""
    room.take(prod(shape) * (datatype.size or _LENGTH.size), what)


def _scan(message: memoryview, what: str, room: Room) -> _Entry:
    entry, at, end = _Entry(), 0, len(message)
    octets = b""
    while at < end:
        if message[at] == _STRING_KEY:
            octets = octets or b"\x00".join((message, b""))  # one more, so that there is a length behind the last key
            at = _read_strings(octets, at, entry, what)
            continue
        field = read_field(message, at)
        at = field.end
        _keep(field, message[field.value : at], entry, what, room)
    return entry


def _keep(field: Field, value: memoryview, entry: _Entry, what: str, room: Room) -> None:
    number, wire_type = field.number, field.wire_type
    room.spend(0 if number in _MEMBERS and wire_type == LENGTH else field.end - field.start)
    if number not in _FIELDS:
        return
    name, allowed = _FIELDS[number]
    if wire_type not in allowed:
        expected = " or ".join(map(str, allowed))
        raise DecodeError(f"{what}: {name} has wire type {wire_type}, expected {expected}")
    if number == NAME:
        entry.name = read_text(value, f"{what}: name")
    elif number == DTYPE:
        entry.dtype = read_varint(value, 0)[0]
    elif number == SHAPE:
        entry.shape.append(value)
    elif number == _STRINGS:
        # a key in more bytes than it needs; `_read_strings` takes all others
        read_text(value, f"{what}: element {entry.count} of flat_string")
        entry.strings += _LENGTH.pack(len(value)) + value
        entry.count += 1
    elif value:
        entry.lists.setdefault(number, []).append(value)


def _read_strings(octets: bytes, at: int, entry: _Entry, what: str) -> int:
    """Take the elements of flat_string that stand in a row from `at`; where they end is the answer."""
    strings, found, end = entry.strings, entry.count, len(octets) - 1
    pack = _LENGTH.pack
    try:
        while at < end and octets[at] == _STRING_KEY:
            size, start = octets[at + 1], at + 2
            if size > 0x7F:
                size, start = read_varint(octets, at + 1)
            at = start + size
            element = octets[start:at]
            element.decode()
            strings += pack(len(element))
            strings += element
            found += 1
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what}: element {found} of flat_string is not UTF-8") from error
    if at > end:
        raise DecodeError(f"{what}: element {found - 1} of flat_string reaches past the end of the message")
    entry.count = found
    return at


def check_list(filled: Iterable[int], datatype: Datatype, what: str) -> None:
    """Whether of the lists only that of `datatype` is among the `filled` fields. Real servers do not look, and compute
    with nothing.

    Raises:
        DecodeError: another one is.
    """
    expected = NUMBERS[datatype]
    for number in filled:
        if number != expected and number in _MEMBERS:
            _, dtype, member = DATATYPES[datatype]
            raise DecodeError(f"{what}: {_MEMBERS[number]} is filled, but {dtype} takes {member}")


def _read_dimensions(pieces: list[memoryview], what: str) -> Shape:
    packed, at = pieces[0] if len(pieces) == 1 else b"".join(pieces), 0
    dimensions: list[int] = []
    while at < len(packed) and len(dimensions) <= MAX_RANK:
        dimension, at = read_varint(packed, at)
        dimensions.append(dimension)
    return read_shape(dimensions, what)


def _read_data(entry: _Entry, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    if datatype is Datatype.BYTES:
        check_count(entry.count, datatype, shape, what)
        return entry.strings
    pieces = entry.lists.get(NUMBERS[datatype], [])
    packed = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if datatype in WIDTHS:
        check_count(len(packed) / WIDTHS[datatype], datatype, shape, what)
        return narrow(np.frombuffer(packed, "<f4"), what) if datatype is Datatype.FP16 else packed
    check_count(count_integers(packed), datatype, shape, what)
    return read_integers(packed, datatype, prod(shape), what)


def check_count(found: float, datatype: Datatype, shape: Shape, what: str) -> None:
    """Whether a list of so many elements fills `shape`. Raises DecodeError where it does not."""
    if found != prod(shape):
        raise DecodeError(
            f"{what}: {found:g} elements in {DATATYPES[datatype][2]}, but shape {list(shape)} takes {prod(shape)}"
        )


def narrow(wide: "np.ndarray[Any, Any]", what: str) -> Buffer:
    """The raw form of FP32 as the FP16 it is to be: checked by value, never rounded.

    Raises:
        DecodeError: naming the first element that is no value of FP16.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = wide.astype("<f2")
    wrong = (narrowed != wide) & ~np.isnan(wide)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DecodeError(f"{what}: element {at}, {wide[at]!s}, is no value of DT_FLOAT16")
    return narrowed.view(np.uint8).data
