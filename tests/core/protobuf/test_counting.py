"""What a message of protobuf becomes is counted before it is parsed."""

import pytest

from gateway.assembly.registry import protocols
from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import check_values
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request
from gateway.protocols.v2.grpc.schema import ModelConfigResponse, ModelMetadataResponse

METADATA = ModelMetadataResponse(
    name="m", versions=["1"], inputs=[ModelMetadataResponse.TensorMetadata(name="x", shape=[-1, 2])]
)


def test_fields_messages_and_numbers_count() -> None:
    whole = METADATA.SerializeToString()
    check_values(ModelMetadataResponse, whole, 100)
    values = 2 + (1 + 4) + 2 + len(b"\xff" * 9 + b"\1\2")
    check_values(ModelMetadataResponse, whole, values)
    with pytest.raises(DecodeError, match=f"more than {values - 1} values .*limits.json_values"):
        check_values(ModelMetadataResponse, whole, values - 1)


@pytest.mark.parametrize("more", [b"\x0a\x00", b"\x2a\x00", b"\xfa\x01\x00"], ids=["config", "input", "unknown"])
def test_empty_messages_are_not_free(more: bytes) -> None:
    with pytest.raises(DecodeError, match="more than 100 values"):
        check_values(ModelConfigResponse, more * 101, 100)


@pytest.mark.parametrize(
    ("operation", "piece"),
    [
        (Operation.CONFIG, b"\x0a\x02\x2a\x00"),
        (Operation.METADATA, b"\x22\x00"),
        (Operation.MODELS, b"\x0a\x00"),
        (Operation.ALL_STATISTICS, b"\x0a\x00"),
        (Operation.TRACE_SETTINGS, b"\x0a\x00"),
    ],
)
def test_a_server_cannot_make_objects_of_two_bytes(operation: Operation, piece: bytes) -> None:
    reply = Message(parts=(piece * 250_000,))
    with pytest.raises(DecodeError, match="values in a protobuf message"):
        protocols()["v2-grpc"].decode_response(reply, Request(operation, "m"), Target(limits=Limits()))
