"""The protocol `v2-grpc`: which question each method asks, and who reads and writes it.

A Message's `path` and `pattern` are the whole method; its parts are one protobuf message, `status` is the status code
of a reply. A reply of another status than 0 has the status's text for its body, and trailing metadata for headers.
"""

from collections.abc import Callable
from functools import partial

from gateway.core.errors import unsupported
from gateway.core.examples import grpcurl
from gateway.core.frozen import replace
from gateway.core.grpc_status import error_of
from gateway.core.operations import CONTROL_OPERATIONS, SERVER_OPERATIONS, Operation
from gateway.core.protocol import (
    DecodeRequest,
    EncodeResponse,
    GrpcForm,
    ListenerSettings,
    Models,
    Protocol,
    Servers,
    Target,
    Traits,
    Wire,
)
from gateway.core.types import Answer, ControlRequest, Message, Request, Translate
from gateway.protobuf.schema import Protobuf, ProtobufClass, not_utf8, parse
from gateway.protocols.v2 import (
    grpc_extensions,
    grpc_metadata,
    grpc_requests,
    grpc_responses,
    grpc_streams,
    grpc_tensors,
    schema,
)
from gateway.protocols.v2.extensions import EXTENSIONS, FURTHER_EXTENSIONS, check_operation
from gateway.protocols.v2.flavors import FLAVORS, MLSERVER
from gateway.protocols.v2.grpc_errors import denies_readiness, encode_error
from gateway.protocols.v2.members import check_id
from gateway.protocols.v2.versions import check_version


def _path(method: str) -> str:
    return f"/{schema.SERVICE}/{method}"


def _read(operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings) -> Request:
    """A question that is no inference."""
    asked = parse(kind, message.body)
    of_model = operation not in SERVER_OPERATIONS
    return Request(
        operation,
        asked.name if of_model else "",
        asked.version if of_model else "",
        parameters={"ready": True} if operation is Operation.MODELS and asked.ready else {},
        origin=message,
    )


def _read_statistics(message: Message, listener: ListenerSettings) -> Request:
    """Of all models where none is named."""
    request = _read(Operation.MODEL_STATISTICS, schema.ModelStatisticsRequest, message, listener)
    return request if request.model else replace(request, operation=Operation.ALL_STATISTICS, version="")


def _read_control(operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings) -> Request:
    model, settings = grpc_extensions.decode_control(operation, kind, message, listener)
    return ControlRequest(operation, model, origin=message, settings=settings)


_STATISTICS = _path("ModelStatistics")

_QUESTIONS: dict[Operation, tuple[str, ProtobufClass]] = {
    Operation.LIVE: (_path("ServerLive"), schema.ServerLiveRequest),
    Operation.READY: (_path("ServerReady"), schema.ServerReadyRequest),
    Operation.MODEL_READY: (_path("ModelReady"), schema.ModelReadyRequest),
    Operation.SERVER_METADATA: (_path("ServerMetadata"), schema.ServerMetadataRequest),
    Operation.METADATA: (_path("ModelMetadata"), schema.ModelMetadataRequest),
    Operation.CONFIG: (_path("ModelConfig"), schema.ModelConfigRequest),
    Operation.MODELS: (_path("RepositoryIndex"), schema.RepositoryIndexRequest),
}
"""The method of each, and its request's message."""

_READERS: dict[str, DecodeRequest] = {
    grpc_requests.INFER: grpc_requests.decode_infer,
    grpc_requests.STREAM: grpc_requests.decode_infer,
    **{path: partial(_read, operation, kind) for operation, (path, kind) in _QUESTIONS.items()},
    _STATISTICS: _read_statistics,
    **{path: partial(_read_control, *each) for path, each in grpc_extensions.READERS.items()},
    **grpc_extensions.SHARED_MEMORY,
}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks.

    Raises:
        DecodeError: not the method's message, or a tensor that is not what it says.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    return _READERS[message.pattern](message, listener)


_WRITERS: dict[Operation, EncodeResponse] = {
    Operation.INFER: grpc_responses.encode_infer,
    Operation.STREAM: grpc_streams.encode_stream,
    Operation.LIVE: grpc_metadata.encode_health,
    Operation.READY: grpc_metadata.encode_health,
    Operation.MODEL_READY: grpc_metadata.encode_health,
    Operation.METADATA: grpc_metadata.encode_metadata,
    Operation.SERVER_METADATA: grpc_metadata.encode_server_metadata,
    Operation.MODELS: grpc_metadata.encode_index,
    Operation.CONFIG: grpc_extensions.encode_config,
    Operation.MODEL_STATISTICS: grpc_extensions.encode_statistics,
    Operation.ALL_STATISTICS: grpc_extensions.encode_statistics,
    Operation.LOAD: grpc_extensions.encode_loaded,
    Operation.UNLOAD: grpc_extensions.encode_unloaded,
    Operation.TRACE_SETTINGS: grpc_extensions.encode_trace_settings,
    Operation.LOG_SETTINGS: grpc_extensions.encode_log_settings,
}


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that decode_request read; one of them in a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT, a text that is not UTF-8.
    """
    return _WRITERS[request.operation](answer, request, translate)


_ASKING = {
    **_QUESTIONS,
    **dict.fromkeys(
        (Operation.MODEL_STATISTICS, Operation.ALL_STATISTICS), (_STATISTICS, schema.ModelStatisticsRequest)
    ),
}


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation on V2 gRPC, or an extension that the server lacks;
            INVALID_ARGUMENT or NOT_FOUND, a name, version or parameter that has no form on it.
    """
    if request.operation in (Operation.INFER, Operation.STREAM):
        return grpc_requests.encode_infer(request, target)
    check_operation(request.operation, target)
    if request.operation in CONTROL_OPERATIONS:
        return grpc_extensions.write_control(request)
    if request.operation not in _ASKING:
        raise unsupported(f"V2 gRPC has no operation {request.operation.value}")
    path, kind = _ASKING[request.operation]
    return Message(path=path, parts=(_write(kind, request, target).SerializeToString(),), pattern=path)


def _write(kind: ProtobufClass, request: Request, target: Target) -> Protobuf:
    if request.operation in SERVER_OPERATIONS:
        return kind()
    check_version(request.version, target)
    try:
        return kind(name=request.model, version=request.version)
    except UnicodeEncodeError as error:
        raise not_utf8(error, "the request") from error


_ANSWERS: dict[Operation, Callable[[Message], Answer]] = {
    Operation.LIVE: grpc_metadata.decode_live,
    Operation.READY: grpc_metadata.decode_ready,
    Operation.MODEL_READY: grpc_metadata.decode_model_ready,
    Operation.METADATA: grpc_metadata.decode_metadata,
    Operation.SERVER_METADATA: grpc_metadata.decode_server_metadata,
    Operation.MODELS: grpc_metadata.decode_index,
    **grpc_extensions.ANSWERS,
}


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`; one of them in a stream.

    Raises:
        DecodeError: a reply that is not V2's, or that has the id of another request.
        GatewayError: the error that the reply tells.
    """
    if reply.status:
        if request.operation is Operation.MODEL_READY and denies_readiness(reply):
            return False
        raise error_of(reply)
    if request.operation not in (Operation.INFER, Operation.STREAM):
        return _ANSWERS[request.operation](reply)
    # MLServer streams plain ModelInferResponses
    is_wrapped = request.operation is Operation.STREAM and target.flavor != MLSERVER
    response = grpc_streams.decode_stream(reply, target) if is_wrapped else grpc_responses.decode_infer(reply, target)
    if request.id:
        check_id(response, request.id)
    return response


def _example(address: str, model: str, version: str) -> str:
    named = {"name": model, "version": version} if version else {"name": model}
    return grpcurl(address, f"{schema.SERVICE}/ModelMetadata", named)


V2_GRPC = Protocol(
    name=grpc_requests.NAME,
    carrier=GrpcForm(frozenset({grpc_requests.STREAM}), schema.DESCRIPTORS),
    patterns=(*schema.METHODS, *grpc_extensions.SHARED_MEMORY),
    decode_request=decode_request,
    encode_response=encode_response,
    encode_error=encode_error,
    encode_request=encode_request,
    decode_response=decode_response,
    # any text is a version; that Triton takes only integers is its flavor's affair
    traits=Traits(
        wire=Wire(
            streams=True,
        ),
        models=Models(
            versions=bool,
            platform="v2",
        ),
        servers=Servers(
            flavors=FLAVORS,
            extensions=EXTENSIONS,
            further_extensions=FURTHER_EXTENSIONS,
            own_extensions=grpc_metadata.EXTENSIONS,
        ),
    ),
    example=_example,
    encode_end=grpc_streams.encode_end,
    parsed_size=grpc_tensors.beside_raw,
)
