"""GraphPipe's Tensor table to a Tensor and back."""

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import TypeAlias

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal, unsupported
from gateway.core.types import Buffer, Headers, Parameters, Shape, Tensor
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.flatbuffer_reader import Table
from gateway.protocols.graphpipe.flatbuffer_writer import Writer

_MOST_BYTES = 2**63 - 1
OCTETS = Headers(((b"content-type", b"application/octet-stream"),))

_COPIED = 256
"""Data up to so many bytes is copied out of the message: a view takes 200 bytes itself."""
_NO_PARAMETERS: Parameters = {}
_SMALLEST_STRING = 8
"""The offset and the length."""

Form: TypeAlias = tuple[int, Shape, int, int]
"""What a message's structure says of a tensor: type, shape, elements of the vector with its data, and its bytes."""


def read_type(number: int, what: str) -> Datatype:
    """The Datatype of a type's number. Raises DecodeError for Null and for numbers that are none."""
    datatype = schema.TYPES.get(number)
    if datatype is None:
        raise DecodeError(f"{what}: its type is {number}{' (Null)' * (number == schema.NULL)}, expected 1 to 12")
    return datatype


def read_tensor(table: Table, name: str, what: str) -> Tensor:
    """The Tensor of a table; its data is a view on the message unless it is small.

    Raises:
        DecodeError: naming `what`: no type, a shape that cannot be, or that does not fit the data.
    """
    datatype = read_type(table.byte(schema.Tensor.TYPE), what)
    shape = _read_shape(table, datatype, what)
    read = _read_strings if datatype is Datatype.BYTES else _read_numbers
    return Tensor(name, datatype, shape, read(table, datatype, shape, what), "", _NO_PARAMETERS)


def _read_shape(table: Table, datatype: Datatype, what: str) -> Shape:
    shape = table.shape(schema.Tensor.SHAPE)
    size = datatype.size or 1
    for dimension in shape:
        if dimension < 0:
            raise DecodeError(f"{what}: shape {list(shape)} has a negative dimension")
        size *= dimension or 1
    if size > _MOST_BYTES:
        raise DecodeError(f"{what}: shape {list(shape)} spans more than 2^63 bytes")
    return shape


def _read_numbers(table: Table, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    data = table.octets(schema.Tensor.DATA)
    expected = prod(shape) * datatype.size
    if len(data) != expected or table.count(schema.Tensor.STRING_VAL):
        text = f"{datatype} of shape {list(shape)} takes {expected}, and no strings"
        raise DecodeError(f"{what}: {len(data)} bytes of data, but {text}")
    return bytes(data) if expected <= _COPIED else data


def _read_strings(table: Table, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    count, raw = table.elements(schema.Tensor.STRING_VAL)
    if count != prod(shape) or len(table.octets(schema.Tensor.DATA)):
        text = f"shape {list(shape)} takes {prod(shape)}, and no data"
        raise DecodeError(f"{what}: {count} strings, but {text}")
    return raw


def payloads(tensors: Sequence[Tensor], what: str) -> tuple[tuple[Form, ...], list[Buffer]]:
    """What the message's structure says of tensors, and their data as it goes out.

    Raises:
        GatewayError: UNIMPLEMENTED, a datatype that GraphPipe has not; RESOURCE_EXHAUSTED, strings of 2 GiB.
    """
    forms: list[Form] = []
    data: list[Buffer] = []
    for tensor in tensors:
        number = schema.TYPE_NUMBERS.get(tensor.datatype)
        if number is None:
            raise unsupported(f"{what} {tensor.name!r} is {tensor.datatype}, which GraphPipe does not have")
        payload = _strings(tensor.data) if number == schema.STRING else tensor.data
        size = len(payload)
        forms.append((number, tensor.shape, tensor.elements if number == schema.STRING else size, size))
        data.append(payload)
    return tuple(forms), data


def write_tensors(writer: Writer, at: int, forms: Sequence[Form]) -> None:
    """The vector of tables for `forms`."""
    for place, (number, shape, count, size) in zip(writer.links(at, len(forms)), forms, strict=True):
        layout, slot = _LAYOUTS[number == schema.STRING]
        table = writer.table(layout, place)
        writer.byte(table + layout.place[schema.Tensor.TYPE], number)
        writer.longs(table + layout.place[schema.Tensor.SHAPE], shape)
        writer.payload(table + layout.place[slot], count, size)


_LAYOUTS = ((layouts.NUMBERS, schema.Tensor.DATA), (layouts.STRINGS, schema.Tensor.STRING_VAL))


def interleaved(gaps: Sequence[bytes], data: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The parts of a message: each gap and the payload behind it."""
    if not data:
        return tuple(gaps)
    return tuple(part for pair in zip(gaps, data, strict=True) for part in pair if len(part))


_NULS = tuple(bytes(4 - size) for size in range(4))


def _strings(raw: Buffer) -> bytes:
    """The elements of a vector of strings: offsets, and the strings that they point to."""
    count = bytes_elements.count(raw)
    if len(raw) + count * _SMALLEST_STRING >= 2**31:
        raise refusal(Reason.TOO_LARGE, "a GraphPipe message must be smaller than 2 GiB")
    offsets, strings = bytearray(), bytearray()
    for element in chain.from_iterable(bytes_elements.pieces(raw)):
        # from the offset's own place
        offsets += (4 * count + len(strings) - len(offsets)).to_bytes(4, "little")
        strings += len(element).to_bytes(4, "little")
        strings += element
        # the NUL that C needs, up to the next multiple of 4
        strings += _NULS[len(element) % 4]
    return bytes(offsets + strings)
