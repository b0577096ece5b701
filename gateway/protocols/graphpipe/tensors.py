"""Converts GraphPipe's table Tensor to a canonical Tensor and back."""

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import TypeAlias

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal, unsupported
from gateway.core.messages import Buffer, Message
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import MAX_MESSAGE, TOO_LARGE, Flatbuffer, Table, Writer

_MAX_SIZE = 2**63 - 1

_COPY_UP_TO = 256
"""Maximum size of data that is copied out of the message, in bytes. A view itself takes 200 bytes."""
_STRING_OVERHEAD = 8
"""Approximate overhead of a string in the message, in addition to its 4-byte length in the raw form of BYTES: an
offset, and up to 4 bytes of padding."""

TensorHeader: TypeAlias = tuple[int, Shape, int, int]
"""The part of a tensor before its data: the type number, the shape, the number of elements in the data vector, and the
size of the data in bytes."""


def decode_type(number: int, what: str) -> Datatype:
    """Return the Datatype of a type number.

    Raises:
        DecodeError: the number is Null or unknown. The message contains `what`.
    """
    datatype = schema.TYPES.get(number)
    if datatype is None:
        raise DecodeError(f"{what}: its type is {number}{' (Null)' * (number == schema.NULL)}, expected 1 to 12")
    return datatype


def decode_tensor(table: Table, name: str, what: str) -> Tensor:
    """Decode a FlatBuffers tensor table into a Tensor.

    Small tensor data is copied; larger data is a view of the message.

    Raises:
        DecodeError: the type is unknown, or the shape is invalid or does not match the data. The message contains
            `what`.
    """
    datatype = decode_type(table.byte(schema.Tensor.TYPE), what)
    shape = _decode_shape(table, datatype, what)
    decode_data = _decode_strings if datatype is Datatype.BYTES else _decode_numbers
    return Tensor(name, datatype, shape, decode_data(table, datatype, shape, what))


def _decode_shape(table: Table, datatype: Datatype, what: str) -> Shape:
    shape = table.shape(schema.Tensor.SHAPE)
    size = datatype.size or 1
    for dimension in shape:
        if dimension < 0:
            raise DecodeError(f"{what}: shape {list(shape)} has a negative dimension")
        size *= dimension or 1
    if size > _MAX_SIZE:
        raise DecodeError(f"{what}: shape {list(shape)} spans more than 2^63 bytes")
    return shape


def _decode_numbers(table: Table, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    data = table.octets(schema.Tensor.DATA)
    expected = prod(shape) * datatype.size
    if len(data) != expected or table.count(schema.Tensor.STRING_VAL):
        text = f"{datatype} of shape {list(shape)} takes {expected}, and no strings"
        raise DecodeError(f"{what}: {len(data)} bytes of data, but {text}")
    return bytes(data) if expected <= _COPY_UP_TO else data


def _decode_strings(table: Table, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    count, raw = table.elements(schema.Tensor.STRING_VAL)
    if count != prod(shape) or len(table.octets(schema.Tensor.DATA)):
        text = f"shape {list(shape)} takes {prod(shape)}, and no data"
        raise DecodeError(f"{what}: {count} strings, but {text}")
    return raw


_MAX_CHECKED = 64
"""Maximum number of tensors or names in an ordinary message.

A message with more tensors or names counts as fully parsed."""


def parsed_size(message: Message) -> int:
    """Return the number of bytes of a message that must be parsed: all bytes except the numbers of its tensors.
    `core.offload` uses this number to decide whether to do the work in a thread.

    The entire body counts if the message contains strings, errors, or more than _MAX_CHECKED tensors or names, if it
    has no tensors, or if it cannot be decoded."""
    try:
        root = Flatbuffer(message.body).root()
        size = _response_size(root) if message.status else _request_size(root)
    except DecodeError:
        size = None
    return len(message.body) if size is None else size


def _request_size(root: Table) -> int | None:
    table = root.table(schema.Request.REQ)
    if table is None or not _are_few_numbers(table, schema.InferRequest.INPUT_TENSORS):
        return None
    size = len(table.octets(schema.InferRequest.CONFIG))
    for slot in (schema.InferRequest.INPUT_NAMES, schema.InferRequest.OUTPUT_NAMES):
        if table.count(slot) > _MAX_CHECKED:
            return None
        size += sum(table.lengths(slot))
    return size


def _response_size(table: Table) -> int | None:
    tensors = schema.InferResponse.OUTPUT_TENSORS
    if table.count(schema.InferResponse.ERRORS) or not table.count(tensors):  # without tensors, it might be metadata
        return None
    return 0 if _are_few_numbers(table, tensors) else None


def _are_few_numbers(table: Table, slot: int) -> bool:
    """Return whether the vector at `slot` contains at most _MAX_CHECKED tensors, and none of the tensors contains
    strings."""
    return table.count(slot) <= _MAX_CHECKED and not any(
        tensor.count(schema.Tensor.STRING_VAL) for tensor in table.tables(slot)
    )


def encode_tensors(tensors: Sequence[Tensor], role: str) -> tuple[tuple[TensorHeader, ...], list[Buffer]]:
    """Return the headers of the tensors, and their data in GraphPipe's format. `role` is `input` or `output`.

    Raises:
        GatewayError: UNIMPLEMENTED if GraphPipe does not support a tensor's datatype; RESOURCE_EXHAUSTED if the strings
            take 2 GiB or more.
    """
    headers: list[TensorHeader] = []
    data: list[Buffer] = []
    for tensor in tensors:
        number = schema.TYPE_NUMBERS.get(tensor.datatype)
        if number is None:
            raise unsupported(f"{role} {tensor.name!r} is {tensor.datatype}, which is not supported by GraphPipe")
        payload = _encode_strings(tensor.data) if number == schema.STRING else tensor.data
        size = len(payload)  # numbers are a vector of bytes, so its elements are bytes
        headers.append((number, tensor.shape, tensor.elements if number == schema.STRING else size, size))
        data.append(payload)
    return tuple(headers), data


def write_tensors(writer: Writer, at: int, headers: Sequence[TensorHeader]) -> None:
    """Write the vector of Tensor tables. `at` is the position of the offset to this vector."""
    for place, (number, shape, count, size) in zip(writer.vector_of_offsets(at, len(headers)), headers, strict=True):
        layout, slot = _LAYOUTS[number == schema.STRING]
        table = writer.table(layout, place)
        writer.byte(table + layout.offsets[schema.Tensor.TYPE], number)
        writer.longs(table + layout.offsets[schema.Tensor.SHAPE], shape)
        writer.payload(table + layout.offsets[slot], count, size)


_LAYOUTS = ((schema.NUMBERS_LAYOUT, schema.Tensor.DATA), (schema.STRINGS_LAYOUT, schema.Tensor.STRING_VAL))


def interleave(structure: Sequence[bytes], data: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Return the parts of a message: each piece of the structure, followed by the data of one tensor."""
    if not data:
        return tuple(structure)
    return tuple([part for pair in zip(structure, data, strict=True) for part in pair if len(part)])


_NULS = tuple(bytes(4 - size) for size in range(4))


def _encode_strings(raw: Buffer) -> Buffer:
    """Return the elements of a vector of strings. `raw` is the raw form of BYTES.

    The result consists of the offsets, followed by the strings that they point to."""
    count = bytes_elements.count(raw)
    if len(raw) + count * _STRING_OVERHEAD >= MAX_MESSAGE:
        raise refusal(Reason.TOO_LARGE, TOO_LARGE)
    vector = bytearray(4 * count)
    for at, element in zip(range(0, 4 * count, 4), chain.from_iterable(bytes_elements.pieces(raw)), strict=True):
        # an offset is relative to its own position
        vector[at : at + 4] = (len(vector) - at).to_bytes(4, "little")
        vector += len(element).to_bytes(4, "little")
        vector += element
        # padding up to the next multiple of 4, with at least one NUL, which C programs need
        vector += _NULS[len(element) % 4]
    return vector
