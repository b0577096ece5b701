"""Reads and writes V2 gRPC health, server metadata and model metadata, for clients and for backends."""

from gateway.core.messages import Message
from gateway.core.models import ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf, parse, protobuf_reply
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.v2.grpc.schema import (
    ModelMetadataResponse,
    ModelReadyResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from gateway.protocols.v2.tensors import read_datatype, read_dimensions

OWN_EXTENSIONS = ("parameters",)
"""The extensions that the gateway always supports over gRPC, under Triton's names."""


# --- client side ---


def encode_health(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a response that reports whether the server is live or ready, or whether the model is ready."""
    healthy = answer is True
    if request.operation is Operation.LIVE:
        return protobuf_reply(ServerLiveResponse(live=healthy))
    if request.operation is Operation.READY:
        return protobuf_reply(ServerReadyResponse(ready=healthy))
    return protobuf_reply(ModelReadyResponse(ready=healthy))


def encode_server_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a ServerMetadataResponse. It lists the extensions in the answer, or the gateway's own extensions over gRPC
    if the answer has none."""
    assert isinstance(answer, ServerInfo)
    extensions = answer.extensions or OWN_EXTENSIONS
    return protobuf_reply(ServerMetadataResponse(name=answer.name, version=answer.version, extensions=extensions))


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a ModelMetadataResponse. Unknown fields are empty."""
    assert isinstance(answer, Signature)
    written = ModelMetadataResponse(
        name=request.model or answer.name, versions=answer.versions, platform=answer.platform
    )
    for entries, specs in ((written.inputs, answer.inputs), (written.outputs, answer.outputs)):
        for spec in specs:
            entries.add(name=spec.name, datatype=spec.datatype, shape=spec.shape)
    written.gateway_no_infer = Operation.INFER not in answer.operations
    return protobuf_reply(written)


# --- upstream side ---


def decode_live(reply: Message) -> bool:
    """Return True if the server is live. Raise DecodeError for any other message."""
    return bool(parse(ServerLiveResponse, reply.body).live)


def decode_ready(reply: Message) -> bool:
    """Return True if the server is ready. Raise DecodeError for any other message."""
    return bool(parse(ServerReadyResponse, reply.body).ready)


def decode_model_ready(reply: Message) -> bool:
    """Return True if the model is ready. Raise DecodeError for any other message."""
    return bool(parse(ModelReadyResponse, reply.body).ready)


def decode_server_metadata(reply: Message) -> ServerInfo:
    """Return a server's name, version and extensions. Raise DecodeError for any other message."""
    metadata = parse(ServerMetadataResponse, reply.body)
    return ServerInfo(metadata.name, metadata.version, tuple(metadata.extensions))


def decode_metadata(reply: Message) -> Signature:
    """Return a model's Signature.

    Raises:
        DecodeError: the body is another message, or contains an unknown datatype or a dimension below -1.
    """
    metadata = parse(ModelMetadataResponse, reply.body)
    return Signature(
        _read_specs(metadata.inputs, "input"),
        _read_specs(metadata.outputs, "output"),
        frozenset() if metadata.gateway_no_infer else frozenset({Operation.INFER}),
        name=metadata.name,
        versions=tuple(metadata.versions),
        platform=metadata.platform,
    )


def _read_specs(given: Protobuf, role: str) -> tuple[TensorSpec, ...]:
    return tuple(_read_spec(each, f"{role} {each.name!r}") for each in given)


def _read_spec(given: Protobuf, what: str) -> TensorSpec:
    return TensorSpec(given.name, read_datatype(given.datatype, what), read_dimensions(list(given.shape), what))
