"""`GenericMapData` in protobuf's form: an entry of a map is a message of a key, 1, and a value, 2."""

from collections.abc import Iterable
from struct import Struct

from gateway.core.datatypes import Datatype
from gateway.core.types import Buffer, Tensor
from gateway.protobuf.integers import read_integers, write_integers
from gateway.protobuf.wire import I32, I64, LENGTH, VARINT, fields
from gateway.protocols.grps.gmap import TEXT
from gateway.protocols.grps.protobuf.fields import Room, check_wire_type, read_text, write_field, write_text
from gateway.protocols.grps.schema import MAPS

_KEY, _VALUE = 1, 2
_LENGTH = Struct("<I")
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
_SCALAR_KEYS = {datatype: bytes((_VALUE << 3 | wire_type,)) for datatype, wire_type in _WIRE_TYPES.items()}

_DEFAULTS = {
    Datatype.BYTES: b"",
    Datatype.INT32: b"\x00",
    Datatype.INT64: b"\x00",
    Datatype.FP32: bytes(4),
    Datatype.FP64: bytes(8),
}
"""The values that an entry leaves out, as they would be on the wire."""


def read_maps(message: memoryview, room: Room) -> tuple[Tensor, ...]:
    """The entries of a GenericMapData, each a tensor `[1]`. Of two with one key in the same map the last one counts, as
    in protobuf.

    Raises:
        DecodeError: not a GenericMapData.
        GatewayError: RESOURCE_EXHAUSTED, more than `room`.
    """
    tensors: dict[tuple[int, str], Tensor] = {}
    for field in fields(message):
        number = field.number
        room.spend(field.value - field.start)
        if number in _MAPS:
            check_wire_type(field, LENGTH, f"gmap: {_MAPS[number][0]}")
            tensor = _read_entry(message[field.value : field.end], number, room)
            tensors[number, tensor.name] = tensor
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
            if number == _TEXTS:
                read_text(value, f"gmap: {key!r} of {member}")
    what = f"gmap: {key!r} of {member}"
    room.take(len(value), what)
    return Tensor(key, datatype, (1,), _read_value(value, datatype, what), TEXT if number == _TEXTS else "")


def _read_value(value: memoryview, datatype: Datatype, what: str) -> Buffer:
    if datatype is Datatype.BYTES:
        return b"".join((_LENGTH.pack(len(value)), value))
    return read_integers(value, datatype, 1, what) if _WIRE_TYPES[datatype] == VARINT else value


def write_maps(tensors: Iterable[Tensor]) -> bytes:
    """A GenericMapData of tensors that `gmap.fit` made."""
    return b"".join(map(_write_entry, tensors))


def _write_entry(tensor: Tensor) -> bytes:
    datatype, data = tensor.datatype, tensor.data
    number = _NUMBERS[datatype]
    if datatype is Datatype.BYTES:
        number = _TEXTS if tensor.content_type == TEXT else number
        value = write_field(_VALUE, memoryview(data)[_LENGTH.size :])
    else:
        whole = write_integers(data, datatype) if _WIRE_TYPES[datatype] == VARINT else data
        value = b"".join((_SCALAR_KEYS[datatype], whole))
    return write_field(number, write_text(_KEY, tensor.name, "a key of gmap") + value)
