"""The messages of V2's gRPC service, made at import of the descriptor set that `protos/generate.py` writes.

There is no generated module, and the pool is this module's own: tritonclient, KServe and MLServer each register an
`inference.ModelInferRequest` of their own in protobuf's default pool, which refuses a second one.
"""

from pathlib import Path
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

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"


def _fill() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    return pool


_POOL = _fill()


def _class(name: str) -> ProtobufClass:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


METHODS: tuple[str, ...] = tuple(f"/{SERVICE}/{each.name}" for each in _POOL.FindServiceByName(SERVICE).methods)
"""The service's methods as they stand in a path."""

ServerLiveRequest = _class("ServerLiveRequest")
ServerLiveResponse = _class("ServerLiveResponse")
ServerReadyRequest = _class("ServerReadyRequest")
ServerReadyResponse = _class("ServerReadyResponse")
ModelReadyRequest = _class("ModelReadyRequest")
ModelReadyResponse = _class("ModelReadyResponse")
ServerMetadataRequest = _class("ServerMetadataRequest")
ServerMetadataResponse = _class("ServerMetadataResponse")
ModelMetadataRequest = _class("ModelMetadataRequest")
ModelMetadataResponse = _class("ModelMetadataResponse")
ModelConfigRequest = _class("ModelConfigRequest")
ModelConfigResponse = _class("ModelConfigResponse")
RepositoryIndexRequest = _class("RepositoryIndexRequest")
RepositoryIndexResponse = _class("RepositoryIndexResponse")
ModelInferRequest = _class("ModelInferRequest")
InferInputTensor = _class("ModelInferRequest.InferInputTensor")
ModelInferResponse = _class("ModelInferResponse")
InferOutputTensor = _class("ModelInferResponse.InferOutputTensor")
ModelStreamInferResponse = _class("ModelStreamInferResponse")


def parse(kind: ProtobufClass, data: Buffer) -> Protobuf:
    """`data` as a message of `kind`. Raises DecodeError where it is none."""
    try:
        return kind.FromString(data)
    except protobuf.DecodeError as error:
        raise DecodeError(f"the body is no {kind.DESCRIPTOR.full_name} message: {error}") from error


def not_utf8(error: UnicodeEncodeError, what: str) -> GatewayError:
    """What to raise for a text that protobuf cannot write."""
    return invalid_input(f"{what}: {error.object!r} is not UTF-8, which protobuf's strings are")
