"""Protobuf messages for the checks, from Google's protobuf package and descriptors compiled by protoc. The checks do
not use the gateway's own encoders for frequent messages."""

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

V2 = "protocols/v2/grpc/descriptors.binpb"
GRPS = "protocols/grps/descriptors.binpb"
TENSORFLOW = "protocols/tensorflow_serving/descriptors.binpb"
GRPC = "transports/grpc/descriptors.binpb"


@cache
def message(path: str, name: str) -> Any:
    """Return the class of the message with this full name, from a descriptor file in the package."""
    return message_factory.GetMessageClass(_pool(path).FindMessageTypeByName(name))


@cache
def _pool(path: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in FileDescriptorSet.FromString(files("gateway").joinpath(path).read_bytes()).file:
        pool.Add(each)
    return pool
