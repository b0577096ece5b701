"""`GenericMapData` in protobuf's form: an entry of a map is a message of a key, 1, and a value, 2."""

import struct
from collections.abc import Iterable

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.protobuf_integers import read_integers, write_integers
from gateway.core.protobuf_wire import I32, I64, LENGTH, VARINT, fields
from gateway.core.types import Buffer, Tensor
from gateway.protocols.grps.proto_fields import Room, check_utf8, check_wire_type, read_text, write_field, write_text
from gateway.protocols.grps.words import MAPS

_KEY, _VALUE = 1, 2
_TEXTS = 1
"""The number of s_s."""

_MAPS = dict(enumerate(MAPS.items(), 1))
_NUMBERS = {datatype: number for number, (_, datatype) in _MAPS.items()}
_WIRE_TYPES = {
    Datatype.BYTES: LENGTH,
    Datatype.INT32: VARINT,
    Datatype.INT64: VARINT,
    Datatype.FP32: I32,
    Datatype.FP64: I64,
}


def read_maps(message: memoryview, room: Room) -> tuple[Tensor, ...]:
    """The entries of a GenericMapData, each a tensor `[1]`. Of two with one key in the same map the last one counts, as
    in protobuf.

    Raises:
        DecodeError: not a GenericMapData, or a key in two of its maps.
        GatewayError: RESOURCE_EXHAUSTED, more than `room`.
    """
    tensors: dict[str, Tensor] = {}
    maps: dict[str, int] = {}
    for field in fields(message):
        room.spend(field.value - field.start)
        if field.number in _MAPS:
            name, _ = _MAPS[field.number]
            check_wire_type(field, LENGTH, f"gmap: {name}")
            tensor = _read_entry(message[field.value : field.end], field.number, room)
            if maps.setdefault(tensor.name, field.number) != field.number:
                raise DecodeError(f"gmap: {tensor.name!r} is a key of {_MAPS[maps[tensor.name]][0]} and of {name}")
            tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _read_entry(entry: memoryview, number: int, room: Room) -> Tensor:
    member, datatype = _MAPS[number]
    key, value = "", memoryview(_DEFAULTS[datatype])
    for field in fields(entry):
        content = entry[field.value : field.end]
        room.spend(field.value - field.start if field.number == _VALUE else field.end - field.start)
        if field.number == _KEY:
            check_wire_type(field, LENGTH, f"gmap: a key of {member}")
            key = read_text(content, f"gmap: a key of {member}")
        elif field.number == _VALUE:
            check_wire_type(field, _WIRE_TYPES[datatype], f"gmap: a value of {member}")
            value = content
    what = f"gmap: {key!r} of {member}"
    room.take(len(value), what)
    is_text = number == _TEXTS
    if is_text:
        read_text(value, what)
    return Tensor(key, datatype, (1,), _read_value(value, datatype, what), "text" if is_text else "")


_DEFAULTS = {Datatype.BYTES: b"", Datatype.INT32: b"\x00", Datatype.INT64: b"\x00", Datatype.FP32: bytes(4)}
_DEFAULTS[Datatype.FP64] = bytes(8)
"""Of the values that an entry leaves out, as they would be on the wire."""


def _read_value(value: memoryview, datatype: Datatype, what: str) -> Buffer:
    if datatype is Datatype.BYTES:
        return b"".join((struct.pack("<I", len(value)), value))
    return read_integers(value, datatype, 1, what) if _WIRE_TYPES[datatype] == VARINT else value


def write_maps(tensors: Iterable[Tensor]) -> bytes:
    """A GenericMapData of tensors of one element each, by name.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the tensor that has no form in it.
    """
    written: dict[str, bytes] = {}
    for tensor in tensors:
        what = f"tensor {tensor.name!r}"
        if tensor.elements != 1 or tensor.datatype not in _NUMBERS:
            expected = ", ".join(dict.fromkeys(MAPS.values()))
            raise invalid_input(f"{what}: {tensor.datatype} of shape {list(tensor.shape)}; gmap has one of {expected}")
        if tensor.name in written:
            raise invalid_input(f"{what} is there twice; gmap has each key once")
        written[tensor.name] = _write_entry(tensor, what)
    return b"".join(written.values())


def _write_entry(tensor: Tensor, what: str) -> bytes:
    datatype, data = tensor.datatype, tensor.data
    number = _NUMBERS[datatype]
    if datatype is Datatype.BYTES:
        (element,) = bytes_elements.unpack(data)
        if tensor.content_type == "text":
            number = _TEXTS
            check_utf8(element, what)
        value = write_field(_VALUE, element)
    elif _WIRE_TYPES[datatype] == VARINT:
        value = b"".join((_SCALAR_KEYS[datatype], write_integers(data, datatype)))
    else:
        value = b"".join((_SCALAR_KEYS[datatype], data))
    return write_field(number, write_text(_KEY, tensor.name, f"the name of {what}") + value)


_SCALAR_KEYS = {datatype: bytes((_VALUE << 3 | wire_type,)) for datatype, wire_type in _WIRE_TYPES.items()}
