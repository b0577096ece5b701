"""Reads and writes the tensors of a GrpsMessage in protobuf: `GenericTensor`, and the entries of `gmap`.

The module reads a tensor without copying it from the buffer, and writes a tensor around the tensor's own data.

The field for the dtype contains the elements:

| datatypes  | field                                                                              |
|------------|------------------------------------------------------------------------------------|
| FP32, FP64 | packed, little-endian: the raw form of a Tensor, so not copied and not inspected   |
| FP16       | packed float32; a number that FP16 cannot represent exactly is rejected            |
| integers   | packed varints                                                                     |
| BYTES      | one field for each element                                                         |

As the protobuf encoding requires, the reader accepts packed and single elements, and packed lists in several pieces.
The writer writes each packed list in one piece.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from math import prod
from struct import Struct
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import Buffer
from gateway.core.protobuf.fields import (
    MessageAllowance,
    TensorFields,
    check_wire_type,
    read_text,
    scan_tensor,
    write_field,
    write_text,
)
from gateway.core.protobuf.integers import count_integers, read_integers, write_integers
from gateway.core.protobuf.wire import I32, I64, LENGTH, VARINT, fields, key, read_uint64s, read_varint, varint
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.grps.gmap import MAPS, TEXT
from gateway.protocols.grps.schema import DTYPES, read_shape

Parts: TypeAlias = tuple[Buffer, ...]

_NAME, _DTYPE, _SHAPE = 1, 2, 3
ELEMENTS = {datatype: dtype.number + 3 for datatype, dtype in DTYPES.items()}
"""The field numbers of a tensor."""

_MEMBERS = {ELEMENTS[datatype]: dtype.member for datatype, dtype in DTYPES.items()}
_BY_NUMBER = {dtype.number: datatype for datatype, dtype in DTYPES.items()}

_WIDTHS = {datatype: max(datatype.size, 4) for datatype in DTYPES if datatype.kind is Kind.FLOAT}
"""Sizes of fixed-size elements in the message, in bytes. FP16 elements are sent as float32."""

_SINGLE = {ELEMENTS[datatype]: {4: I32, 8: I64}[width] for datatype, width in _WIDTHS.items()}
"""The wire type of an element that is not packed. For other fields, the wire type is VARINT."""

_FIELDS = TensorFields(
    {
        _NAME: ("name", (LENGTH,)),
        _DTYPE: ("dtype", (VARINT,)),
        _SHAPE: ("shape", (LENGTH, VARINT)),
        **{number: (member, (LENGTH, _SINGLE.get(number, VARINT))) for number, member in _MEMBERS.items()},
        ELEMENTS[Datatype.BYTES]: ("flat_string", (LENGTH,)),
    },
    lists=_MEMBERS,
    contents=_MEMBERS,
    strings=ELEMENTS[Datatype.BYTES],
    is_text=True,
)

RAW = frozenset(datatype for datatype, width in _WIDTHS.items() if width == datatype.size)
"""The datatypes whose packed lists are the raw form of a Tensor."""

_LENGTH = Struct("<I")


# --- Reading ---

_UNKNOWN = [b"\x00"]
"""The occurrences of a missing dtype."""


def read_tensor(message: Buffer, position: int, allowance: MessageAllowance) -> Tensor:
    """Return the tensor in `message`.

    FP32 and FP64 data in one piece are slices of `message`. Error messages identify a tensor without a name by
    `position`.

    Raises:
        DecodeError: `message` is not a GenericTensor, has elements in the list for another dtype, has a number of
            elements that does not match its shape, or has an element outside its datatype's range.
        GatewayError: RESOURCE_EXHAUSTED if the tensor exceeds `allowance`.
    """
    what = f"tensor {position}"
    lists, strings, count = scan_tensor(message, _FIELDS, what, allowance)
    name = read_text(lists.pop(_NAME)[-1], f"{what}: name") if _NAME in lists else ""
    number = lists.pop(_DTYPE, _UNKNOWN)[-1]
    dtype = number[0] if len(number) == 1 else read_varint(number, 0)[0]
    dimensions: list[int] = []
    for piece in lists.pop(_SHAPE, ()):
        dimensions += read_uint64s(piece)
    what = f"tensor {name!r}" if name else f"tensor {position}"
    datatype = _BY_NUMBER.get(dtype)
    if datatype is None:
        expected = ", ".join(f"{dtype.number} {dtype.name}" for dtype in DTYPES.values())
        raise DecodeError(f"{what}: dtype is {dtype}, expected one of {expected}")
    pieces = lists.pop(ELEMENTS[datatype], ())
    if lists or (count and datatype is not BYTES):
        # Real servers do not make this check, and run the model without the elements.
        filled, own = _MEMBERS[next(iter(lists), _FIELDS.strings)], DTYPES[datatype]
        raise DecodeError(f"{what}: {filled} is filled, but {own.name} takes {own.member}")
    shape = read_shape(dimensions, what)
    elements = prod(shape)
    # for BYTES, only the length prefixes count, because all other bytes of the tensor are in the message
    allowance.spend_tensor(elements * (datatype.size or _LENGTH.size), what)
    packed = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if datatype in _WIDTHS:
        found: float = len(packed) / _WIDTHS[datatype]
    else:
        found = count if datatype is BYTES else count_integers(packed)
    if found != elements:
        member = DTYPES[datatype].member
        raise DecodeError(f"{what}: {found:g} elements in {member}, but shape {list(shape)} takes {elements}")
    return Tensor(name, datatype, shape, strings if datatype is BYTES else _raw(packed, datatype, elements, what))


def _raw(packed: Buffer, datatype: Datatype, elements: int, what: str) -> Buffer:
    """Return the elements of a packed list in a Tensor's raw form."""
    if datatype is Datatype.FP16:
        return _narrow(np.frombuffer(packed, "<f4"), what)
    return packed if datatype in _WIDTHS else read_integers(packed, datatype, elements, what)


def _narrow(wide: "np.ndarray[Any, Any]", what: str) -> Buffer:
    """Return FP32 numbers as FP16 in raw form.

    Raises:
        DecodeError: FP16 cannot represent a number exactly. The message contains the first such number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = wide.astype("<f2")
    wrong = (narrowed != wide) & ~np.isnan(wide)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DecodeError(f"{what}: element {at}, {wide[at]!s}, is not a value of DT_FLOAT16")
    return narrowed.view(np.uint8).data


# --- Writing ---

_KEYS = {datatype: key(number) for datatype, number in ELEMENTS.items()}
_DTYPE_FIELDS = {datatype: bytes((_DTYPE << 3, dtype.number)) for datatype, dtype in DTYPES.items()}
_TENSOR_KEY = key(1)
_SHORT_STRINGS = [_KEYS[Datatype.BYTES] + varint(size) for size in range(128)]
"""The key and the length of a BYTES element, by its size."""


def write_tensors(tensors: Iterable[Tensor]) -> tuple[Parts, int]:
    """Return the GenericTensorData of `tensors` in parts, and its size in bytes. The first part is small. FP32 and FP64
    data are separate parts, which are not copied.

    Raises:
        GatewayError: INVALID_ARGUMENT if grps cannot represent a tensor (the message says which).
    """
    parts: list[Buffer] = []
    written, total = b"", 0
    for tensor in tensors:
        elements = _write_elements(tensor)
        size = len(elements)
        write = _write_short_head if len(tensor.name) <= _SHORT else _write_head
        head = write(tensor.name, tensor.datatype, tensor.shape, size)
        start = _TENSOR_KEY + varint(len(head) + size)
        total += len(start) + len(head) + size
        written += start + head
        if size:
            parts += (written, elements)
            written = b""
    return (*parts, written) if written or not parts else tuple(parts), total


def _write_head(name: str, datatype: Datatype, shape: Shape, size: int) -> bytes:
    """Return the part of a tensor before its elements, which take `size` bytes.

    For packed lists, this part includes the key and the length."""
    head = write_text(_NAME, name, f"the name of tensor {name!r}") if name else b""
    head += _DTYPE_FIELDS[datatype]
    if shape:
        head += write_field(_SHAPE, b"".join(map(_write_dimension, shape)))
    if size and datatype is not BYTES:
        head += _KEYS[datatype] + varint(size)
    return head


_write_short_head = lru_cache(256)(_write_head)
"""The cache works because clients send few distinct names, datatypes and shapes. It saves 1 us for each tensor."""
_SHORT = 256
"""Maximum length of a cached name, in characters."""


def _write_dimension(dimension: int) -> bytes:
    if dimension >= 2**32:
        raise invalid_input(f"a dimension of {dimension} is too large for grps, expected less than 2^32")
    return varint(dimension)


def _write_elements(tensor: Tensor) -> Buffer:
    datatype = tensor.datatype
    if datatype in RAW:
        return tensor.data
    if datatype not in DTYPES:
        raise invalid_input(
            f"tensor {tensor.name!r} is {datatype}, which grps does not have; expected one of {', '.join(DTYPES)}"
        )
    if datatype is BYTES:
        return _write_strings(tensor)
    if datatype is Datatype.FP16:
        return np.frombuffer(tensor.data, "<f2").astype("<f4").view(np.uint8).data
    return write_integers(tensor.data, datatype)


def _write_strings(tensor: Tensor) -> Buffer:
    """Return a field for each element. The elements are UTF-8, which `strings.as_string` has checked."""
    written = bytearray()
    for element in chain.from_iterable(bytes_elements.pieces(tensor.data)):
        size = len(element)
        written += _SHORT_STRINGS[size] if size < len(_SHORT_STRINGS) else _KEYS[Datatype.BYTES] + varint(size)
        written += element
    return written


# --- gmap ---

_KEY, _VALUE = 1, 2
_S_S = 1

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
