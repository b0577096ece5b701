"""Reads and writes TensorProtos.

The module reads a tensor without copying it from the buffer, and writes a tensor around the tensor's own data.

| datatypes                     | list                      | packed list                                            |
|-------------------------------|---------------------------|--------------------------------------------------------|
| FP32, FP64                    | `float_val`, `double_val` | the raw form of a Tensor, not copied and not inspected |
| INT8 to INT32, UINT8, UINT16  | `int_val`                 | varints                                                |
| INT64, UINT32, UINT64, BOOL   | a list for each datatype  | varints                                                |
| FP16, BF16                    | `half_val`                | varints of their bits                                  |
| BYTES                         | `string_val`              | one field for each element                             |

Senders can also use `tensor_content`, which contains the raw form itself, or for BYTES, the lengths as varints and then
the bytes. If a list is shorter than the shape, its last element is repeated. A tensor without any element consists of
zeros or empty strings. Clients write constants in this way. TensorFlow truncates longer lists, ignores lists of another
data type, and lets integers wrap around. The gateway rejects these tensors, because the model would not receive the
values that the client sent.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from math import prod
from struct import Struct
from typing import TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BOOL, BYTES, Datatype
from gateway.core.errors import DecodeError, Reason, invalid_input, refusal
from gateway.core.messages import Buffer
from gateway.core.offload import COPIED, LARGE
from gateway.core.protobuf.fields import MessageAllowance, TensorFields, scan_tensor
from gateway.core.protobuf.integers import count_integers, read_integers, write_integers
from gateway.core.protobuf.schema import not_utf8
from gateway.core.protobuf.wire import (
    I32,
    I64,
    LENGTH,
    VARINT,
    fields,
    key,
    read_int64s,
    read_varint,
    varint,
)
from gateway.core.tensors import MAX_RANK, Shape, Tensor
from gateway.protocols.tensorflow_serving.schema import DATA_TYPE_NAMES, DATA_TYPES, DATATYPES

DTYPE, SHAPE, CONTENT = 1, 2, 4
_FLOAT, _DOUBLE, _INT, _STRING, _INT64, _BOOL, _HALF, _UINT32, _UINT64 = 5, 6, 7, 8, 10, 11, 13, 16, 17
"""The field numbers of a TensorProto."""

LISTS = {
    Datatype.BOOL: _BOOL,
    Datatype.UINT8: _INT,
    Datatype.UINT16: _INT,
    Datatype.UINT32: _UINT32,
    Datatype.UINT64: _UINT64,
    Datatype.INT8: _INT,
    Datatype.INT16: _INT,
    Datatype.INT32: _INT,
    Datatype.INT64: _INT64,
    Datatype.FP16: _HALF,
    Datatype.FP32: _FLOAT,
    Datatype.FP64: _DOUBLE,
    Datatype.BF16: _HALF,
    Datatype.BYTES: _STRING,
}
"""The field with the list for each datatype."""

_LIST_NAMES = {
    _FLOAT: "float_val",
    _DOUBLE: "double_val",
    _INT: "int_val",
    _STRING: "string_val",
    9: "scomplex_val",
    _INT64: "int64_val",
    _BOOL: "bool_val",
    12: "dcomplex_val",
    _HALF: "half_val",
    14: "resource_handle_val",
    15: "variant_val",
    _UINT32: "uint32_val",
    _UINT64: "uint64_val",
    18: "float8_val",
}

_SINGLE = {_FLOAT: I32, _DOUBLE: I64}
"""The wire type of an element that is not packed. For other field numbers, the wire type is VARINT."""

_FIELDS = TensorFields(
    {
        DTYPE: ("dtype", (VARINT,)),
        SHAPE: ("tensor_shape", (LENGTH,)),
        CONTENT: ("tensor_content", (LENGTH,)),
        **{number: (name, (LENGTH, _SINGLE.get(number, VARINT))) for number, name in _LIST_NAMES.items()},
        _STRING: ("string_val", (LENGTH,)),
    },
    lists=_LIST_NAMES,
    contents=(CONTENT, *_LIST_NAMES),
    strings=_STRING,
    is_text=False,
)
_INVALID, _NO_CONTENT = [b"\x00"], [b""]
"""The occurrences of a missing data type, and of a missing `tensor_content`."""

_AS_BITS = {Datatype.FP16: Datatype.UINT16, Datatype.BF16: Datatype.UINT16}
"""The integer datatype of the list elements, for datatypes that are sent as integers."""

MAX_BYTES = 2**63 - 1
"""Maximum number of elements. TensorFlow counts elements in 64 bits."""

_DTYPE_TAG = DTYPE << 3 | VARINT
_DIM, _SIZE, _UNKNOWN_RANK = 2, 1, 3
"""The field numbers of a TensorShapeProto: `dim` with its `size`, and `unknown_rank`."""
_LENGTH = Struct("<I")
_SHORT = 256
"""Maximum size of a cached shape, in bytes, or length of a cached name, in characters."""


# --- Reading ---


class TensorAllowance(MessageAllowance):
    """The memory allowance of a message of `size` bytes with TensorProtos.

    The allowance also limits the bytes that the gateway adds to short lists. This limit is MOST_FILLED or FILL_RATIO
    times the message size, whichever is larger. Without the limit, a few bytes could claim `limit` bytes of memory.
    `lists` and `contents` record whether the message contains numbers as typed lists and as `tensor_content`."""

    MOST_FILLED = 2**20
    FILL_RATIO = 16

    __slots__ = ("_most", "contents", "lists")

    def __init__(self, limit: int, size: int) -> None:
        super().__init__(limit)
        self.lists = self.contents = False
        self._most = max(self.MOST_FILLED, self.FILL_RATIO * size)

    def spend_filled(self, size: int, what: str) -> None:
        """Account for `size` bytes that the message does not contain.

        Raise GatewayError (RESOURCE_EXHAUSTED) if the bytes exceed the limit for short lists."""
        if size > self._most:
            text = f"{what}: its list is {size} bytes shorter than its shape takes; of short lists at most {self._most}"
            raise refusal(Reason.TOO_LARGE, f"{text} bytes are made, so send all elements")
        self._most -= size


def read_tensor(message: Buffer, name: str, what: str, allowance: TensorAllowance) -> Tensor:
    """Return the tensor in a TensorProto. FP32, FP64 and `tensor_content` are slices of `message`.

    Error messages call the tensor `what`. The elements are in one list, which can be shorter than the shape, or in
    `tensor_content`, whose size must match the shape.

    Raises:
        DecodeError: the bytes are not a TensorProto, or contain a data type without a corresponding datatype, a
            dimension below 0, or elements that do not match the data type or the shape.
        GatewayError: RESOURCE_EXHAUSTED if the tensor exceeds `allowance`.
    """
    lists, strings, count = scan_tensor(message, _FIELDS, what, allowance)
    number = lists.pop(DTYPE, _INVALID)[-1]
    dtype = number[0] if len(number) == 1 else read_varint(number, 0)[0]
    shape = _read_shape(lists.pop(SHAPE, []), what)
    content = lists.pop(CONTENT, _NO_CONTENT)[-1]
    datatype = DATATYPES.get(dtype)
    if datatype is None:
        raise _unknown_data_type(dtype, what)
    elements = prod(shape)
    # for BYTES, only the length prefixes count, because all other bytes of the tensor are in the message
    allowance.spend_tensor(elements * (datatype.size or _LENGTH.size), what)
    pieces = lists.pop(LISTS[datatype], ())
    if lists or (count and datatype is not BYTES):
        filled, own = _LIST_NAMES[next(iter(lists), _STRING)], _LIST_NAMES[LISTS[datatype]]
        raise DecodeError(f"{what}: {filled} is filled, but {DATA_TYPE_NAMES[dtype]} takes {own} or tensor_content")
    if content:
        if pieces or count:
            raise DecodeError(f"{what}: both tensor_content and {_LIST_NAMES[LISTS[datatype]]}; expected one of them")
        allowance.contents = True
        return Tensor(name, datatype, shape, _read_content(content, datatype, shape, what))
    if datatype is BYTES:
        return Tensor(name, datatype, shape, _fill_strings(strings, count, shape, what, allowance))
    if pieces:
        allowance.lists = True
    data, found = _read_list(pieces, datatype, what, elements)
    if found != elements:
        allowance.spend_filled((elements - found) * datatype.size, what)
        data = _fill(data, found, elements, datatype)
    return Tensor(name, datatype, shape, data)


def _unknown_data_type(dtype: int, what: str) -> DecodeError:
    given = DATA_TYPE_NAMES.get(dtype, f"data type {dtype}")
    expected = ", ".join(DATA_TYPE_NAMES[number] for number in DATATYPES)
    return DecodeError(f"{what}: {given} has no datatype here; expected one of {expected}")


def _read_shape(given: list[Buffer], what: str) -> Shape:
    """Return the shape in the occurrences of `tensor_shape`, which are merged as in protobuf.

    Without an occurrence, the tensor is a scalar."""
    if not given:
        return ()
    message = given[0] if len(given) == 1 else b"".join(given)
    try:
        return _read_short_dimensions(bytes(message)) if len(message) <= _SHORT else _read_dimensions(message)
    except DecodeError as error:
        raise DecodeError(f"{what}: {error}") from error


def _read_dimensions(message: Buffer) -> Shape:
    dimensions: list[int] = []
    for number, wire_type, _, value, end in fields(message):
        if number == _UNKNOWN_RANK and wire_type == VARINT:
            continue  # a tensor has a rank, so a shape without a `dim` is a scalar
        if number != _DIM or wire_type != LENGTH:
            continue
        if len(dimensions) == MAX_RANK:
            raise DecodeError(f"tensor_shape has more than {MAX_RANK} dimensions")
        dimensions.append(_read_size(message[value:end]))
    if prod(size or 1 for size in dimensions) > MAX_BYTES:
        raise DecodeError(f"tensor_shape {dimensions} spans more than 2^63 elements")
    return tuple(dimensions)


def _read_size(dim: Buffer) -> int:
    size = 0
    for number, wire_type, _, value, end in fields(dim):
        if number == _SIZE and wire_type == VARINT:
            [size] = read_int64s(dim[value:end])
    if size < 0:
        raise DecodeError(f"tensor_shape has a dimension of {size}; expected at least 0")
    return size


_read_short_dimensions = lru_cache(256)(_read_dimensions)
"""The cache saves 3 us for each tensor."""


def _read_list(pieces: "list[Buffer] | tuple[()]", datatype: Datatype, what: str, most: int) -> tuple[Buffer, int]:
    """Return the elements of a list in raw form, and their number. `most` is the maximum number."""
    number = LISTS[datatype]
    size = datatype.size if number in _SINGLE else 0
    for piece in pieces:
        check_piece(piece, size, f"{what}: {_LIST_NAMES[number]}")
    packed = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    found = len(packed) // size if size else count_integers(packed)
    if found > most:
        raise _too_many(found, number, most, what)
    if size or not found:
        return packed, found
    return read_integers(packed, _AS_BITS.get(datatype, datatype), found, f"{what}: {_LIST_NAMES[number]}"), found


def check_piece(packed: Buffer, size: int, what: str) -> None:
    """Raise DecodeError if a packed list ends inside an element, because the next piece would continue the element.
    `size` is the element size in bytes; 0 means varints."""
    if size and len(packed) % size:
        raise DecodeError(f"{what} has {len(packed)} bytes, no multiple of {size}")
    if not size and len(packed) and packed[-1] > 0x7F:
        raise DecodeError(f"{what}: the last number is cut short")


def _too_many(found: int, number: int, elements: int, what: str) -> DecodeError:
    return DecodeError(f"{what}: {found} elements in {_LIST_NAMES[number]}, but its shape has {elements}")


def _fill(data: Buffer, found: int, elements: int, datatype: Datatype) -> Buffer:
    """Return `data`, which contains `found` elements, filled up to `elements`. The last element is repeated, or zeros
    are added if `found` is 0."""
    size = datatype.size
    if not found:
        return bytes(elements * size)
    last = bytes(data[-size:])
    return b"".join((data, last * (elements - found)))


def _fill_strings(strings: bytearray, count: int, shape: Shape, what: str, allowance: TensorAllowance) -> Buffer:
    elements = prod(shape)
    if count > elements:
        raise _too_many(count, _STRING, elements, what)
    if count == elements:
        return strings
    last = _last_element(strings) if count else bytes(_LENGTH.size)
    missing = elements - count
    allowance.spend_filled(missing * len(last), what)
    allowance.spend_tensor(missing * (len(last) - _LENGTH.size), what)
    return b"".join((strings, last * missing))


def _last_element(strings: bytearray) -> bytes:
    """Return the last element in the raw form of BYTES, with its length prefix."""
    at = start = 0
    while at < len(strings):
        start = at
        at += _LENGTH.size + _LENGTH.unpack_from(strings, at)[0]
    return bytes(strings[start:])


def _read_content(content: Buffer, datatype: Datatype, shape: Shape, what: str) -> Buffer:
    """Return `tensor_content` in raw form."""
    elements = prod(shape)
    if datatype is BYTES:
        return _read_string_content(content, elements, what)
    expected = elements * datatype.size
    if len(content) != expected:
        raise DecodeError(
            f"{what}: {len(content)} bytes of tensor_content, but {datatype} of shape {list(shape)} takes {expected}"
        )
    if datatype is BOOL:
        octets = np.frombuffer(content, np.uint8)
        if octets.max() > 1:
            at = int(np.argmax(octets > 1))
            raise DecodeError(f"{what}: element {at} of tensor_content is the byte {octets[at]}, expected 0 or 1")
    return content


def _read_string_content(content: Buffer, elements: int, what: str) -> Buffer:
    """Return the strings in `tensor_content` in raw form. `tensor_content` contains the lengths as varints, and then
    the bytes."""
    octets, sizes, at = bytes(content), [], 0
    if elements > len(octets):
        raise DecodeError(f"{what}: tensor_content of {len(octets)} bytes cannot hold {elements} strings")
    for _ in range(elements):
        size, at = read_varint(octets, at)
        sizes.append(size)
    if at + sum(sizes) != len(octets):
        raise DecodeError(
            f"{what}: {len(octets) - at} bytes of strings in tensor_content, but their lengths are {sum(sizes)} in all"
        )
    raw = bytearray()
    for size in sizes:
        raw += _LENGTH.pack(size)
        raw += octets[at : at + size]
        at += size
    return raw


def parsed_size(message: Buffer) -> int:
    """Return the number of bytes of a TensorProto that must be parsed: all bytes except packed FP32 and FP64, and
    `tensor_content` with numbers. Counting stops above LARGE. Raise DecodeError if the TensorProto is malformed."""
    size = 0
    for number, wire_type, start, value, end in fields(message):
        if number == DTYPE and message[value:end] == _STRING_DTYPE:
            return len(message)  # each element is inspected
        is_copied = wire_type == LENGTH and (number == CONTENT or number in _SINGLE)
        size += FIELD_COST + (value if is_copied else end) - start + (end - value) // COPIED * is_copied
        if size > LARGE:
            break
    return size


FIELD_COST = 32
"""The cost of finding a field, as the number of bytes that can be parsed in the same time."""


# --- Writing ---

_STRING_DTYPE = bytes((DATA_TYPES[BYTES],))
_DTYPE_FIELDS = {datatype: bytes((_DTYPE_TAG, number)) for datatype, number in DATA_TYPES.items()}
_LIST_KEYS = {datatype: key(number) for datatype, number in LISTS.items()}
_CONTENT_KEY, _SHAPE_KEY, _NAME_KEY, _TENSOR_KEY, _DIM_KEY = map(key, (CONTENT, SHAPE, 1, 2, _DIM))
_SIZE_KEY = bytes((_SIZE << 3 | VARINT,))
_SHORT_STRINGS = [_LIST_KEYS[BYTES] + varint(size) for size in range(128)]
"""The key and the length of a BYTES element, by the element's size."""

DataField: TypeAlias = Callable[[Tensor], tuple[bytes, Buffer]]
"""The key and the value of the field with a tensor's elements. For BYTES, the key is empty and the value contains the
fields."""


def in_content(tensor: Tensor) -> tuple[bytes, Buffer]:
    """Return the elements as `tensor_content`, which clients write in requests. Strings are in `string_val`."""
    return (b"", _write_strings(tensor)) if tensor.datatype is BYTES else (_CONTENT_KEY, tensor.data)


def in_list(tensor: Tensor) -> tuple[bytes, Buffer]:
    """Return the elements as a list, which servers write in responses, because many clients read only `float_val`."""
    datatype = tensor.datatype
    if datatype is BYTES:
        return b"", _write_strings(tensor)
    if LISTS[datatype] in _SINGLE:
        return _LIST_KEYS[datatype], tensor.data
    return _LIST_KEYS[datatype], write_integers(tensor.data, _AS_BITS.get(datatype, datatype))


def write_entry(number: int, tensor: Tensor, field: DataField, role: str) -> tuple[Buffer, ...]:
    """Return an entry of a `map<string, TensorProto>` with the field number `number`, in parts.

    The data is not copied.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor has no name, or its name is not valid Unicode. The message contains
            `role`.
    """
    if not tensor.name:
        raise invalid_input(f"an {role} has no name; TensorFlow Serving's tensors have names")
    data_key, data = field(tensor)
    write = _write_short_head if len(tensor.name) <= _SHORT else _write_head
    try:
        head = write(number, tensor.name, tensor.datatype, tensor.shape, data_key, len(data))
    except UnicodeEncodeError as error:
        raise not_utf8(error, f"{role} {tensor.name!r}") from error
    return (head, data) if len(data) else (head,)


def _write_head(number: int, name: str, datatype: Datatype, shape: Shape, data_key: bytes, size: int) -> bytes:
    """Return the parts of an entry before the tensor's elements, which take `size` bytes."""
    dimensions = b"".join(map(_write_dimension, shape))
    head = _DTYPE_FIELDS[datatype] + _SHAPE_KEY + varint(len(dimensions)) + dimensions
    if size and data_key:
        head += data_key + varint(size)
    octets = name.encode()
    named = _NAME_KEY + varint(len(octets)) + octets + _TENSOR_KEY + varint(len(head) + size) + head
    return key(number) + varint(len(named) + size) + named


_write_short_head = lru_cache(256)(_write_head)
"""The cache works because clients send few distinct names, datatypes and shapes. It saves 3 us for each tensor."""


def _write_dimension(size: int) -> bytes:
    # proto3 does not write a `size` of 0, so a dimension of 0 is an empty message
    field = _SIZE_KEY + varint(size) if size else b""
    return _DIM_KEY + varint(len(field)) + field


def _write_strings(tensor: Tensor) -> bytes:
    """Return a field for each element."""
    written = bytearray()
    for element in chain.from_iterable(bytes_elements.pieces(tensor.data)):
        size = len(element)
        written += _SHORT_STRINGS[size] if size < len(_SHORT_STRINGS) else _LIST_KEYS[BYTES] + varint(size)
        written += element
    return bytes(written)
