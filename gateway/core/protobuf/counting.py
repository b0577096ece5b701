"""Count the objects in a protobuf message before parsing it.

A message of two bytes can become an object of a hundred bytes, and JSON of a thousand bytes.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.core.protobuf.schema import ProtobufClass
from gateway.core.protobuf.wire import LENGTH, fields

_MESSAGE = 4
"""Minimum number of values that an embedded message counts as, in addition to its fields."""
_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


def check_values(kind: ProtobufClass, data: Buffer, most: int) -> None:
    """Raise DecodeError if `data`, a message of `kind`, contains more than `most` values (`limits.json_values`).
    Fields, including fields of embedded messages, and numbers count as values. A value takes at least one byte, so most
    messages are too short to require counting."""
    if len(data) > most:
        _count(kind.DESCRIPTOR, memoryview(data), most, most)


def _count(descriptor: Any, message: memoryview, left: int, most: int) -> int:
    """Return `left` minus the number of values in the message. Raises DecodeError if the message contains more values,
    or is malformed."""
    known = descriptor.fields_by_number
    for number, wire_type, _, value, end in fields(message):
        left -= 1
        field = known.get(number)
        if field is not None and wire_type == LENGTH:
            if field.message_type is not None:
                left = _count(field.message_type, message[value:end], left - _MESSAGE, most)
            elif field.type not in _TEXTS:  # packed numbers
                left -= end - value
        if left < 0:
            raise DecodeError(f"more than {most} values in a protobuf message; limits.json_values is the limit")
    return left
