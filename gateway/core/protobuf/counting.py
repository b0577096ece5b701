"""How many objects a protobuf message becomes, counted before it is parsed: a message of two bytes is an object of a
hundred, and a thousand once it is JSON."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from gateway.core.errors import DecodeError
from gateway.core.protobuf.schema import ProtobufClass
from gateway.core.protobuf.wire import LENGTH, fields
from gateway.core.types import Buffer

_MESSAGE = 4
"""The values that a message in another one stands for at least, beside its fields."""
_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


def check_values(kind: ProtobufClass, data: Buffer, most: int) -> None:
    """Raises DecodeError if `data`, a message of `kind`, has more than `most` values (`limits.json_values`): fields,
    those of messages in it included, and numbers. A value takes a byte at least, so most messages are not looked at."""
    if len(data) > most:
        _count(kind.DESCRIPTOR, memoryview(data), most, most)


def _count(descriptor: Any, message: memoryview, left: int, most: int) -> int:
    """How many of `left` values remain. Raises DecodeError if there are more, or the message is malformed."""
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
