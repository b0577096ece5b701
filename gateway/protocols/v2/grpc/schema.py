"""The messages of V2's gRPC service."""

from pathlib import Path

from gateway.protobuf.schema import Schema

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_SCHEMA = Schema(DESCRIPTORS)

METHODS = _SCHEMA.methods(SERVICE)

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
