"""`grps.proto` and brpc's `baidu_std.proto`, compiled into `descriptors.binpb` (see `protos/generate.py`)."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gateway.core.protobuf.schema import Schema

_DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()
_SCHEMA = Schema(_DESCRIPTORS)

GRPC_SERVICE = "grps.protos.v1.GrpsService"
GRPC_METHODS = _SCHEMA.methods(GRPC_SERVICE)
"""The path of each method's calls, such as `/grps.protos.v1.GrpsService/Predict`."""

RpcMeta = _SCHEMA.message("brpc.policy.RpcMeta")
"""The meta of baidu_std frames."""


def _of_grpc() -> bytes:
    """Return the FileDescriptorSet without the parts that only Apache brpc serves."""
    [file] = [file for file in FileDescriptorSet.FromString(_DESCRIPTORS).file if file.name == "grps/grps.proto"]
    services = [service for service in file.service if f"{file.package}.{service.name}" == GRPC_SERVICE]
    messages = [message for message in file.message_type if message.name != "EmptyGrpsMessage"]
    del file.service[:], file.message_type[:]
    file.service.extend(services)
    file.message_type.extend(messages)
    written: bytes = FileDescriptorSet(file=[file]).SerializeToString()
    return written


GRPC_DESCRIPTORS = _of_grpc()
"""The descriptors that gRPC reflection sends to clients."""
