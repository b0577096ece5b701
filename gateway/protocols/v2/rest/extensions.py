"""V2 REST's extensions: statistics, loading and unloading, trace settings and log settings."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from functools import partial
from reprlib import repr as shown
from typing import Any

from gateway import json
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
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
from gateway.protocols.v2.extensions import FILE, shared_memory
from gateway.protocols.v2.rest.binary import JSON_HEADERS
from gateway.protocols.v2.rest.json_fields import Entry, read_list, read_name, read_text
from gateway.protocols.v2.rest.paths import backend_path, segment

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


# --- from clients ---


def read_load_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """The `parameters` of a load or an unload: `config`, `file:PATH` in base64, `unload_dependents`, ...

    Raises:
        DecodeError: neither empty nor an object with an object of strings, integers and booleans; no base64.
    """
    parameters = _body(message, listener).get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise DecodeError(f"parameters must be an object, not {shown(parameters)}")
    return {key: _load_setting(key, given) for key, given in parameters.items()}


def _load_setting(key: str, given: object) -> SettingValue:
    if not key.startswith(FILE):
        return _scalar(f"parameter {shown(key)}", given)
    if not isinstance(given, str):
        raise DecodeError(f"parameter {shown(key)} must be a string of base64, not {shown(given)}")
    try:
        return b64decode(given, validate=True)
    except Base64Error as error:
        raise DecodeError(f"parameter {shown(key)} is not base64: {error}") from error


def read_trace_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """The settings to change: strings, lists of strings, and null for what is reset.

    Raises:
        DecodeError: something else.
    """
    return {key: _trace_setting(key, given) for key, given in _body(message, listener).items()}


def _trace_setting(key: str, given: object) -> SettingValue:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return tuple(given)
    raise DecodeError(f"trace setting {shown(key)} must be a string, a list of strings or null, not {shown(given)}")


def read_log_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """The settings to change: strings, integers and booleans. Raises DecodeError for something else."""
    return {key: _scalar(f"log setting {shown(key)}", given) for key, given in _body(message, listener).items()}


def _scalar(what: str, given: object) -> SettingValue:
    if isinstance(given, bool | str) or (isinstance(given, int) and _INT64_MIN <= given <= _INT64_MAX):
        return given
    raise DecodeError(f"{what} must be a string, an integer or a boolean, not {shown(given)}")


def _body(message: Message, listener: ListenerSettings) -> Entry:
    if message.method == "GET" or not len(message.body):
        return {}
    return json.read(message.body, {}, values=listener.limits.json_values, literals=False)


SETTINGS: Mapping[Operation, Callable[[Message, ListenerSettings], Mapping[str, SettingValue]]] = {
    Operation.LOAD: read_load_settings,
    Operation.UNLOAD: read_load_settings,
    Operation.TRACE_SETTINGS: read_trace_settings,
    Operation.LOG_SETTINGS: read_log_settings,
}
"""What the body of each operation says."""


def refuse_shared_memory(kind: str, message: Message, listener: ListenerSettings) -> Request:
    """Raises GatewayError UNIMPLEMENTED: a region of the client's machine means nothing behind a gateway."""
    raise shared_memory(kind)


# --- to clients ---


def encode_statistics(answer: Answer, request: Request, translate: Translate) -> Message:
    """`{"model_stats": [..]}`, as Triton has it."""
    assert isinstance(answer, Statistics)
    entries = [{"name": each.name, "version": each.version, **each.counters} for each in answer.models]
    return _reply({"model_stats": entries})


def encode_done(answer: Answer, request: Request, translate: Translate) -> Message:
    """The empty reply to a load or an unload."""
    return Message(headers=JSON_HEADERS, status=200)


def encode_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """All settings, one JSON object."""
    assert isinstance(answer, Mapping)
    return _reply(dict(answer))


def _reply(document: object) -> Message:
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=200)


# --- to backends ---


def _ask_statistics(request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target, "/stats"))


def _ask_all_statistics(request: Request, target: Target) -> Message:
    return Message("GET", "/v2/models/stats")


def _ask_repository(verb: str, request: Request, target: Target) -> Message:
    parameters = {key: _as_json(key, given) for key, given in _settings(request).items()}
    path = f"/v2/repository/models/{segment(request.model, 'model')}/{verb}"
    return Message("POST", path, JSON_HEADERS, (json.write({"parameters": parameters} if parameters else {}),))


def _as_json(key: str, given: SettingValue) -> object:
    if not isinstance(given, bytes):
        return given
    if not key.startswith(FILE):
        raise invalid_input(f"parameter {key!r} holds bytes, which V2 REST has for {FILE}PATH alone")
    return b64encode(given).decode()


def _ask_trace_settings(request: Request, target: Target) -> Message:
    model = f"/models/{segment(request.model, 'model')}" if request.model else ""
    return _ask_settings(f"/v2{model}/trace/setting", request)


def _ask_log_settings(request: Request, target: Target) -> Message:
    return _ask_settings("/v2/logging", request)


def _ask_settings(path: str, request: Request) -> Message:
    settings = _settings(request)
    if not settings:
        return Message("GET", path)
    document: dict[str, Any] = {key: list(each) if isinstance(each, tuple) else each for key, each in settings.items()}
    return Message("POST", path, JSON_HEADERS, (json.write(document),))


def _settings(request: Request) -> Mapping[str, SettingValue]:
    return request.settings if isinstance(request, ControlRequest) else {}


ASKING: Mapping[Operation, Callable[[Request, Target], Message]] = {
    Operation.MODEL_STATISTICS: _ask_statistics,
    Operation.ALL_STATISTICS: _ask_all_statistics,
    Operation.LOAD: partial(_ask_repository, "load"),
    Operation.UNLOAD: partial(_ask_repository, "unload"),
    Operation.TRACE_SETTINGS: _ask_trace_settings,
    Operation.LOG_SETTINGS: _ask_log_settings,
}


# --- from backends ---


def decode_statistics(reply: Message, limits: Limits) -> Statistics:
    """The counters of each version of each model. Raises DecodeError for another body."""
    entries = read_list(_read(reply, limits), "model_stats")
    return Statistics(tuple(_read_statistics(entry, position) for position, entry in enumerate(entries)))


def _read_statistics(entry: Entry, position: int) -> ModelStatistics:
    name = read_name(entry, "model", position)
    counters = {key: each for key, each in entry.items() if key not in ("name", "version")}
    return ModelStatistics(name, read_text(entry, "version"), counters)


def decode_done(reply: Message, limits: Limits) -> bool:
    """That it is done: the status said so."""
    return True


def decode_settings(reply: Message, limits: Limits) -> Entry:
    """All settings. Raises DecodeError where the body is no object."""
    return _read(reply, limits)


def _read(reply: Message, limits: Limits) -> Entry:
    return json.read(reply.body, {}, values=limits.json_values, literals=True)


ANSWERS: Mapping[Operation, Callable[[Message, Limits], Answer]] = {
    Operation.MODEL_STATISTICS: decode_statistics,
    Operation.ALL_STATISTICS: decode_statistics,
    Operation.LOAD: decode_done,
    Operation.UNLOAD: decode_done,
    Operation.TRACE_SETTINGS: decode_settings,
    Operation.LOG_SETTINGS: decode_settings,
}
