"""Reads and writes the messages of V2 gRPC extensions, for clients and for backends.

The extensions are model repository (index, load, unload), model configuration, statistics, trace settings and log
settings. Model configurations and statistics are JSON over REST, and messages over gRPC. To convert between the two,
the module uses the JSON that Triton writes for a message. This JSON is protobuf's JSON mapping, with the schema's own
field names, with all fields that cannot be absent, and with 64-bit integers as numbers instead of strings.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from gateway.core.errors import DecodeError, invalid_input, invalid_output, unsupported
from gateway.core.messages import Message
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import Protobuf, ProtobufClass, not_utf8, parse, protobuf_reply
from gateway.core.protocol import EncodeResponse, ListenerSettings
from gateway.core.requests import Answer, ControlRequest, Request, SettingValue, Translate
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.protocols.v2.extensions import config_for_client, index_entries
from gateway.protocols.v2.grpc import schema

TRACE_LEVEL = "trace_level"
"""The only trace setting that is a list over REST. Over gRPC, every setting is a list."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT32_MAX = 2**32 - 1


# --- client side: requests ---


def decode_control(
    operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings
) -> ControlRequest:
    """Return a request to load or unload a model, or to read or change settings.

    Raises:
        DecodeError: the message is not a message of `kind`, or contains a setting without a value.
        GatewayError: UNIMPLEMENTED if the request contains a `repository_name`, which Triton also rejects.
    """
    parsed = parse(kind, message.body)
    model = "" if operation is Operation.LOG_SETTINGS else parsed.model_name
    return ControlRequest(operation, model, origin=message, settings=_read_settings(operation, parsed))


def _read_settings(operation: Operation, parsed: Protobuf) -> dict[str, SettingValue]:
    if operation is Operation.TRACE_SETTINGS:
        return {key: _read_trace_setting(key, tuple(each.value)) for key, each in parsed.settings.items()}
    if operation is Operation.LOG_SETTINGS:
        return _read_choices(parsed.settings, "log setting")
    if parsed.repository_name:
        raise unsupported("'repository_name' is not supported; load the model by its name alone")
    return _read_choices(parsed.parameters, "parameter")


def _read_trace_setting(key: str, values: tuple[str, ...]) -> SettingValue:
    """Return a trace setting, which is a list over gRPC, as its JSON value over REST. A setting without values becomes
    None, which resets it."""
    if key == TRACE_LEVEL:
        return values or None
    if len(values) > 1:
        return values
    return values[0] if values else None


def _read_choices(given: Protobuf, what: str) -> dict[str, SettingValue]:
    """Return the values in a map whose messages contain a oneof `parameter_choice`."""
    settings = {}
    for key, each in given.items():
        choice = each.WhichOneof("parameter_choice")
        if choice is None:
            raise DecodeError(f"{what} {key!r} has no value")
        settings[key] = getattr(each, choice)
    return settings


# --- client side: responses ---


def encode_index(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a RepositoryIndexResponse."""
    assert isinstance(answer, tuple)
    written = schema.RepositoryIndexResponse()
    for each in index_entries(answer, request):
        written.models.add(name=each.name, version=each.version, state=each.state, reason=each.reason)
    return protobuf_reply(written)


def encode_config(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a ModelConfigResponse. An empty configuration is enough for perf_analyzer.

    Raises:
        GatewayError: INTERNAL if the type of a member differs from Triton's.
    """
    assert isinstance(answer, Mapping)
    config = _from_json(
        config_for_client(request, answer), schema.ModelConfig, f"the configuration of {request.model!r}"
    )
    return protobuf_reply(schema.ModelConfigResponse(config=config))


def encode_statistics(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a ModelStatisticsResponse. Raise GatewayError (INTERNAL) if the type of a counter differs from
    Triton's."""
    assert isinstance(answer, Statistics)
    written = schema.ModelStatisticsResponse()
    for each in answer.models:
        document = {"name": each.name, "version": each.version, **each.counters}
        written.model_stats.append(_from_json(document, schema.ModelStatistics, f"the statistics of {each.name!r}"))
    return protobuf_reply(written)


def encode_done(kind: ProtobufClass, answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a load or unload request: an empty message of this `kind`."""
    return protobuf_reply(kind())


def encode_trace_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a TraceSettingResponse, in which every setting is a list."""
    assert isinstance(answer, Mapping)
    written = schema.TraceSettingResponse()
    for key, given in answer.items():
        values = given if isinstance(given, list | tuple) else [given]
        written.settings[key].value.extend(map(str, values))
    return protobuf_reply(written)


def encode_log_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a LogSettingsResponse."""
    assert isinstance(answer, Mapping)
    written = schema.LogSettingsResponse()
    for key, given in answer.items():
        _write_choice(written.settings[key], key, given, _LOG_CHOICES)
    return protobuf_reply(written)


# --- upstream side: requests ---


def encode_control(request: Request) -> Message:
    """Return the request for one of CONTROL_OPERATIONS.

    Raises:
        GatewayError: INVALID_ARGUMENT if the message cannot represent a setting. The error message says which.
    """
    settings = request.settings if isinstance(request, ControlRequest) else {}
    method, kind = schema.REQUESTS[request.operation]
    try:
        written = kind() if request.operation is Operation.LOG_SETTINGS else kind(model_name=request.model)
        for key, given in settings.items():
            _write_setting(request.operation, written, key, given)
    except UnicodeEncodeError as error:
        raise not_utf8(error, "the request") from error
    return Message(path=method, parts=(written.SerializeToString(),), pattern=method)


def _write_setting(operation: Operation, written: Protobuf, key: str, given: SettingValue) -> None:
    if operation is Operation.TRACE_SETTINGS:
        field = written.settings[key]
        field.SetInParent()  # a field without a value resets the setting
        if given is not None:
            field.value.extend(map(str, given if isinstance(given, tuple) else [given]))
    elif operation is Operation.LOG_SETTINGS:
        _write_choice(written.settings[key], key, given, _LOG_CHOICES)
    else:
        _write_choice(written.parameters[key], key, given, _LOAD_CHOICES)


_Choices = tuple[tuple[type, str, tuple[int, int]], ...]
"""A map from each Python type to the field of a oneof `parameter_choice`, and to the minimum and maximum integer of the
field."""

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


# --- upstream side: responses ---


def decode_index(reply: Message) -> tuple[ModelEntry, ...]:
    """Return the models in a repository index. Raise DecodeError for any other message."""
    # MLServer's states are READY over REST and State.READY over gRPC
    return tuple(
        ModelEntry(each.name, each.version, each.state.removeprefix("State."), each.reason)
        for each in parse(schema.RepositoryIndexResponse, reply.body).models
    )


def decode_config(reply: Message) -> dict[str, Any]:
    """Return a model's configuration. Raise DecodeError for any other message."""
    config = parse(schema.ModelConfigResponse, reply.body).config
    return _to_json(config) if config.name else {}


def decode_statistics(reply: Message) -> Statistics:
    """Return the counters of each version of each model. Raise DecodeError for any other message."""
    entries = parse(schema.ModelStatisticsResponse, reply.body).model_stats
    return Statistics(tuple(_read_statistics(_to_json(each)) for each in entries))


def _read_statistics(document: dict[str, Any]) -> ModelStatistics:
    return ModelStatistics(document.pop("name"), document.pop("version"), document)


def decode_done(kind: ProtobufClass, reply: Message) -> bool:
    """Return True, because a response of this `kind` means that the operation is complete.

    Raise DecodeError for any other message."""
    parse(kind, reply.body)
    return True


def decode_trace_settings(reply: Message) -> dict[str, object]:
    """Return all trace settings as their JSON values. Raise DecodeError for any other message."""
    settings = sorted(parse(schema.TraceSettingResponse, reply.body).settings.items())
    return {key: _json_value(_read_trace_setting(key, tuple(each.value))) for key, each in settings}


def _json_value(setting: SettingValue) -> object:
    return list(setting) if isinstance(setting, tuple) else setting


def decode_log_settings(reply: Message) -> dict[str, object]:
    """Return all log settings. Raise DecodeError for any other message, and for a setting without a value."""
    settings = parse(schema.LogSettingsResponse, reply.body).settings
    return dict(sorted(_read_choices(settings, "log setting").items()))


# --- responses of both sides ---

_Response = tuple[ProtobufClass, EncodeResponse, Callable[[Message], Answer]]


def _done(kind: ProtobufClass) -> _Response:
    return kind, partial(encode_done, kind), partial(decode_done, kind)


_STATISTICS: _Response = (schema.ModelStatisticsResponse, encode_statistics, decode_statistics)
RESPONSES: dict[Operation, _Response] = {
    Operation.MODELS: (schema.RepositoryIndexResponse, encode_index, decode_index),
    Operation.CONFIG: (schema.ModelConfigResponse, encode_config, decode_config),
    Operation.MODEL_STATISTICS: _STATISTICS,
    Operation.ALL_STATISTICS: _STATISTICS,
    Operation.LOAD: _done(schema.RepositoryModelLoadResponse),
    Operation.UNLOAD: _done(schema.RepositoryModelUnloadResponse),
    Operation.TRACE_SETTINGS: (schema.TraceSettingResponse, encode_trace_settings, decode_trace_settings),
    Operation.LOG_SETTINGS: (schema.LogSettingsResponse, encode_log_settings, decode_log_settings),
}
"""A map from each operation to the type of its response message, the function that writes this message for clients, and
the function that reads it from servers."""


# --- Protobuf messages as JSON ---

_INT64 = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})


def _to_json(message: Protobuf) -> dict[str, Any]:
    """Return the JSON object of `message`."""
    document: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _parse_integers(document, message.DESCRIPTOR)
    return document


def _parse_integers(document: dict[str, Any], kind: Descriptor) -> None:
    """Convert strings that contain 64-bit integers to numbers, in place."""
    for name, given in document.items():
        field = kind.fields_by_name[name]
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            values = nested.fields_by_name["value"]
            if values.message_type is not None:
                for each in given.values():
                    _parse_integers(each, values.message_type)
            elif values.cpp_type in _INT64:
                document[name] = {key: int(each) for key, each in given.items()}
        elif nested is not None:
            for each in given if isinstance(given, list) else [given]:
                _parse_integers(each, nested)
        elif field.cpp_type in _INT64:
            document[name] = [int(each) for each in given] if isinstance(given, list) else int(given)


def _from_json(document: object, kind: ProtobufClass, what: str) -> Protobuf:
    """Return the JSON object `document` as a message of this `kind`. The function ignores members that are not in the
    schema.

    Raises:
        GatewayError: INTERNAL if the type of a member differs from the schema. The message refers to the object as
            `what`.
    """
    try:
        return json_format.ParseDict(document, kind(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise invalid_output(f"{what} is no {kind.DESCRIPTOR.full_name}: {error}") from error
