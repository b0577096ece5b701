"""The protobuf wire format. This module finds the fields of a message without copying them, and writes keys and
varints.

"A message is a series of key-value pairs". The key contains the field's number and its wire type.
"""

from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer

VARINT, I64, LENGTH, I32 = 0, 1, 2, 5
_FIXED = {I64: 8, I32: 4}
_MOST_SHIFTED = 63  # the last bit of a varint's tenth byte
_END_OF_TAGS = 2**32  # field numbers have 29 bits


class Field(NamedTuple):
    """The position of one field in its message. Its key begins at `start`, and its value is between `value` and
    `end`."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def fields(message: Buffer) -> Iterator[Field]:
    """Yield the fields of `message`, in order.

    Raises:
        DecodeError: a field is malformed, or is a group, which proto3 schemas do not have.
    """
    at, end = 0, len(message)
    try:
        while at < end:
            tag, size, value = message[at], message[at + 1], at + 2
            stop = value + size
            if size > 0x7F or tag & 0x87 != LENGTH or tag < 8:  # most fields have at most 127 bytes
                tag, value, stop = read_tag(message, at)
            if stop > end:
                raise cut_short(message, at)
            # same as Field(...), which would take as long as all of the lines above
            yield tuple.__new__(Field, (tag >> 3, tag & 7, at, value, stop))
            at = stop
    except IndexError as error:
        read_varint(message, at)  # raises a more precise error if the tag itself is truncated
        raise cut_short(message, at) from error


def read_tag(message: Buffer, at: int) -> tuple[int, int, int]:
    """Return the tag (number and wire type) of the field at `at`, and the start and end of its value. The end can be
    beyond the end of `message`.

    Raises:
        DecodeError: the field is malformed, or is a group.
        IndexError: the field is truncated.
    """
    start = at
    tag, at = (octet, at + 1) if (octet := message[at]) < 0x80 else read_varint(message, at)
    wire_type = tag & 7
    if not 8 <= tag < _END_OF_TAGS:
        raise cut_short(message, start)
    if wire_type == LENGTH:
        if (octet := message[at]) < 0x80:
            size, at = octet, at + 1
        elif (following := message[at + 1]) < 0x80:
            size, at = octet & 0x7F | following << 7, at + 2
        else:
            size, at = read_varint(message, at)
        return tag, at, at + size
    if wire_type == VARINT:
        return tag, at, read_varint(message, at)[1]
    if wire_type in _FIXED:
        return tag, at, at + _FIXED[wire_type]
    raise DecodeError(f"a protobuf message has wire type {wire_type} at byte {at}")


def cut_short(message: Buffer, at: int) -> DecodeError:
    """Return the error for a message that ends within the field at `at`."""
    return DecodeError(f"a protobuf message has no whole field at byte {at} of {len(message)}")


def read_varint(message: Buffer, at: int) -> tuple[int, int]:
    """Return the value of the varint at `at`, and the position after the varint. Raises DecodeError if the varint is
    truncated or longer than 10 bytes."""
    number, shift, place = 0, 0, at
    try:
        while (octet := message[place]) > 0x7F and shift < _MOST_SHIFTED:
            number |= (octet & 0x7F) << shift
            shift += 7
            place += 1
    except IndexError:
        octet = 0xFF
    if octet > 0x7F:
        raise DecodeError(f"a protobuf message has no whole number at byte {at}")
    return number | octet << shift, place + 1


def read_uint64s(packed: Buffer) -> Sequence[int]:
    """Return the varints in `packed` as unsigned 64-bit numbers. Raises DecodeError if the last varint is truncated."""
    octets = bytes(packed)
    if octets.isascii():  # every number is one byte, as is common for tensor dimensions
        return octets
    numbers, at = [], 0
    while at < len(octets):
        number, at = read_varint(octets, at)
        numbers.append(number)
    return numbers


def read_int64s(packed: Buffer) -> Sequence[int]:
    """Return the varints in `packed` as signed 64-bit numbers."""
    octets = bytes(packed)
    if octets.isascii():
        return octets
    return [(number + 2**63) % 2**64 - 2**63 for number in read_uint64s(octets)]


@lru_cache(1024)
def varint(number: int) -> bytes:
    """Return `number`, which must not be negative, as a varint.

    For numbers above 127, which include the sizes of most tensors, the cache saves 0.3 us."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def key(number: int) -> bytes:
    """Return the key of the length-delimited field `number`."""
    return varint(number << 3 | LENGTH)


class Allowance:
    """The remaining number of bytes that a message can have outside tensor data.

    The allowance limits memory and time. upb allocates up to 40 bytes for one byte (an encoded empty tensor takes two
    bytes), and this module needs time for each field."""

    BYTES = 2 * 2**20
    """The initial number of bytes. The limit is twice the default of `limits.config`, because only the parameter
    `config` is meant to be long."""
    PER_FIELD = 32
    ALWAYS = 2 * (BYTES // (PER_FIELD + 2))
    """Size in bytes up to which every message is within the allowance, because a field takes at least two bytes."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = self.BYTES

    def spend(self, size: int) -> None:
        """Subtract `size` bytes for a field. Raises DecodeError if the allowance is exhausted."""
        self.left -= size + self.PER_FIELD
        if self.left < 0:
            raise self.spent()

    def spent(self) -> DecodeError:
        """Return the error for a message that exceeds the allowance."""
        return DecodeError(f"more than {self.BYTES} bytes, or too many fields, outside tensor data")


def cut(
    message: memoryview, numbers: Container[int], allowance: Allowance
) -> tuple[bytearray, list[tuple[int, memoryview]]]:
    """Cut the length-delimited fields with these `numbers` out of `message`.

    Return the rest of the message, and the fields in order. Each field consists of its number and a view of its value.

    Raises:
        DecodeError: the message is malformed, or the rest exceeds `allowance`.
    """
    rest, taken = bytearray(), []
    for number, wire_type, start, value, end in fields(message):
        if number in numbers and wire_type == LENGTH:
            allowance.spend(value - start)
            taken.append((number, message[value:end]))
        else:
            allowance.spend(end - start)
            rest += message[start:end]
    return rest, taken
