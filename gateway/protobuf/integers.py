"""Lists of integers as protobuf packs them, varints one behind the other, from and to the raw form. A block at a time,
all of its numbers at once: upb makes a Python object of each, and takes four times as long."""

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.types import Buffer
from gateway.protobuf.wire import read_varint, varint

Octets: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
Varints: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"

_MAX_VARINT = 10
_MAX_UINT64 = 2**64 - 1
_BLOCK = 2**16
"""Bytes that are read, and a quarter of it the numbers that are written, at once: what they become on the way, 30 times
as much, stays in the processor's cache."""

_FEW = 16
"""Numbers. Up to here one at a time is faster."""

_FORMATS = {
    Datatype.INT8: "b",
    Datatype.INT16: "h",
    Datatype.INT32: "i",
    Datatype.INT64: "q",
    Datatype.UINT8: "B",
    Datatype.UINT16: "H",
    Datatype.UINT32: "I",
    Datatype.UINT64: "Q",
}
"""`struct`'s."""


def _uint64(number: int) -> np.uint64:
    return np.uint64(number)


_HELD = np.array([0, *((1 << 8 * min(length, 8)) - 1 for length in range(1, _MAX_VARINT + 1))], np.uint64)
_HELD &= _uint64(0x7F7F7F7F7F7F7F7F)
"""The bits of a number within the eight bytes from its start, by how many bytes it has."""


def count_integers(packed: Buffer) -> int:
    """How many varints end in `packed`."""
    return int(np.count_nonzero(np.frombuffer(packed, np.uint8) < 0x80))


def read_integers(packed: Buffer, datatype: Datatype, elements: int, what: str) -> Buffer:
    """The varints of `packed`, of which there are `elements` (`count_integers`), in the raw form of `datatype`.

    Raises:
        DecodeError: a number out of the datatype's range, one of more than 10 bytes, or one that is cut short.
    """
    few = _read_few(packed, datatype) if elements <= _FEW and datatype in _FORMATS else None
    if few is not None:
        return few
    octets = np.frombuffer(packed, np.uint8)
    raw = np.empty(elements, datatype.dtype)
    start = done = 0
    while start < len(octets):
        end = _end_of_block(octets, start, what)
        numbers = _read_block(octets[start:end], datatype, f"{what} (from element {done})" if done else what)
        raw[done : done + len(numbers)] = numbers
        start, done = end, done + len(numbers)
    return raw.view(np.uint8).data


def _read_few(packed: Buffer, datatype: Datatype) -> bytes | None:
    """As read_integers; None where that has something to refuse."""
    numbers, at = [], 0
    try:
        while at < len(packed):
            number, at = read_varint(packed, at)
            numbers.append(number & _MAX_UINT64)
        if datatype.kind is Kind.SIGNED:
            numbers = [number - 2**64 if number >> 63 else number for number in numbers]
        return struct.pack(f"<{len(numbers)}{_FORMATS[datatype]}", *numbers)
    except (DecodeError, struct.error):
        return None


def _end_of_block(octets: Octets, start: int, what: str) -> int:
    """Behind the last varint that ends within a block of `start`."""
    block = octets[start : start + _BLOCK]
    ends = np.flatnonzero(block[-_MAX_VARINT:] < 0x80)
    if not len(ends):
        raise DecodeError(f"{what}: a number is cut short, or longer than {_MAX_VARINT} bytes")
    return start + max(0, len(block) - _MAX_VARINT) + int(ends[-1]) + 1


def _read_block(octets: Octets, datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    """The varints that `octets` is made of; the last one is whole."""
    if octets.max() < 0x80 and datatype is not Datatype.BOOL:
        return octets
    return _cast(_read_varints(octets, what), datatype, what)


def _read_varints(octets: Octets, what: str) -> Varints:
    ends = np.flatnonzero(octets < 0x80)
    lengths = np.diff(ends, prepend=-1)
    longest = int(lengths.max())
    if longest > _MAX_VARINT:
        raise DecodeError(f"{what}: a number of {longest} bytes; a varint has at most {_MAX_VARINT}")
    starts = ends - lengths + 1
    padded = np.concatenate((octets, np.zeros(_MAX_VARINT, np.uint8)))
    words: Varints = np.ndarray((len(octets),), "<u8", padded, strides=(1,))[starts]
    return _with_tails(_close_up(words & _HELD[lengths], longest), padded, starts, lengths)


def _close_up(septets: Varints, longest: int) -> Varints:
    """Eight groups of seven bits in bytes of their own, made one number: pairs, pairs of pairs, and both halves."""
    numbers = septets & _uint64(0x007F007F007F007F) | (septets & _uint64(0x7F007F007F007F00)) >> _uint64(1)
    if longest > 2:
        numbers = numbers & _uint64(0x00003FFF00003FFF) | (numbers & _uint64(0x3FFF00003FFF0000)) >> _uint64(2)
    if longest > 4:
        numbers = numbers & _uint64(0x000000000FFFFFFF) | (numbers & _uint64(0x0FFFFFFF00000000)) >> _uint64(4)
    return numbers


def _with_tails(
    numbers: Varints, octets: Octets, starts: "np.ndarray[Any, Any]", lengths: "np.ndarray[Any, Any]"
) -> Varints:
    """`numbers` with the bits of their ninth and tenth bytes. Of the tenth one bit counts."""
    for place in (8, 9):
        longer = np.flatnonzero(lengths > place)
        septets = (octets[starts[longer] + place] & np.uint8(0x7F)).astype(np.uint64)
        numbers[longer] |= septets << _uint64(7 * place)
    return numbers


def _cast(numbers: Varints, datatype: Datatype, what: str) -> "np.ndarray[Any, Any]":
    if datatype is Datatype.BOOL:
        flags: np.ndarray[Any, Any] = numbers != 0
        return flags
    # a negative number is the varint of its two's complement in 64 bits; Triton wraps what does not fit
    return cast(numbers.view(np.int64) if datatype.kind is Kind.SIGNED else numbers, datatype, what)


def write_integers(raw: Buffer, datatype: Datatype) -> Buffer:
    """The raw form of an integer `datatype` as packed varints; negative numbers have ten bytes."""
    numbers = np.frombuffer(raw, datatype.dtype)
    if not len(numbers) or (numbers.max() < 0x80 and numbers.min() >= 0):
        return numbers.astype(np.uint8).data
    if len(numbers) <= _FEW:
        return b"".join(varint(number & _MAX_UINT64) for number in numbers.tolist())
    return np.concatenate(list(_write_blocks(numbers))).data


def _write_blocks(numbers: "np.ndarray[Any, Any]") -> Iterator[Octets]:
    size = _BLOCK // 4
    for start in range(0, len(numbers), size):
        block = numbers[start : start + size]
        wide = np.int64 if block.dtype.kind == "i" else np.uint64
        yield _write_varints(block.astype(wide).view(np.uint64))


def _write_varints(numbers: Varints) -> Octets:
    """A row for each place in a varint and a column for each number; what is read of it is column by column."""
    places = max(1, -(-int(numbers.max()).bit_length() // 7))
    octets = np.empty((places, len(numbers)), np.uint8)
    held = np.ones((places, len(numbers)), np.bool_)
    for place in range(places):
        if place:
            np.not_equal(numbers, 0, out=held[place])
        np.copyto(octets[place], numbers, casting="unsafe")
        numbers = numbers >> _uint64(7)
    octets[:-1] = octets[:-1] & 0x7F | held[1:].view(np.uint8) << 7
    written: Octets = octets.T[held.T]
    return written
