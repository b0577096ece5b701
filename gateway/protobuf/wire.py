"""Protobuf's wire format, as far as tensor data must be found, or left, where it lies: upb would copy it twice.

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
    """Where one field lies in its message: the key at `start`, the value from `value` to `end`."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def fields(message: Buffer) -> Iterator[Field]:
    """The fields of `message`, in order.

    Raises:
        DecodeError: not a series of fields. Groups count as such: no version 3 schema has them.
    """
    at, end = 0, len(message)
    while at < end:
        field = read_field(message, at)
        yield field
        at = field.end


def read_field(message: Buffer, start: int) -> Field:
    """The field at `start`. Raises DecodeError where there is no whole one."""
    # nearly all keys are one byte
    key, at = (octet, start + 1) if (octet := message[start]) < 0x80 else read_varint(message, start)
    wire_type = key & 7
    if wire_type == LENGTH:
        # and nearly all lengths
        short = at < len(message) and (octet := message[at]) < 0x80
        size, value = (octet, at + 1) if short else read_varint(message, at)
        end = value + size
    else:
        value, end = at, _end(message, wire_type, at)
    if end > len(message) or not 8 <= key < _END_OF_KEYS:
        raise DecodeError(f"a protobuf message has no whole field at byte {start} of {len(message)}")
    # as Field(...) makes it, which takes as long as all of the above
    return tuple.__new__(Field, (key >> 3, wire_type, start, value, end))


def _end(message: Buffer, wire_type: int, at: int) -> int:
    """Where the number at `at` ends."""
    if wire_type == VARINT:
        return read_varint(message, at)[1]
    if wire_type in _FIXED:
        return at + _FIXED[wire_type]
    raise DecodeError(f"a protobuf message has wire type {wire_type} at byte {at}")


def read_varint(message: Buffer, at: int) -> tuple[int, int]:
    """The varint at `at`, and where it ends. Raises DecodeError for one that is cut short or longer than 10 bytes."""
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
    # nearly all are one byte
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
    """What precedes the length of the field `number` of bytes."""
    return varint(number << 3 | LENGTH)


class Allowance:
    """How many bytes a message may still hold outside tensor data. upb makes up to 40 bytes of one (an empty tensor is
    two on the wire), and each field costs time here: both are bounded by this."""

    BYTES = 2 * 2**20
    """Twice the largest `config`, the only parameter that is meant to be long."""
    _PER_FIELD = 32

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = self.BYTES

    def spend(self, size: int) -> None:
        """Take a field of `size` bytes away. Raises DecodeError where too little is left."""
        self._left -= size + self._PER_FIELD
        if self._left < 0:
            raise DecodeError(f"more than {self.BYTES} bytes, or too many fields, outside tensor data")


def cut(
    message: memoryview, numbers: Container[int], allowance: Allowance
) -> tuple[bytearray, list[tuple[int, memoryview]]]:
    """What is left of `message` without its byte fields `numbers`; and those, in order, each as its number and a view.

    Raises:
        DecodeError: not a series of fields, or more of what is left than `allowance`.
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
