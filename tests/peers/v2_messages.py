"""The messages of V2 gRPC with the repository extension that the fleet's servers need, as tables of `protobuf.py`.

Field numbers are those of Triton's `grpc_service.proto`. Independent of the gateway.
"""

from __future__ import annotations

from tests.peers.protobuf import Field, Schema

SERVICE = "inference.GRPCInferenceService"

EMPTY: Schema = {}
CONTENTS = {7: Field("fp64_contents", "double", repeated=True), 8: Field("bytes_contents", "bytes", repeated=True)}
METADATA_TENSOR = {
    1: Field("name", "string"),
    2: Field("datatype", "string"),
    3: Field("shape", "int64", repeated=True),
}
TENSOR = {**METADATA_TENSOR, 5: Field("contents", schema=CONTENTS)}
MODEL = {1: Field("name", "string"), 2: Field("version", "string")}
CONTROL = {1: Field("repository_name", "string"), 2: Field("model_name", "string")}
INFERENCE = {1: Field("model_name", "string"), 2: Field("model_version", "string"), 3: Field("id", "string")}
INDEXED = {
    1: Field("name", "string"),
    2: Field("version", "string"),
    3: Field("state", "string"),
    4: Field("reason", "string"),
}

METHODS: dict[str, tuple[Schema, Schema]] = {
    "ServerLive": (EMPTY, {1: Field("live", "bool")}),
    "ServerReady": (EMPTY, {1: Field("ready", "bool")}),
    "ModelReady": (MODEL, {1: Field("ready", "bool")}),
    "ServerMetadata": (
        EMPTY,
        {1: Field("name", "string"), 2: Field("version", "string"), 3: Field("extensions", "string", repeated=True)},
    ),
    "ModelMetadata": (
        MODEL,
        {
            1: Field("name", "string"),
            2: Field("versions", "string", repeated=True),
            3: Field("platform", "string"),
            4: Field("inputs", schema=METADATA_TENSOR, repeated=True),
            5: Field("outputs", schema=METADATA_TENSOR, repeated=True),
        },
    ),
    "ModelInfer": (
        {
            **INFERENCE,
            5: Field("inputs", schema=TENSOR, repeated=True),
            7: Field("raw_input_contents", "bytes", repeated=True),
        },
        {
            **INFERENCE,
            5: Field("outputs", schema=TENSOR, repeated=True),
            6: Field("raw_output_contents", "bytes", repeated=True),
        },
    ),
    "RepositoryIndex": (
        {1: Field("repository_name", "string"), 2: Field("ready", "bool")},
        {1: Field("models", schema=INDEXED, repeated=True)},
    ),
    "RepositoryModelLoad": (CONTROL, EMPTY),
    "RepositoryModelUnload": (CONTROL, EMPTY),
}
"""Request and reply of each method."""
