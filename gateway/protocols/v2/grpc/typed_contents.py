"""Reads and writes tensor data in protobuf's own types, `InferTensorContents`: "a repeated field that matches the
tensor's data type".

The gateway reads the contents without upb, because packed FP32 and FP64 are already in raw form. upb would convert each
element to a Python float, and thereby turn signaling FP32 NaNs into quiet NaNs.
"""

from collections.abc import Iterable
from math import prod
from struct import Struct

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import Buffer
from gateway.core.protobuf.integers import count_integers, read_integers, write_integers
from gateway.core.protobuf.wire import I32, I64, LENGTH, VARINT, Field, fields, key, read_varint, varint
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.v2.tensors import check_size

_BOOL, _INT, _INT64, _UINT, _UINT64, _FP32, _FP64, _BYTES = range(1, 9)

_FIELD_NAMES = {
    _BOOL: "bool_contents",
    _INT: "int_contents",
    _INT64: "int64_contents",
    _UINT: "uint_contents",
    _UINT64: "uint64_contents",
    _FP32: "fp32_contents",
    _FP64: "fp64_contents",
    _BYTES: "bytes_contents",
}

_FIELDS = {
    Datatype.BOOL: _BOOL,
    Datatype.INT8: _INT,
    Datatype.INT16: _INT,
    Datatype.INT32: _INT,
    Datatype.INT64: _INT64,
    Datatype.UINT8: _UINT,
    Datatype.UINT16: _UINT,
    Datatype.UINT32: _UINT,
    Datatype.UINT64: _UINT64,
    Datatype.FP32: _FP32,
    Datatype.FP64: _FP64,
    Datatype.BYTES: _BYTES,
}
"""The field of each datatype. FP16 and BF16 have no field (FP16 "must be represented as raw content as there is no
specific data type")."""

_UNPACKED = {_FP32: I32, _FP64: I64, _BYTES: LENGTH}
"""The wire type of one unpacked element. Fields that are not in this map use VARINT."""

_BYTES_KEY = _BYTES << 3 | LENGTH
_KEYS = {number: key(number) for number in _FIELD_NAMES}
_FLOATS = frozenset({_FP32, _FP64})
_LENGTH = Struct("<I")

_MAX_UNPACKED = 100_000
"""Maximum number of unpacked elements. Each element takes a microsecond.

Every proto3 writer packs numbers."""


def read_contents(contents: Buffer, datatype: Datatype, shape: Shape, limit: int, what: str) -> Buffer:
    """Return the raw form of the elements in an InferTensorContents message.

    For FP32 and FP64, the result is a view of the message.

    `limit` is the maximum size of the raw form, in bytes.

    Raises:
        DecodeError: the elements are in the field of another datatype, their number does not match the shape, or a
            number is out of the datatype's range.
        GatewayError: RESOURCE_EXHAUSTED if the data exceeds the limit.
    """
    check_size(shape, datatype, limit, what)
    elements = prod(shape)
    if datatype is Datatype.BYTES:
        raw, found = _read_strings(contents, elements, what)
        _check_count(found, elements, datatype, shape, what)
        return raw
    pieces = _occurrences(contents, datatype, elements, what)
    packed = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if datatype.kind is Kind.FLOAT:
        _check_count(len(packed) / datatype.size, elements, datatype, shape, what)
        return packed
    _check_count(count_integers(packed), elements, datatype, shape, what)
    return read_integers(packed, datatype, elements, what)


def _read_strings(contents: Buffer, elements: int, what: str) -> tuple[bytearray, int]:
    """Return the raw form of `bytes_contents`, and the number of elements. Reading stops after `elements` + 1
    elements."""
    raw, at, end, found = bytearray(), 0, len(contents), 0
    octets = b"".join((contents, b"\x00"))  # an extra byte, so a length can be read after a key that is the last byte
    while at < end and found <= elements:
        if octets[at] != _BYTES_KEY:
            _refuse_other_field(octets[at:end], what)
        size, start = octets[at + 1], at + 2
        if size > 0x7F:
            size, start = read_varint(octets, at + 1)
        at = start + size
        element = octets[start:at]
        raw += _LENGTH.pack(len(element))
        raw += element
        found += 1
    if at > end:
        raise DecodeError(f"{what}: element {found - 1} of bytes_contents reaches past the end of the message")
    return raw, found


def _refuse_other_field(contents: bytes, what: str) -> None:
    _check_field(next(fields(contents)), Datatype.BYTES, what)
    raise DecodeError(f"{what}: a key of contents is not in its shortest form")


def _occurrences(contents: Buffer, datatype: Datatype, elements: int, what: str) -> list[memoryview]:
    """Return the contents of each occurrence of the datatype's field.

    Each occurrence contains packed elements, or one unpacked element."""
    view, pieces = memoryview(contents), []
    most = min(elements, _MAX_UNPACKED)
    for field in fields(contents):
        _check_field(field, datatype, what)
        pieces.append(view[field.value : field.end])
        if len(pieces) > most:
            raise DecodeError(f"{what}: {_FIELD_NAMES[field.number]} has more than {most} elements that are not packed")
    return pieces


def _check_field(field: Field, datatype: Datatype, what: str) -> None:
    number = field.number
    expected = _FIELDS.get(datatype)
    if expected is None:
        raise DecodeError(f"{what}: {datatype} has no typed contents; send it in raw contents")
    if number != expected:
        name = _FIELD_NAMES.get(number, f"field {number}")
        raise DecodeError(f"{what}: {name} of contents is set, but {datatype} takes {_FIELD_NAMES[expected]}")
    if field.wire_type not in (LENGTH, _UNPACKED.get(number, VARINT)):
        raise DecodeError(f"{what}: {_FIELD_NAMES[number]} of contents has wire type {field.wire_type}")


def _check_count(found: float, elements: int, datatype: Datatype, shape: Shape, what: str) -> None:
    if found != elements:
        raise DecodeError(
            f"{what}: {found:g} elements in contents, but {datatype} of shape {list(shape)} takes {elements}"
        )


def all_typed(tensors: Iterable[Tensor]) -> bool:
    """Return True if the datatype of each tensor has a typed field."""
    for each in tensors:  # noqa: SIM110 - a generator needs a call per tensor
        if each.datatype not in _FIELDS:
            return False
    return True


def write_contents(tensor: Tensor, role: str) -> tuple[Buffer, ...]:
    """Return the InferTensorContents message of a tensor's data, in pieces. FP32 and FP64 data are not copied.

    Raises:
        GatewayError: INVALID_ARGUMENT if the datatype has no typed contents. The message contains the tensor's name and
            its `role`.
    """
    number = _FIELDS.get(tensor.datatype)
    if number is None:
        text = f"{role} {tensor.name!r}: {tensor.datatype} has no typed contents, which alone are read there"
        raise invalid_input(text)
    if tensor.datatype is Datatype.BYTES:
        return (_write_strings(tensor.data),)
    data = tensor.data if number in _FLOATS else write_integers(tensor.data, tensor.datatype)
    return (_KEYS[number], varint(len(data)), data) if len(data) else ()


def _write_strings(data: Buffer) -> bytes:
    written = bytearray()
    for elements in bytes_elements.pieces(data):
        for element in elements:
            written += _KEYS[_BYTES]
            written += varint(len(element))
            written += element
    return bytes(written)
