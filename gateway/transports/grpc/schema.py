"""The message types of gRPC's own services (health and reflection)."""

from pathlib import Path

from gateway.core.protobuf.schema import Schema

DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_SCHEMA = Schema(DESCRIPTORS)

HealthCheckRequest = _SCHEMA.message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _SCHEMA.message("grpc.health.v1.HealthCheckResponse")
HealthListResponse = _SCHEMA.message("grpc.health.v1.HealthListResponse")

# v1alpha messages have the same wire format.
ServerReflectionRequest = _SCHEMA.message("grpc.reflection.v1.ServerReflectionRequest")
ServerReflectionResponse = _SCHEMA.message("grpc.reflection.v1.ServerReflectionResponse")
