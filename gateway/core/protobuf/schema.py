"""Message classes that are made at import, from the descriptor sets that `protos/generate.py` writes.

Each set has its own descriptor pool. In the default pool of protobuf, messages of the same name in tritonclient,
KServe, MLServer, and grpcio's health checking and reflection would clash with them.
"""

from typing import Any, TypeAlias

from google.protobuf import message as protobuf
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.messages import Buffer

ProtobufClass: TypeAlias = Any
"""A message class made from a descriptor. Type checkers do not know its fields."""
Protobuf: TypeAlias = Any
"""A message of a ProtobufClass."""


class Schema:
    """The messages and services of one serialized FileDescriptorSet."""

    def __init__(self, descriptors: bytes) -> None:
        self._pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptors).file:
            self._pool.Add(file)

    def message(self, name: str) -> ProtobufClass:
        """Return the class for the message with this full name (`package.Message`)."""
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
