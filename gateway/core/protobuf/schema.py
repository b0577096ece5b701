"""Message classes that are created at import from the descriptor sets that `protos/generate.py` writes.

Each set has its own descriptor pool. In protobuf's default pool, the messages would conflict with messages of the same
name in tritonclient, KServe, MLServer, and grpcio's health checking and reflection.
"""

from typing import Any, TypeAlias

from google.protobuf import message as protobuf
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.messages import Buffer, Message
from gateway.core.protobuf.wire import LENGTH, fields

ProtobufClass: TypeAlias = Any
"""A message class created from a descriptor. Type checkers cannot see its fields."""
Protobuf: TypeAlias = Any
"""A message of a ProtobufClass."""


class Schema:
    """The messages and services of one serialized FileDescriptorSet."""

    def __init__(self, descriptors: bytes) -> None:
        self._pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptors).file:
            self._pool.Add(file)

    def message(self, name: str) -> ProtobufClass:
        """Return the class of the message with this full name (`package.Message`)."""
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def methods(self, service: str) -> tuple[str, ...]:
        """Return the paths of a service's methods (`/package.Service/Method`)."""
        return tuple(f"/{service}/{each.name}" for each in self._pool.FindServiceByName(service).methods)


def parse(kind: ProtobufClass, data: Buffer) -> Protobuf:
    """Return `data` parsed as a message of `kind`. Raises DecodeError if it is malformed."""
    try:
        return kind.FromString(data)
    except protobuf.DecodeError as error:
        raise DecodeError(f"the body is no {kind.DESCRIPTOR.full_name} message: {error}") from error


def not_utf8(error: UnicodeEncodeError, what: str) -> GatewayError:
    """Return the error for a string that protobuf cannot encode because it is not valid Unicode."""
    return invalid_input(f"{what}: {error.object!r} is not UTF-8, which protobuf's strings are")


def protobuf_reply(message: Protobuf) -> Message:
    """Return a response with `message` as its body."""
    return Message(parts=(message.SerializeToString(),))


# --- The number of values in a message, counted before it is parsed ---

# A message of two bytes can become an object of a hundred bytes, and JSON of a thousand bytes.

_MESSAGE = 4
"""Number of values that an embedded message counts as, in addition to its fields."""
_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


def check_values(kind: ProtobufClass, data: Buffer, most: int) -> None:
    """Raise DecodeError if `data`, a message of `kind`, contains more than `most` values (`limits.json_values`).

    Each field, including fields of embedded messages, counts as one value. Each embedded message counts as four more
    values, and each byte of packed numbers counts as one more. The values in messages of at most `most` bytes are not
    counted."""
    if len(data) > most:
        _count(kind.DESCRIPTOR, memoryview(data), most, most)


def _count(descriptor: Any, message: memoryview, left: int, most: int) -> int:
    """Return `left` minus the number of values in the message. Raises DecodeError if the message contains more than
    `left` values, or is malformed."""
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
