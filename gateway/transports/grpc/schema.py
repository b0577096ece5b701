"""The messages of gRPC's own services, made at import of the descriptor set that `protos/generate.py` writes.

There is no generated module, and the pool is this module's own: those of grpcio-health-checking and grpcio-reflection
register the same names in protobuf's default pool, which refuses a second one.
"""

from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

ProtobufClass: TypeAlias = Any
"""A class that protobuf makes of a descriptor; no type checker knows its fields."""
Protobuf: TypeAlias = Any
"""A message of such a class."""

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def _fill() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    return pool


_POOL = _fill()


def _class(name: str) -> ProtobufClass:
    return GetMessageClass(_POOL.FindMessageTypeByName(name))


HealthCheckRequest = _class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _class("grpc.health.v1.HealthCheckResponse")
HealthListRequest = _class("grpc.health.v1.HealthListRequest")
HealthListResponse = _class("grpc.health.v1.HealthListResponse")

# Those of v1alpha are the same on the wire.
ServerReflectionRequest = _class("grpc.reflection.v1.ServerReflectionRequest")
ServerReflectionResponse = _class("grpc.reflection.v1.ServerReflectionResponse")
