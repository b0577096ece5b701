"""V2 gRPC's other answers: health, metadata and the repository index."""

from gateway.core.operations import Operation
from gateway.core.types import Answer, Message, ModelEntry, Request, ServerInfo, Signature, TensorSpec, Translate
from gateway.protobuf.schema import Protobuf, parse
from gateway.protocols.v2.grpc.schema import (
    ModelMetadataResponse,
    ModelReadyResponse,
    RepositoryIndexResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from gateway.protocols.v2.index import asked_for
from gateway.protocols.v2.tensors import read_datatype, read_dimensions

EXTENSIONS = ("parameters",)
"""Triton's name of the extension that this wire form always has."""


def _reply(message: Protobuf) -> Message:
    return Message(parts=(message.SerializeToString(),))


def encode_health(answer: Answer, request: Request, translate: Translate) -> Message:
    """Whether the server is live, the server ready or the model ready."""
    healthy = answer is True
    if request.operation is Operation.LIVE:
        return _reply(ServerLiveResponse(live=healthy))
    if request.operation is Operation.READY:
        return _reply(ServerReadyResponse(ready=healthy))
    return _reply(ModelReadyResponse(ready=healthy))


def encode_server_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """A ServerMetadataResponse; extensions are this wire's own unless the answer has some."""
    assert isinstance(answer, ServerInfo)
    extensions = answer.extensions or EXTENSIONS
    return _reply(ServerMetadataResponse(name=answer.name, version=answer.version, extensions=extensions))


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """A ModelMetadataResponse; what nobody knows is empty."""
    assert isinstance(answer, Signature)
    written = ModelMetadataResponse(
        name=request.model or answer.name, versions=answer.versions, platform=answer.platform
    )
    for entries, specs in ((written.inputs, answer.inputs), (written.outputs, answer.outputs)):
        for spec in specs:
            entries.add(name=spec.name, datatype=spec.datatype, shape=spec.shape)
    written.gateway_no_infer = Operation.INFER not in answer.operations
    return _reply(written)


def encode_index(answer: Answer, request: Request, translate: Translate) -> Message:
    """A RepositoryIndexResponse."""
    assert isinstance(answer, tuple)
    written = RepositoryIndexResponse()
    for each in asked_for(answer, request):
        written.models.add(name=each.name, version=each.version, state=each.state, reason=each.reason)
    return _reply(written)


def decode_live(reply: Message) -> bool:
    """Whether the server is live. Raises DecodeError for another message."""
    return bool(parse(ServerLiveResponse, reply.body).live)


def decode_ready(reply: Message) -> bool:
    """Whether the server is ready. Raises DecodeError for another message."""
    return bool(parse(ServerReadyResponse, reply.body).ready)


def decode_model_ready(reply: Message) -> bool:
    """Whether the model is ready. Raises DecodeError for another message."""
    return bool(parse(ModelReadyResponse, reply.body).ready)


def decode_server_metadata(reply: Message) -> ServerInfo:
    """A server's name, version and extensions. Raises DecodeError for another message."""
    told = parse(ServerMetadataResponse, reply.body)
    return ServerInfo(told.name, told.version, tuple(told.extensions))


def decode_metadata(reply: Message) -> Signature:
    """A model's Signature.

    Raises:
        DecodeError: another message, an unknown datatype, a dimension below -1.
    """
    told = parse(ModelMetadataResponse, reply.body)
    return Signature(
        _read_specs(told.inputs, "input"),
        _read_specs(told.outputs, "output"),
        frozenset() if told.gateway_no_infer else frozenset({Operation.INFER}),
        name=told.name,
        versions=tuple(told.versions),
        platform=told.platform,
    )


def _read_specs(given: Protobuf, role: str) -> tuple[TensorSpec, ...]:
    return tuple(_read_spec(each, f"{role} {each.name!r}") for each in given)


def _read_spec(given: Protobuf, what: str) -> TensorSpec:
    return TensorSpec(given.name, read_datatype(given.datatype, what), read_dimensions(list(given.shape), what))


def decode_index(reply: Message) -> tuple[ModelEntry, ...]:
    """The models of a repository index. Raises DecodeError for another message."""
    # MLServer's states are READY over REST and State.READY over gRPC
    return tuple(
        ModelEntry(each.name, each.version, each.state.removeprefix("State."), each.reason)
        for each in parse(RepositoryIndexResponse, reply.body).models
    )
