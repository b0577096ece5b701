"""Defines the messages and methods of V2's gRPC service (`protos/v2/inference.proto`) for all codecs of this folder."""

from collections.abc import Mapping
from pathlib import Path

from gateway.core.operations import Operation
from gateway.core.protobuf.schema import ProtobufClass, Schema

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()  # compiled from protos/v2 by `make generate`

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_SCHEMA = Schema(DESCRIPTORS)

METHODS = _SCHEMA.methods(SERVICE)
"""The paths of the service's methods."""


def method_path(method: str) -> str:
    """Return the path of the method with this name."""
    return f"/{SERVICE}/{method}"


MODEL_INFER = method_path("ModelInfer")
MODEL_STREAM_INFER = method_path("ModelStreamInfer")

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
InferRequestedOutputTensor = _SCHEMA.message(f"{PACKAGE}.ModelInferRequest.InferRequestedOutputTensor")
ModelInferResponse = _SCHEMA.message(f"{PACKAGE}.ModelInferResponse")
InferOutputTensor = _SCHEMA.message(f"{PACKAGE}.ModelInferResponse.InferOutputTensor")
ModelStreamInferResponse = _SCHEMA.message(f"{PACKAGE}.ModelStreamInferResponse")

REQUESTS: Mapping[Operation, tuple[str, ProtobufClass]] = {
    Operation.LIVE: (method_path("ServerLive"), ServerLiveRequest),
    Operation.READY: (method_path("ServerReady"), ServerReadyRequest),
    Operation.SERVER_METADATA: (method_path("ServerMetadata"), ServerMetadataRequest),
    Operation.MODELS: (method_path("RepositoryIndex"), RepositoryIndexRequest),
    Operation.MODEL_READY: (method_path("ModelReady"), ModelReadyRequest),
    Operation.METADATA: (method_path("ModelMetadata"), ModelMetadataRequest),
    Operation.CONFIG: (method_path("ModelConfig"), ModelConfigRequest),
    Operation.MODEL_STATISTICS: (method_path("ModelStatistics"), ModelStatisticsRequest),
    Operation.ALL_STATISTICS: (method_path("ModelStatistics"), ModelStatisticsRequest),
    Operation.LOAD: (method_path("RepositoryModelLoad"), RepositoryModelLoadRequest),
    Operation.UNLOAD: (method_path("RepositoryModelUnload"), RepositoryModelUnloadRequest),
    Operation.TRACE_SETTINGS: (method_path("TraceSetting"), TraceSettingRequest),
    Operation.LOG_SETTINGS: (method_path("LogSettings"), LogSettingsRequest),
    Operation.INFER: (MODEL_INFER, ModelInferRequest),
    Operation.STREAM: (MODEL_STREAM_INFER, ModelInferRequest),
}
"""A map from each operation to its method and the type of its request message."""
