"""GenericMapData. Each map entry is a message with the fields key (1) and value (2)."""

from collections.abc import Iterable
from struct import Struct
from types import MappingProxyType

from gateway.core.datatypes import Datatype, Kind
from gateway.core.messages import Buffer
from gateway.core.protobuf.fields import (
    MessageAllowance,
    check_wire_type,
    read_text,
    write_field,
    write_text,
)
from gateway.core.protobuf.integers import read_integers, write_integers
from gateway.core.protobuf.wire import I32, I64, LENGTH, VARINT, fields
from gateway.core.tensors import Tensor
from gateway.protocols.grps.gmap import MAPS, TEXT

_KEY, _VALUE = 1, 2
_S_S = 1
_LENGTH = Struct("<I")

_MAPS = MappingProxyType(dict(enumerate(MAPS.items(), 1)))
"""The name and datatype of each map, by field number."""
_NUMBERS = {datatype: number for number, (_, datatype) in _MAPS.items()}
_WIRE_TYPES = {
    datatype: {Kind.BYTES: LENGTH, Kind.FLOAT: I64 if datatype.size == 8 else I32}.get(datatype.kind, VARINT)
    for datatype in _NUMBERS
}
_SCALAR_KEYS = {datatype: bytes((_VALUE << 3 | wire_type,)) for datatype, wire_type in _WIRE_TYPES.items()}

_DEFAULTS = {
    datatype: b"\x00" if wire_type == VARINT else bytes(datatype.size) for datatype, wire_type in _WIRE_TYPES.items()
}
"""The value of an entry that omits its value, in wire format."""


def read_gmap(message: Buffer, allowance: MessageAllowance) -> tuple[Tensor, ...]:
    """Return the entries of a GenericMapData.

    Each entry becomes a tensor `[1]`. If two entries of a map have the same key, the last entry counts, as in protobuf.

    Raises:
        DecodeError: the message is not a GenericMapData.
        GatewayError: RESOURCE_EXHAUSTED if the entries exceed `allowance`.
    """
    tensors: dict[tuple[int, str], Tensor] = {}
    for field in fields(message):
        number = field.number
        allowance.spend(field.value - field.start)
        if number in _MAPS:
            check_wire_type(field.wire_type, LENGTH, f"gmap: {_MAPS[number][0]}")
            tensor = _read_entry(message[field.value : field.end], number, allowance)
            tensors[number, tensor.name] = tensor
    return tuple(tensors.values())


def _read_entry(entry: Buffer, number: int, allowance: MessageAllowance) -> Tensor:
    name, datatype = _MAPS[number]
    key = ""
    value: Buffer = _DEFAULTS[datatype]
    for field in fields(entry):
        content = entry[field.value : field.end]
        allowance.spend(field.value - field.start if field.number == _VALUE else field.end - field.start)
        if field.number == _KEY:
            check_wire_type(field.wire_type, LENGTH, f"gmap: a key of {name}")
            key = read_text(content, f"gmap: a key of {name}")
        elif field.number == _VALUE:
            check_wire_type(field.wire_type, _WIRE_TYPES[datatype], f"gmap: a value of {name}")
            value = content
            if number == _S_S:
                read_text(value, f"gmap: {key!r} of {name}")
    what = f"gmap: {key!r} of {name}"
    allowance.spend_tensor(len(value), what)
    return Tensor(key, datatype, (1,), _read_value(value, datatype, what), TEXT if number == _S_S else "")


def _read_value(value: Buffer, datatype: Datatype, what: str) -> Buffer:
    """Return a value in a Tensor's raw form."""
    if datatype is Datatype.BYTES:
        return b"".join((_LENGTH.pack(len(value)), value))
    return read_integers(value, datatype, 1, what) if _WIRE_TYPES[datatype] == VARINT else value


def write_gmap(tensors: Iterable[Tensor]) -> bytes:
    """Return the GenericMapData of tensors that `gmap.fit` returned."""
    return b"".join(map(_write_entry, tensors))


def _write_entry(tensor: Tensor) -> bytes:
    datatype, data = tensor.datatype, tensor.data
    number = _NUMBERS[datatype]
    if datatype is Datatype.BYTES:
        number = _S_S if tensor.content_type == TEXT else number
        value = write_field(_VALUE, memoryview(data)[_LENGTH.size :])
    else:
        scalar = write_integers(data, datatype) if _WIRE_TYPES[datatype] == VARINT else data
        value = b"".join((_SCALAR_KEYS[datatype], scalar))
    return write_field(number, write_text(_KEY, tensor.name, "a key of gmap") + value)
