"""Protobuf messages, made at import of the descriptor sets that `protos/generate.py` writes.

There are no generated modules, and each set has a pool of its own: tritonclient, KServe, MLServer, grpcio's health
checking and its reflection register messages of the same names in protobuf's default pool, which refuses a second one.
"""

from typing import Any, TypeAlias

from google.protobuf import message as protobuf
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.types import Buffer

ProtobufClass: TypeAlias = Any
"""A class that protobuf makes of a descriptor; no type checker knows its fields."""
Protobuf: TypeAlias = Any
"""A message of such a class."""


class Schema:
    """The messages and services of one FileDescriptorSet, given as its bytes."""

    def __init__(self, descriptors: bytes) -> None:
        self._pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptors).file:
            self._pool.Add(file)

    def message(self, name: str) -> ProtobufClass:
        """The class of the message with this full name."""
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def methods(self, service: str) -> tuple[str, ...]:
        """A service's methods as they stand in a path: `/package.Service/Method`."""
        return tuple(f"/{service}/{each.name}" for each in self._pool.FindServiceByName(service).methods)


def parse(kind: ProtobufClass, data: Buffer) -> Protobuf:
    """`data` as a message of `kind`. Raises DecodeError where it is none."""
    try:
        return kind.FromString(data)
    except protobuf.DecodeError as error:
        raise DecodeError(f"the body is no {kind.DESCRIPTOR.full_name} message: {error}") from error


def not_utf8(error: UnicodeEncodeError, what: str) -> GatewayError:
    """What to raise for a text that protobuf cannot write."""
    return invalid_input(f"{what}: {error.object!r} is not UTF-8, which protobuf's strings are")
