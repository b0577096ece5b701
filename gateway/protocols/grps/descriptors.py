"""The services of grps, and their schema for those that ask gRPC's reflection."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gateway.protobuf.schema import Schema

_DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

SERVICE = "grps.protos.v1.GrpsService"

METHODS = Schema(_DESCRIPTORS).methods(SERVICE)


def _of_grpc() -> bytes:
    """The schema without what is Apache brpc's, which gRPC does not serve."""
    [file] = [file for file in FileDescriptorSet.FromString(_DESCRIPTORS).file if file.name == "grps/grps.proto"]
    services = [service for service in file.service if f"{file.package}.{service.name}" == SERVICE]
    messages = [message for message in file.message_type if message.name != "EmptyGrpsMessage"]
    del file.service[:], file.message_type[:]
    file.service.extend(services)
    file.message_type.extend(messages)
    written: bytes = FileDescriptorSet(file=[file]).SerializeToString()
    return written


DESCRIPTORS = _of_grpc()
