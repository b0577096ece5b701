"""Functions that convert packed lists of integers (consecutive varints) to and from the raw format of tensors.

upb reads the lists one block at a time, because one call for a long list would block all other threads and take twice
the memory. upb also writes short lists. numpy writes long lists, because upb accepts only Python integers.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.core.protobuf.schema import Schema, parse
from gateway.core.protobuf.wire import key, read_tag, varint

Octets: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
Varints: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

_MAX_VARINT = 10
_BLOCK = 2**16
"""Number of bytes to read in one step. A write step handles a quarter as many numbers. The data of both steps fits in
the processor's cache."""

_SHORT = 500
"""Maximum length of a list that upb writes faster than numpy."""

_LISTS = {Kind.SIGNED: ("int64", 1), Kind.UNSIGNED: ("uint64", 2), Kind.BOOL: ("bool", 3)}
"""The name and number of the list field in `_Lists`, for each kind of integer.

The encoding is the same for all widths. The module reads all integers as 64-bit numbers to detect numbers that are too
large for a narrower type, because protobuf would drop their high bits."""


_KEYS = {number: key(number) for _, number in _LISTS.values()}


def _make_lists() -> Any:
    file = FileDescriptorProto(name="lists.proto", syntax="proto3")
    message = file.message_type.add(name="Lists")
    for name, number in _LISTS.values():
        kind = FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_REPEATED)
    return Schema(FileDescriptorSet(file=[file]).SerializeToString()).message("Lists")


_Lists = _make_lists()
"""A message class with a packed list for each kind of integer."""


_CONTINUED = bytes(range(0x80, 0x100))
"""All byte values that a varint can contain before its last byte."""


def count_integers(packed: Buffer) -> int:
    """Return the number of varints in `packed`."""
    if len(packed) <= _BLOCK:
        return len(bytes(packed).translate(None, _CONTINUED))
    return int(np.count_nonzero(np.frombuffer(packed, np.uint8) < 0x80))


def read_integers(packed: Buffer, datatype: Datatype, elements: int, what: str) -> Buffer:
    """Return the integers in `packed` in the raw format of `datatype`. `elements` is the number of integers
    (`count_integers`).

    Raises:
        DecodeError: a number is outside the datatype's range, has more than 10 bytes, or is truncated. The message
            contains `what`.
    """
    if len(packed) <= _BLOCK:
        return _read_block(packed, datatype, what).tobytes()
    octets = np.frombuffer(packed, np.uint8)
    raw = np.empty(elements, datatype.dtype)
    start = done = 0
    while start < len(octets):
        end = _end_of_block(octets, start, what)
        numbers = _read_block(octets[start:end].data, datatype, f"{what} (from element {done})" if done else what)
        raw[done : done + len(numbers)] = numbers
        start, done = end, done + len(numbers)
    return raw.view(np.uint8).data


def _end_of_block(octets: Octets, start: int, what: str) -> int:
    """Return the end of the last varint that ends within the block that begins at `start`."""
    block = octets[start : start + _BLOCK]
    ends = np.flatnonzero(block[-_MAX_VARINT:] < 0x80)
    if not len(ends):
        raise DecodeError(f"{what}: {_BROKEN}")
    return start + max(0, len(block) - _MAX_VARINT) + int(ends[-1]) + 1


_BROKEN = f"a number is cut short, or longer than {_MAX_VARINT} bytes"


def _read_block(packed: Buffer, datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    """Return the varints of one block as an array of the datatype."""
    octets = bytes(packed)
    if octets.isascii() and datatype is not Datatype.BOOL:  # every varint is one byte
        return np.frombuffer(octets, np.uint8).astype(datatype.dtype)
    name, number = _LISTS[datatype.kind]
    try:
        lists = parse(_Lists, b"".join((_KEYS[number], varint(len(octets)), octets)))
    except DecodeError as error:
        raise DecodeError(f"{what}: {_BROKEN}") from error
    numbers = getattr(lists, name)
    # lists have no __array__ before protobuf 7.34; without it, np.fromiter takes half as long as np.asarray
    is_array = hasattr(numbers, "__array__")
    array = np.asarray(numbers, name) if is_array else np.fromiter(numbers, name, len(numbers))
    return cast(array, datatype, what)


def write_integers(raw: Buffer, datatype: Datatype) -> Buffer:
    """Return the integers in `raw` (in the raw format of `datatype`) as packed varints. Each negative number takes ten
    bytes."""
    numbers = np.frombuffer(raw, datatype.dtype)
    if not len(numbers) or (numbers.max() < 0x80 and numbers.min() >= 0):
        return numbers.astype(np.uint8).data
    if len(numbers) <= _SHORT:
        field: bytes = _Lists(**{_LISTS[datatype.kind][0]: numbers.tolist()}).SerializeToString()
        return field[read_tag(field, 0)[1] :]
    return np.concatenate(list(_write_blocks(numbers))).data


def _write_blocks(numbers: "np.ndarray[Any, Any]") -> Iterator[Octets]:
    size = _BLOCK // 4
    for start in range(0, len(numbers), size):
        block = numbers[start : start + size]
        wide = np.int64 if block.dtype.kind == "i" else np.uint64
        yield _write_varints(block.astype(wide).view(np.uint64))


def _write_varints(numbers: Varints) -> Octets:
    """Return `numbers` as varints. The function uses a table with a column for each number and a row for each byte of a
    varint."""
    places = max(1, -(-int(numbers.max()).bit_length() // 7))
    octets = np.empty((places, len(numbers)), np.uint8)
    is_used = np.ones((places, len(numbers)), np.bool_)
    for place in range(places):
        if place:
            np.not_equal(numbers, 0, out=is_used[place])
        np.copyto(octets[place], numbers, casting="unsafe")
        numbers = numbers >> np.uint64(7)
    octets[:-1] = octets[:-1] & 0x7F | is_used[1:].view(np.uint8) << 7
    written: Octets = octets.T[is_used.T]
    return written
