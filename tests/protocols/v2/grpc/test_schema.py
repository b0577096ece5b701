import subprocess
import sys

IN_A_PROCESS_OF_ITS_OWN = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="grpc_service.proto", package="inference", syntax="proto3")
file.message_type.add(name="ModelInferRequest").field.add(name="other", number=1, type=5, label=1)
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
from gateway.protocols.v2.grpc import schema
assert schema.ModelInferRequest(model_name="m").SerializeToString() == bytes((10, 1)) + b"m"
"""


def test_messages_are_independent_of_protobufs_default_pool() -> None:
    """tritonclient, KServe and MLServer register an `inference.ModelInferRequest` each."""
    subprocess.run([sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN], check=True)
