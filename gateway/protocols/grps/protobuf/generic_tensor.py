"""GenericTensor: reads one where it is in the buffer, and writes one around the tensor's own data.

The elements are in the field that belongs to the dtype:

| datatypes  | field                                                                              |
|------------|------------------------------------------------------------------------------------|
| FP32, FP64 | packed, little-endian: the raw form of a Tensor, so neither copied nor looked at   |
| FP16       | packed float32; a number that FP16 does not hold exactly is refused, never rounded |
| integers   | packed varints                                                                     |
| BYTES      | one field for each element                                                         |

Packed and single elements are both accepted, and packed lists in several pieces, as protobuf's encoding demands. What
is written is packed and in one piece.
"""

from collections.abc import Iterable
from itertools import chain
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import MAX_RANK, Buffer, Shape, Tensor
from gateway.protobuf.integers import count_integers, read_integers, write_integers
from gateway.protobuf.wire import I32, I64, LENGTH, VARINT, Field, key, read_field, read_varint, varint
from gateway.protocols.grps.generic_tensor import DTYPES, read_shape
from gateway.protocols.grps.protobuf.fields import MessageAllowance, read_text, write_field, write_text

Parts: TypeAlias = tuple[Buffer, ...]

NAME, DTYPE, SHAPE = 1, 2, 3
ELEMENTS = {datatype: dtype.number + 3 for datatype, dtype in DTYPES.items()}
"""The field numbers of a tensor."""

_MEMBERS = {ELEMENTS[datatype]: dtype.member for datatype, dtype in DTYPES.items()}
_BY_NUMBER = {dtype.number: datatype for datatype, dtype in DTYPES.items()}

_SINGLE = {ELEMENTS[Datatype.FP16]: I32, ELEMENTS[Datatype.FP32]: I32, ELEMENTS[Datatype.FP64]: I64}
"""The wire type of a single element that is not packed; VARINT where it is not listed."""

_FIELDS = {
    NAME: ("name", (LENGTH,)),
    DTYPE: ("dtype", (VARINT,)),
    SHAPE: ("shape", (LENGTH, VARINT)),
    **{number: (member, (LENGTH, _SINGLE.get(number, VARINT))) for number, member in _MEMBERS.items()},
    ELEMENTS[Datatype.BYTES]: ("flat_string", (LENGTH,)),
}
"""Name and possible wire types of each field. Protobuf libraries ignore a field with another one."""

_WIDTHS = {Datatype.FP16: 4, Datatype.FP32: 4, Datatype.FP64: 8}
"""Bytes of an element on the wire, where that is fixed."""

_FLAT_STRING = ELEMENTS[Datatype.BYTES]
_FLAT_STRING_KEY = _FLAT_STRING << 3 | LENGTH
_LENGTH = Struct("<I")


# --- Reading ---


class _Fields:
    """The data fields of one tensor: `lists` by field number, each in pieces; `strings` in the raw form of BYTES,
    `count` of them."""

    __slots__ = ("count", "dtype", "lists", "name", "shape", "strings")

    def __init__(self) -> None:
        self.name = ""
        self.dtype = 0
        self.shape: list[memoryview] = []
        self.lists: dict[int, list[memoryview]] = {}
        self.strings = bytearray()
        self.count = 0


def read_tensor(message: memoryview, position: int, allowance: MessageAllowance) -> Tensor:
    """The tensor in `message`. FP32 and FP64 in one piece are views on it. `position` is what errors call a tensor
    without a name.

    Raises:
        DecodeError: not a GenericTensor; elements in another list than that of its dtype, or not as many as the shape
            takes; an element out of the datatype's range.
        GatewayError: RESOURCE_EXHAUSTED, more than `allowance`.
    """
    what = f"tensor {position}"
    found = _read_fields(message, what, allowance)
    what = f"tensor {found.name!r}" if found.name else what
    datatype = read_dtype(found.dtype, what)
    check_members([*found.lists, *([_FLAT_STRING] if found.count else [])], datatype, what)
    shape = _read_dimensions(found.shape, what)
    spend_tensor(allowance, shape, datatype, what)
    return Tensor(found.name, datatype, shape, _read_elements(found, datatype, shape, what))


def read_dtype(number: int, what: str) -> Datatype:
    """The datatype with this number in `dtype`. Raises DecodeError where there is none."""
    datatype = _BY_NUMBER.get(number)
    if datatype is None:
        expected = ", ".join(f"{dtype.number} {dtype.name}" for dtype in DTYPES.values())
        raise DecodeError(f"{what}: dtype is {number}, expected one of {expected}")
    return datatype


def check_members(filled: Iterable[int], datatype: Datatype, what: str) -> None:
    """Raises DecodeError where a list other than that of `datatype` is among the `filled` fields. Real servers do not
    check this, and compute with no elements."""
    expected = ELEMENTS[datatype]
    for number in filled:
        if number != expected and number in _MEMBERS:
            dtype = DTYPES[datatype]
            raise DecodeError(f"{what}: {_MEMBERS[number]} is filled, but {dtype.name} takes {dtype.member}")


def spend_tensor(allowance: MessageAllowance, shape: Shape, datatype: Datatype, what: str) -> None:
    """Account for a tensor's data; for BYTES only for the length prefixes, since the elements are not known yet."""
    allowance.spend_tensor(prod(shape) * (datatype.size or _LENGTH.size), what)


def check_count(count: float, datatype: Datatype, shape: Shape, what: str) -> None:
    """Raises DecodeError where `count` elements do not fill `shape`."""
    if count != prod(shape):
        raise DecodeError(
            f"{what}: {count:g} elements in {DTYPES[datatype].member}, but shape {list(shape)} takes {prod(shape)}"
        )


def narrow(wide: "np.ndarray[Any, Any]", what: str) -> Buffer:
    """FP32 numbers as FP16 in raw form.

    Raises:
        DecodeError: naming the first number that FP16 does not hold exactly.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = wide.astype("<f2")
    wrong = (narrowed != wide) & ~np.isnan(wide)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DecodeError(f"{what}: element {at}, {wide[at]!s}, is not a value of DT_FLOAT16")
    return narrowed.view(np.uint8).data


def _read_fields(message: memoryview, what: str, allowance: MessageAllowance) -> _Fields:
    found, at, end = _Fields(), 0, len(message)
    octets = b""
    while at < end:
        if message[at] == _FLAT_STRING_KEY:
            # One byte more than the message, so that there is a length to read after a key that is the last byte.
            octets = octets or b"\x00".join((message, b""))
            at = _read_strings(octets, at, found, what)
            continue
        field = read_field(message, at)
        at = field.end
        _keep(field, message[field.value : at], found, what, allowance)
    return found


def _keep(field: Field, value: memoryview, found: _Fields, what: str, allowance: MessageAllowance) -> None:
    number, wire_type = field.number, field.wire_type
    allowance.spend(0 if number in _MEMBERS and wire_type == LENGTH else field.end - field.start)
    if number not in _FIELDS:
        return
    name, allowed = _FIELDS[number]
    if wire_type not in allowed:
        expected = " or ".join(map(str, allowed))
        raise DecodeError(f"{what}: {name} has wire type {wire_type}, expected {expected}")
    if number == NAME:
        found.name = read_text(value, f"{what}: name")
    elif number == DTYPE:
        found.dtype = read_varint(value, 0)[0]
    elif number == SHAPE:
        found.shape.append(value)
    elif number == _FLAT_STRING:
        # Its key was written in more bytes than needed; `_read_strings` reads all others.
        read_text(value, f"{what}: element {found.count} of flat_string")
        found.strings += _LENGTH.pack(len(value)) + value
        found.count += 1
    elif value:
        found.lists.setdefault(number, []).append(value)


def _read_strings(octets: bytes, at: int, found: _Fields, what: str) -> int:
    """Read consecutive elements of flat_string from `at`; returns where they end. The last byte of `octets` is not part
    of the message."""
    strings, count, end = found.strings, found.count, len(octets) - 1
    pack = _LENGTH.pack
    try:
        while at < end and octets[at] == _FLAT_STRING_KEY:
            size, start = octets[at + 1], at + 2
            if size > 0x7F:
                size, start = read_varint(octets, at + 1)
            at = start + size
            element = octets[start:at]
            element.decode()
            strings += pack(len(element))
            strings += element
            count += 1
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what}: element {count} of flat_string is not UTF-8") from error
    if at > end:
        raise DecodeError(f"{what}: element {count - 1} of flat_string reaches past the end of the message")
    found.count = count
    return at


def _read_dimensions(pieces: list[memoryview], what: str) -> Shape:
    packed, at = pieces[0] if len(pieces) == 1 else b"".join(pieces), 0
    dimensions: list[int] = []
    while at < len(packed) and len(dimensions) <= MAX_RANK:
        dimension, at = read_varint(packed, at)
        dimensions.append(dimension)
    return read_shape(dimensions, what)


def _read_elements(found: _Fields, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    """The elements in a Tensor's raw form."""
    if datatype is Datatype.BYTES:
        check_count(found.count, datatype, shape, what)
        return found.strings
    pieces = found.lists.get(ELEMENTS[datatype], [])
    packed = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if datatype in _WIDTHS:
        check_count(len(packed) / _WIDTHS[datatype], datatype, shape, what)
        return narrow(np.frombuffer(packed, "<f4"), what) if datatype is Datatype.FP16 else packed
    check_count(count_integers(packed), datatype, shape, what)
    return read_integers(packed, datatype, prod(shape), what)


# --- Writing ---

_KEYS = {datatype: key(number) for datatype, number in ELEMENTS.items()}
_DTYPE_FIELDS = {datatype: bytes((DTYPE << 3, dtype.number)) for datatype, dtype in DTYPES.items()}
_TENSOR_KEY = key(1)
_SHORT_STRINGS = [_KEYS[Datatype.BYTES] + varint(size) for size in range(128)]
"""Key and length of an element of BYTES, by its size."""


def write_tensors(tensors: Iterable[Tensor]) -> tuple[Parts, int]:
    """The GenericTensorData of `tensors` in parts, the first of them small, and its size in bytes. FP32 and FP64 data
    are parts of their own, not copied.

    Raises:
        GatewayError: INVALID_ARGUMENT naming a tensor that cannot be written.
    """
    parts: list[Buffer] = []
    written, total = b"", 0
    for tensor in tensors:
        elements = _write_elements(tensor)
        size = len(elements)
        head = _write_head(tensor, size)
        start = _TENSOR_KEY + varint(len(head) + size)
        total += len(start) + len(head) + size
        written += start + head
        if size:
            parts += (written, elements)
            written = b""
    return (*parts, written) if written or not parts else tuple(parts), total


def _write_head(tensor: Tensor, size: int) -> bytes:
    """All of a tensor before its elements, which take `size` bytes: for packed lists also the key and the length."""
    head = b""
    if tensor.name:
        head = write_text(NAME, tensor.name, f"the name of tensor {tensor.name!r}")
    head += _DTYPE_FIELDS[tensor.datatype]
    if tensor.shape:
        head += write_field(SHAPE, b"".join(map(_write_dimension, tensor.shape)))
    if size and tensor.datatype is not Datatype.BYTES:
        head += _KEYS[tensor.datatype] + varint(size)
    return head


def _write_dimension(dimension: int) -> bytes:
    if dimension >= 2**32:
        raise invalid_input(f"a dimension of {dimension} is too large for grps, expected less than 2^32")
    return varint(dimension)


def _write_elements(tensor: Tensor) -> Buffer:
    datatype = tensor.datatype
    if datatype not in DTYPES:
        raise invalid_input(f"tensor {tensor.name!r}: grps has no {datatype}, only {', '.join(DTYPES)}")
    if datatype is Datatype.BYTES:
        return _write_strings(tensor)
    if datatype is Datatype.FP16:
        return np.frombuffer(tensor.data, "<f2").astype("<f4").view(np.uint8).data
    return tensor.data if datatype in _WIDTHS else write_integers(tensor.data, datatype)


def _write_strings(tensor: Tensor) -> bytes:
    """A field for each element. They are UTF-8: `strings.as_string` has checked that."""
    written = bytearray()
    for element in chain.from_iterable(bytes_elements.pieces(tensor.data)):
        size = len(element)
        written += _SHORT_STRINGS[size] if size < len(_SHORT_STRINGS) else _KEYS[Datatype.BYTES] + varint(size)
        written += element
    return bytes(written)
