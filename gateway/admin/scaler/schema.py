"""The messages of KEDA's external scaler."""

from pathlib import Path

from gateway.core.protobuf.schema import Schema

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

EXTERNAL_SCALER = "externalscaler.ExternalScaler"

_SCHEMA = Schema(DESCRIPTORS)

ScaledObjectRef = _SCHEMA.message("externalscaler.ScaledObjectRef")
IsActiveResponse = _SCHEMA.message("externalscaler.IsActiveResponse")
GetMetricSpecResponse = _SCHEMA.message("externalscaler.GetMetricSpecResponse")
GetMetricsRequest = _SCHEMA.message("externalscaler.GetMetricsRequest")
GetMetricsResponse = _SCHEMA.message("externalscaler.GetMetricsResponse")
