"""V2 gRPC's extensions: a model's configuration, statistics, loading and unloading, trace settings and log settings."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import (
    Answer,
    ControlRequest,
    Message,
    ModelStatistics,
    Request,
    SettingValue,
    Statistics,
    Translate,
)
from gateway.protobuf.schema import Protobuf, ProtobufClass, not_utf8, parse
from gateway.protocols.v2.extensions import TRACE_LEVEL, named_for, shared_memory
from gateway.protocols.v2.grpc import schema
from gateway.protocols.v2.grpc.protobuf_json import from_json, to_json

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT32_MAX = 2**32 - 1


def _path(method: str) -> str:
    return f"/{schema.SERVICE}/{method}"


_REQUESTS: Mapping[Operation, tuple[str, ProtobufClass]] = {
    Operation.LOAD: (_path("RepositoryModelLoad"), schema.RepositoryModelLoadRequest),
    Operation.UNLOAD: (_path("RepositoryModelUnload"), schema.RepositoryModelUnloadRequest),
    Operation.TRACE_SETTINGS: (_path("TraceSetting"), schema.TraceSettingRequest),
    Operation.LOG_SETTINGS: (_path("LogSettings"), schema.LogSettingsRequest),
}


# --- from clients ---


def decode_control(
    operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings
) -> tuple[str, dict[str, SettingValue]]:
    """The model, empty where there is none, and the settings of one of CONTROL_OPERATIONS.

    Raises:
        DecodeError: another message, or a setting without a value.
        GatewayError: UNIMPLEMENTED, a `repository_name`, which Triton refuses as well.
    """
    asked = parse(kind, message.body)
    if operation is Operation.TRACE_SETTINGS:
        return asked.model_name, {key: _trace_setting(key, tuple(each.value)) for key, each in asked.settings.items()}
    if operation is Operation.LOG_SETTINGS:
        return "", _read_choices(asked.settings, "log setting")
    if asked.repository_name:
        raise unsupported("'repository_name' is not supported: models are loaded by their names alone")
    return asked.model_name, _read_choices(asked.parameters, "parameter")


def _trace_setting(key: str, given: tuple[str, ...]) -> SettingValue:
    """Of Triton's settings one is a list; the others are lists of one here. None at all resets it."""
    if key == TRACE_LEVEL:
        return given or None
    if len(given) > 1:
        return given
    return given[0] if given else None


def _read_choices(given: Protobuf, what: str) -> dict[str, SettingValue]:
    settings = {}
    for key, each in given.items():
        choice = each.WhichOneof("parameter_choice")
        if choice is None:
            raise DecodeError(f"{what} {key!r} has no value")
        settings[key] = getattr(each, choice)
    return settings


def refuse_shared_memory(kind: str, message: Message, listener: ListenerSettings) -> Request:
    """Raises GatewayError UNIMPLEMENTED."""
    raise shared_memory(kind)


SHARED_MEMORY = {
    _path(f"{kind.title()}SharedMemory{question}"): partial(refuse_shared_memory, kind)
    for kind in ("system", "cuda", "tpu")
    for question in ("Status", "Register", "Unregister")
}
"""Methods that are served to tell why they are not."""


# --- to clients ---


def _reply(message: Protobuf) -> Message:
    return Message(parts=(message.SerializeToString(),))


def encode_config(answer: Answer, request: Request, translate: Translate) -> Message:
    """A ModelConfigResponse; an empty configuration is enough for perf_analyzer.

    Raises:
        GatewayError: INTERNAL, a member of another type than Triton's.
    """
    assert isinstance(answer, Mapping)
    config = from_json(named_for(request, answer), schema.ModelConfig, f"the configuration of {request.model!r}")
    return _reply(schema.ModelConfigResponse(config=config))


def encode_statistics(answer: Answer, request: Request, translate: Translate) -> Message:
    """A ModelStatisticsResponse. Raises GatewayError INTERNAL for a counter of another type than Triton's."""
    assert isinstance(answer, Statistics)
    written = schema.ModelStatisticsResponse()
    for each in answer.models:
        document = {"name": each.name, "version": each.version, **each.counters}
        written.model_stats.append(from_json(document, schema.ModelStatistics, f"the statistics of {each.name!r}"))
    return _reply(written)


def encode_loaded(answer: Answer, request: Request, translate: Translate) -> Message:
    """An empty RepositoryModelLoadResponse."""
    return _reply(schema.RepositoryModelLoadResponse())


def encode_unloaded(answer: Answer, request: Request, translate: Translate) -> Message:
    """An empty RepositoryModelUnloadResponse."""
    return _reply(schema.RepositoryModelUnloadResponse())


def encode_trace_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """A TraceSettingResponse: every setting is a list."""
    assert isinstance(answer, Mapping)
    written = schema.TraceSettingResponse()
    for key, given in answer.items():
        values = given if isinstance(given, list | tuple) else [given]
        written.settings[key].value.extend(map(str, values))
    return _reply(written)


def encode_log_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """A LogSettingsResponse."""
    assert isinstance(answer, Mapping)
    written = schema.LogSettingsResponse()
    for key, given in answer.items():
        _write_choice(written.settings[key], key, given, _LOG_CHOICES)
    return _reply(written)


# --- to backends ---


def write_control(request: Request) -> Message:
    """The message that asks for one of CONTROL_OPERATIONS.

    Raises:
        GatewayError: INVALID_ARGUMENT, a setting that has no form on the wire.
    """
    settings = request.settings if isinstance(request, ControlRequest) else {}
    path, kind = _REQUESTS[request.operation]
    try:
        written = kind() if request.operation is Operation.LOG_SETTINGS else kind(model_name=request.model)
        for key, given in settings.items():
            _write_setting(request.operation, written, key, given)
    except UnicodeEncodeError as error:
        raise not_utf8(error, "the request") from error
    return Message(path=path, parts=(written.SerializeToString(),), pattern=path)


def _write_setting(operation: Operation, written: Protobuf, key: str, given: SettingValue) -> None:
    if operation is Operation.TRACE_SETTINGS:
        field = written.settings[key]
        field.SetInParent()  # one without a value resets the setting
        if given is not None:
            field.value.extend(map(str, given if isinstance(given, tuple) else [given]))
    elif operation is Operation.LOG_SETTINGS:
        _write_choice(written.settings[key], key, given, _LOG_CHOICES)
    else:
        _write_choice(written.parameters[key], key, given, _LOAD_CHOICES)


_Choices = tuple[tuple[type, str, tuple[int, int]], ...]

_LOG_CHOICES: _Choices = (
    (bool, "bool_param", (0, 1)),
    (int, "uint32_param", (0, _UINT32_MAX)),
    (str, "string_param", (0, 0)),
)
_LOAD_CHOICES: _Choices = (
    (bool, "bool_param", (0, 1)),
    (int, "int64_param", (_INT64_MIN, _INT64_MAX)),
    (str, "string_param", (0, 0)),
    (bytes, "bytes_param", (0, 0)),
)


def _write_choice(field: Protobuf, key: str, given: object, choices: _Choices) -> None:
    for kind, choice, (least, most) in choices:
        if isinstance(given, kind):
            if isinstance(given, int) and not least <= given <= most:
                raise invalid_input(f"setting {key!r} is {given}, expected {least} to {most}")
            setattr(field, choice, given)
            return
    expected = ", ".join(kind.__name__ for kind, *_ in choices)
    raise invalid_input(f"setting {key!r} is of type {type(given).__name__}, expected one of {expected}")


# --- from backends ---


def decode_config(reply: Message) -> dict[str, Any]:
    """A model's configuration. Raises DecodeError for another message."""
    told = parse(schema.ModelConfigResponse, reply.body)
    return to_json(told.config) if told.config.name else {}


def decode_statistics(reply: Message) -> Statistics:
    """The counters of each version of each model. Raises DecodeError for another message."""
    told = parse(schema.ModelStatisticsResponse, reply.body)
    return Statistics(tuple(_read_statistics(to_json(each)) for each in told.model_stats))


def _read_statistics(document: dict[str, Any]) -> ModelStatistics:
    return ModelStatistics(document.pop("name"), document.pop("version"), document)


def decode_loaded(reply: Message) -> bool:
    """That it is done. Raises DecodeError for another message."""
    parse(schema.RepositoryModelLoadResponse, reply.body)
    return True


def decode_unloaded(reply: Message) -> bool:
    """That it is done. Raises DecodeError for another message."""
    parse(schema.RepositoryModelUnloadResponse, reply.body)
    return True


def decode_trace_settings(reply: Message) -> dict[str, object]:
    """All trace settings, as JSON has them: one is a list. Raises DecodeError for another message."""
    told = parse(schema.TraceSettingResponse, reply.body)
    settings = sorted(told.settings.items())
    return {key: _as_json(_trace_setting(key, tuple(each.value))) for key, each in settings}


def _as_json(setting: SettingValue) -> object:
    return list(setting) if isinstance(setting, tuple) else setting


def decode_log_settings(reply: Message) -> dict[str, object]:
    """All log settings. Raises DecodeError for another message, or a setting without a value."""
    told = parse(schema.LogSettingsResponse, reply.body)
    return dict(sorted(_read_choices(told.settings, "log setting").items()))


READERS = {path: (operation, kind) for operation, (path, kind) in _REQUESTS.items()}

ANSWERS: Mapping[Operation, Callable[[Message], Answer]] = {
    Operation.CONFIG: decode_config,
    Operation.MODEL_STATISTICS: decode_statistics,
    Operation.ALL_STATISTICS: decode_statistics,
    Operation.LOAD: decode_loaded,
    Operation.UNLOAD: decode_unloaded,
    Operation.TRACE_SETTINGS: decode_trace_settings,
    Operation.LOG_SETTINGS: decode_log_settings,
}
