"""Protobuf's wire format: finds the fields of a message without copying them, and writes keys and varints.

"A message is a series of key-value pairs"; the key holds the field's number and its wire type.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer

VARINT, I64, LENGTH, I32 = 0, 1, 2, 5
_FIXED = {I64: 8, I32: 4}
_MAX_VARINT = 10
_END_OF_KEYS = 2**32  # field numbers have 29 bits


class Field(NamedTuple):
    """The place of one field in its message: its key begins at `start`, its value goes from `value` to `end`."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def fields(message: Buffer) -> Iterator[Field]:
    """The fields of `message`, in order.

    Raises:
        DecodeError: a malformed field, or a group, which no version 3 schema has.
    """
    at, end = 0, len(message)
    while at < end:
        field = read_field(message, at)
        yield field
        at = field.end


def read_field(message: Buffer, start: int) -> Field:
    """The field at `start`. Raises DecodeError if it is malformed or cut short."""
    # fast path: nearly all keys are one byte
    key, at = (octet, start + 1) if (octet := message[start]) < 0x80 else read_varint(message, start)
    wire_type = key & 7
    if wire_type == LENGTH:
        # and so are nearly all lengths
        short = at < len(message) and (octet := message[at]) < 0x80
        size, value = (octet, at + 1) if short else read_varint(message, at)
        end = value + size
    else:
        value, end = at, _end(message, wire_type, at)
    if end > len(message) or not 8 <= key < _END_OF_KEYS:
        raise DecodeError(f"a protobuf message has no whole field at byte {start} of {len(message)}")
    # the same as Field(...), which would take as long as all of the above
    return tuple.__new__(Field, (key >> 3, wire_type, start, value, end))


def _end(message: Buffer, wire_type: int, at: int) -> int:
    """The end of the number at `at`."""
    if wire_type == VARINT:
        return read_varint(message, at)[1]
    if wire_type in _FIXED:
        return at + _FIXED[wire_type]
    raise DecodeError(f"a protobuf message has wire type {wire_type} at byte {at}")


def read_varint(message: Buffer, at: int) -> tuple[int, int]:
    """The varint at `at` and its end. Raises DecodeError if it is cut short or longer than 10 bytes."""
    if at < len(message) and message[at] < 0x80:
        return message[at], at + 1
    number = shift = 0
    for place in range(at, min(at + _MAX_VARINT, len(message))):
        octet = message[place]
        if octet < 0x80:
            return number | octet << shift, place + 1
        number |= (octet & 0x7F) << shift
        shift += 7
    raise DecodeError(f"a protobuf message has no whole number at byte {at}")


def varint(number: int) -> bytes:
    """`number`, at least 0, as a varint."""
    # fast path: nearly all are one byte
    if number <= 0x7F:
        return _SHORT[number]
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


_SHORT = [bytes((number,)) for number in range(0x80)]


def key(number: int) -> bytes:
    """The key of the length-delimited field `number`."""
    return varint(number << 3 | LENGTH)


class Allowance:
    """How many bytes a message may still have outside tensor data.

    It bounds memory and time: upb makes up to 40 bytes of one (an empty tensor takes two bytes on the wire), and each
    field costs time here.
    """

    BYTES = 2 * 2**20
    """Twice the default of `limits.config`: a `config` is the only parameter that is meant to be long."""
    _PER_FIELD = 32

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = self.BYTES

    def spend(self, size: int) -> None:
        """Subtract a field of `size` bytes. Raises DecodeError if too little is left."""
        self._left -= size + self._PER_FIELD
        if self._left < 0:
            raise DecodeError(f"more than {self.BYTES} bytes, or too many fields, outside tensor data")


def cut(
    message: memoryview, numbers: Container[int], allowance: Allowance
) -> tuple[bytearray, list[tuple[int, memoryview]]]:
    """Cut the length-delimited fields with these `numbers` out of `message`.

    Returns the message without them, and the fields in order: number and a view of the bytes of each.

    Raises:
        DecodeError: malformed, or the rest is more than `allowance`.
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
