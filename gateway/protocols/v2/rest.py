"""The protocol `v2-rest`: which question stands at which path, and who reads and writes it."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from gateway.core.errors import DecodeError, unsupported
from gateway.core.examples import curl
from gateway.core.frozen import extended, replace
from gateway.core.operations import Operation
from gateway.core.protocol import (
    DecodeRequest,
    EncodeResponse,
    HttpForm,
    Limits,
    ListenerSettings,
    Models,
    Protocol,
    Servers,
    Target,
    Traits,
    Wire,
)
from gateway.core.types import Answer, ControlRequest, Message, Request, Translate
from gateway.protocols.v2 import (
    events,
    rest_extensions,
    rest_generate,
    rest_metadata,
    rest_requests,
    rest_responses,
    rest_streams,
)
from gateway.protocols.v2.binary import JSON_HEADERS, json_size
from gateway.protocols.v2.extensions import EXTENSIONS, FURTHER_EXTENSIONS, check_operation
from gateway.protocols.v2.flavors import FLAVORS, KSERVE
from gateway.protocols.v2.members import check_id
from gateway.protocols.v2.rest_errors import decode_error, denies_readiness, encode_error
from gateway.protocols.v2.rest_paths import backend_path, model_path


def _read(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """A request that is all in its path."""
    captures = message.captures
    return Request(operation, captures.get("model", ""), captures.get("version", ""), origin=message)


def _read_index(message: Message, listener: ListenerSettings) -> Request:
    parameters = rest_metadata.decode_index_request(message, listener)
    return replace(_read(Operation.MODELS, message, listener), parameters=parameters)


def _read_control(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    settings = rest_extensions.SETTINGS[operation](message, listener)
    return extended(ControlRequest, _read(operation, message, listener), settings)


_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"

_READERS: dict[str, DecodeRequest] = {
    "GET /v2": partial(_read, Operation.SERVER_METADATA),
    "GET /v2/health/live": partial(_read, Operation.LIVE),
    "GET /v2/health/ready": partial(_read, Operation.READY),
    f"GET {_MODEL}": partial(_read, Operation.METADATA),
    f"GET {_VERSION}": partial(_read, Operation.METADATA),
    f"GET {_MODEL}/ready": partial(_read, Operation.MODEL_READY),
    f"GET {_VERSION}/ready": partial(_read, Operation.MODEL_READY),
    f"GET {_MODEL}/config": partial(_read, Operation.CONFIG),
    f"GET {_VERSION}/config": partial(_read, Operation.CONFIG),
    f"POST {_MODEL}/infer": rest_requests.decode_infer,
    f"POST {_VERSION}/infer": rest_requests.decode_infer,
    f"POST {_MODEL}/generate": rest_streams.decode_generate,
    f"POST {_VERSION}/generate": rest_streams.decode_generate,
    f"POST {_MODEL}/generate_stream": rest_streams.decode_generate,
    f"POST {_VERSION}/generate_stream": rest_streams.decode_generate,
    f"POST {_MODEL}/infer_stream": rest_streams.decode_infer_stream,
    f"POST {_VERSION}/infer_stream": rest_streams.decode_infer_stream,
    "POST /v2/repository/index": _read_index,
    "GET /v2/models/stats": partial(_read, Operation.ALL_STATISTICS),
    f"GET {_MODEL}/stats": partial(_read, Operation.MODEL_STATISTICS),
    f"GET {_VERSION}/stats": partial(_read, Operation.MODEL_STATISTICS),
    "POST /v2/repository/models/{model}/load": partial(_read_control, Operation.LOAD),
    "POST /v2/repository/models/{model}/unload": partial(_read_control, Operation.UNLOAD),
    "GET /v2/trace/setting": partial(_read_control, Operation.TRACE_SETTINGS),
    "POST /v2/trace/setting": partial(_read_control, Operation.TRACE_SETTINGS),
    f"GET {_MODEL}/trace/setting": partial(_read_control, Operation.TRACE_SETTINGS),
    f"POST {_MODEL}/trace/setting": partial(_read_control, Operation.TRACE_SETTINGS),
    "GET /v2/logging": partial(_read_control, Operation.LOG_SETTINGS),
    "POST /v2/logging": partial(_read_control, Operation.LOG_SETTINGS),
    **{
        question.format(kind=kind): partial(rest_extensions.refuse_shared_memory, kind)
        for kind in ("system", "cuda", "tpu")
        for question in (
            "GET /v2/{kind}sharedmemory/status",
            "GET /v2/{kind}sharedmemory/region/{{region}}/status",
            "POST /v2/{kind}sharedmemory/region/{{region}}/register",
            "POST /v2/{kind}sharedmemory/region/{{region}}/unregister",
            "POST /v2/{kind}sharedmemory/unregister",
        )
    },
}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks.

    Raises:
        DecodeError: a body that is not what the path promises.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    return _READERS[message.pattern](message, listener)


def _encode_infer(answer: Answer, request: Request, translate: Translate) -> Message:
    encode = rest_generate.encode_members if request.schemaless else rest_responses.encode_infer
    return encode(answer, request, translate)


_WRITERS: dict[Operation, EncodeResponse] = {
    Operation.INFER: _encode_infer,
    Operation.STREAM: rest_streams.encode_response,
    Operation.LIVE: rest_metadata.encode_health,
    Operation.READY: rest_metadata.encode_health,
    Operation.MODEL_READY: rest_metadata.encode_health,
    Operation.METADATA: rest_metadata.encode_metadata,
    Operation.SERVER_METADATA: rest_metadata.encode_server_metadata,
    Operation.MODELS: rest_metadata.encode_index,
    Operation.CONFIG: rest_metadata.encode_config,
    Operation.MODEL_STATISTICS: rest_extensions.encode_statistics,
    Operation.ALL_STATISTICS: rest_extensions.encode_statistics,
    Operation.LOAD: rest_extensions.encode_done,
    Operation.UNLOAD: rest_extensions.encode_done,
    Operation.TRACE_SETTINGS: rest_extensions.encode_settings,
    Operation.LOG_SETTINGS: rest_extensions.encode_settings,
}


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that decode_request read; one of them in a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT naming a tensor that has no form in the reply that was asked for.
    """
    return _WRITERS[request.operation](answer, request, translate)


_Ask: TypeAlias = Callable[[Request, Target], Message]


def _get(path: str, request: Request, target: Target) -> Message:
    return Message("GET", path)


def _get_model(suffix: str, request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target, suffix))


def _ask_models(request: Request, target: Target) -> Message:
    if target.flavor == KSERVE:
        return Message("GET", "/v2/models")
    # Triton takes an empty body as well; MLServer answers 422 to it
    return Message("POST", "/v2/repository/index", JSON_HEADERS, (b"{}",))


def _ask_extension(ask: _Ask, request: Request, target: Target) -> Message:
    check_operation(request.operation, target)
    return ask(request, target)


_ASKING: dict[Operation, _Ask] = {
    Operation.INFER: rest_requests.encode_infer,
    Operation.STREAM: rest_streams.encode_request,
    Operation.LIVE: partial(_get, "/v2/health/live"),
    Operation.READY: partial(_get, "/v2/health/ready"),
    Operation.SERVER_METADATA: partial(_get, "/v2"),
    Operation.METADATA: partial(_get_model, ""),
    Operation.MODEL_READY: partial(_get_model, "/ready"),
    Operation.CONFIG: partial(_ask_extension, partial(_get_model, "/config")),
    Operation.MODELS: _ask_models,
    **{operation: partial(_ask_extension, ask) for operation, ask in rest_extensions.ASKING.items()},
}


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation on V2 REST, or an extension that the server lacks;
            INVALID_ARGUMENT or NOT_FOUND, a name, version or tensor that has no form on it.
    """
    ask = _ASKING.get(request.operation)
    if ask is None:
        raise unsupported(f"V2 REST has no operation {request.operation.value}")
    return ask(request, target)


_Answers: TypeAlias = Callable[[Message, Limits], Answer]

_ANSWERS: dict[Operation, _Answers] = {
    Operation.INFER: rest_responses.decode_infer,
    Operation.METADATA: rest_metadata.decode_metadata,
    Operation.SERVER_METADATA: rest_metadata.decode_server_metadata,
    Operation.MODELS: rest_metadata.decode_index,
    Operation.CONFIG: rest_metadata.decode_config,
    **rest_extensions.ANSWERS,
}

_ANSWERS_OF_KSERVE = {**_ANSWERS, Operation.MODELS: rest_metadata.decode_model_names}

_HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`; one of them in a stream.

    Raises:
        DecodeError: a reply that is not V2's, or that has the id of another request.
        GatewayError: the error that the reply tells.
    """
    if reply.status >= 400:
        # "a 4xx status code indicates false"
        if request.operation in _HEALTH and denies_readiness(reply):
            return False
        raise decode_error(reply, request)
    # tritonclient, too, takes nothing but 200 for success: MLServer's 307 for a slash is an error
    if reply.status != 200:
        raise DecodeError(f"status {reply.status}, expected 200")
    if request.operation in _HEALTH:
        return True
    if request.operation is Operation.STREAM:
        response = rest_streams.decode_response(reply, target)
        if request.id:
            check_id(response, request.id)
        return response
    answers = _ANSWERS_OF_KSERVE if target.flavor == KSERVE else _ANSWERS
    answer = answers[request.operation](reply, target.limits)
    if request.id:
        check_id(answer, request.id)
    return answer


V2_REST = Protocol(
    name=rest_requests.NAME,
    carrier=HttpForm(wants_stream=rest_streams.wants_stream, stream_framing=events.FRAMING),
    patterns=tuple(_READERS),
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
            own_extensions=rest_metadata.EXTENSIONS,
        ),
    ),
    example=lambda address, model, version: curl(f"http://{address}{model_path(model, version)}"),
    encode_end=rest_streams.encode_end,
    parsed_size=json_size,
)
