"""The messages and methods of V2's gRPC service, `protos/v2/inference.proto`."""

from collections.abc import Mapping
from pathlib import Path

from gateway.core.operations import Operation
from gateway.core.types import Message
from gateway.protobuf.schema import Protobuf, ProtobufClass, Schema

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_SCHEMA = Schema(DESCRIPTORS)

METHODS = _SCHEMA.methods(SERVICE)
"""The paths of the service's methods."""


def path(method: str) -> str:
    """The path of a method by its name alone."""
    return f"/{SERVICE}/{method}"


MODEL_INFER = path("ModelInfer")
MODEL_STREAM_INFER = path("ModelStreamInfer")

ServerLiveRequest = _SCHEMA.message(f"{PACKAGE}.ServerLiveRequest")
ServerLiveResponse = _SCHEMA.message(f"{PACKAGE}.ServerLiveResponse")
ServerReadyRequest = _SCHEMA.message(f"{PACKAGE}.ServerReadyRequest")
ServerReadyResponse = _SCHEMA.message(f"{PACKAGE}.ServerReadyResponse")
ModelReadyRequest = _SCHEMA.message(f"{PACKAGE}.ModelReadyRequest")
ModelReadyResponse = _SCHEMA.message(f"{PACKAGE}.ModelReadyResponse")
ServerMetadataRequest = _SCHEMA.message(f"{PACKAGE}.ServerMetadataRequest")
ServerMetadataResponse = _SCHEMA.message(f"{PACKAGE}.ServerMetadataResponse")
ModelMetadataRequest = _SCHEMA.message(f"{PACKAGE}.ModelMetadataRequest")
ModelMetadataResponse = _SCHEMA.message(f"{PACKAGE}.ModelMetadataResponse")
ModelConfigRequest = _SCHEMA.message(f"{PACKAGE}.ModelConfigRequest")
ModelConfig = _SCHEMA.message(f"{PACKAGE}.ModelConfig")
ModelConfigResponse = _SCHEMA.message(f"{PACKAGE}.ModelConfigResponse")
RepositoryIndexRequest = _SCHEMA.message(f"{PACKAGE}.RepositoryIndexRequest")
RepositoryIndexResponse = _SCHEMA.message(f"{PACKAGE}.RepositoryIndexResponse")
ModelStatisticsRequest = _SCHEMA.message(f"{PACKAGE}.ModelStatisticsRequest")
ModelStatistics = _SCHEMA.message(f"{PACKAGE}.ModelStatistics")
ModelStatisticsResponse = _SCHEMA.message(f"{PACKAGE}.ModelStatisticsResponse")
RepositoryModelLoadRequest = _SCHEMA.message(f"{PACKAGE}.RepositoryModelLoadRequest")
RepositoryModelLoadResponse = _SCHEMA.message(f"{PACKAGE}.RepositoryModelLoadResponse")
RepositoryModelUnloadRequest = _SCHEMA.message(f"{PACKAGE}.RepositoryModelUnloadRequest")
RepositoryModelUnloadResponse = _SCHEMA.message(f"{PACKAGE}.RepositoryModelUnloadResponse")
TraceSettingRequest = _SCHEMA.message(f"{PACKAGE}.TraceSettingRequest")
TraceSettingResponse = _SCHEMA.message(f"{PACKAGE}.TraceSettingResponse")
LogSettingsRequest = _SCHEMA.message(f"{PACKAGE}.LogSettingsRequest")
LogSettingsResponse = _SCHEMA.message(f"{PACKAGE}.LogSettingsResponse")
ModelInferRequest = _SCHEMA.message(f"{PACKAGE}.ModelInferRequest")
InferInputTensor = _SCHEMA.message(f"{PACKAGE}.ModelInferRequest.InferInputTensor")
ModelInferResponse = _SCHEMA.message(f"{PACKAGE}.ModelInferResponse")
InferOutputTensor = _SCHEMA.message(f"{PACKAGE}.ModelInferResponse.InferOutputTensor")
ModelStreamInferResponse = _SCHEMA.message(f"{PACKAGE}.ModelStreamInferResponse")

REQUESTS: Mapping[Operation, tuple[str, ProtobufClass]] = {
    Operation.LIVE: (path("ServerLive"), ServerLiveRequest),
    Operation.READY: (path("ServerReady"), ServerReadyRequest),
    Operation.SERVER_METADATA: (path("ServerMetadata"), ServerMetadataRequest),
    Operation.MODELS: (path("RepositoryIndex"), RepositoryIndexRequest),
    Operation.MODEL_READY: (path("ModelReady"), ModelReadyRequest),
    Operation.METADATA: (path("ModelMetadata"), ModelMetadataRequest),
    Operation.CONFIG: (path("ModelConfig"), ModelConfigRequest),
    Operation.MODEL_STATISTICS: (path("ModelStatistics"), ModelStatisticsRequest),
    Operation.ALL_STATISTICS: (path("ModelStatistics"), ModelStatisticsRequest),
    Operation.LOAD: (path("RepositoryModelLoad"), RepositoryModelLoadRequest),
    Operation.UNLOAD: (path("RepositoryModelUnload"), RepositoryModelUnloadRequest),
    Operation.TRACE_SETTINGS: (path("TraceSetting"), TraceSettingRequest),
    Operation.LOG_SETTINGS: (path("LogSettings"), LogSettingsRequest),
    Operation.INFER: (MODEL_INFER, ModelInferRequest),
    Operation.STREAM: (MODEL_STREAM_INFER, ModelInferRequest),
}
"""The method of each operation, and the message of its request."""


def protobuf_reply(message: Protobuf) -> Message:
    """The reply that holds `message`."""
    return Message(parts=(message.SerializeToString(),))
