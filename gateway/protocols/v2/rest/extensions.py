"""Reads and writes the messages of V2 REST extensions, for clients and for backends.

The extensions are model repository (index, load, unload), model configuration, statistics, trace settings and log
settings.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from reprlib import repr as shown
from typing import Any

from gateway.core import json
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import JSON_HEADERS, Message
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.path_segments import path_segment
from gateway.core.protocol import EncodeResponse, Limits, ListenerSettings, Target
from gateway.core.requests import Answer, ControlRequest, Request, SettingValue, Translate
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.protocols.v2.extensions import config_for_client, index_entries
from gateway.protocols.v2.flavors import KSERVE
from gateway.protocols.v2.parameters import take_flag
from gateway.protocols.v2.rest.messages import (
    JsonObject,
    json_reply,
    read_list,
    read_name,
    read_reply,
    read_string,
    read_strings,
)

FILE = "file:"
"""The prefix of load parameters that contain a file from the model's folder in base64, such as `file:1/model.onnx`."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


# --- client side: requests ---


def decode_index_request(message: Message, listener: ListenerSettings) -> Request:
    """Return a request for the repository index.

    The parameter `ready` is set if the client asks only for models that are ready.

    Raises:
        DecodeError: the body is neither empty, as tritonclient sends it, nor a JSON object.
    """
    document: JsonObject = {}
    if len(message.body):
        document = json.read(message.body, {}, values=listener.limits.json_values, literals=False)
    ready = take_flag(document, "ready", "the repository index")
    return Request(Operation.MODELS, parameters={"ready": True} if ready else {}, origin=message)


def decode_control(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """Return a request to load or unload a model, or to read or change settings.

    Raises:
        DecodeError: the body is not valid for the operation.
    """
    model = message.captures.get("model", "")
    settings = _SETTINGS[operation](message, listener)
    return ControlRequest(operation, model, origin=message, settings=settings)


def _read_load_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """Return the `parameters` of a load or an unload: `config`, `file:PATH` in base64, `unload_dependents`, ..."""
    parameters = _read_body(message, listener).get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise DecodeError(f"parameters must be an object, not {shown(parameters)}")
    return {key: _read_load_setting(key, given) for key, given in parameters.items()}


def _read_load_setting(key: str, given: object) -> SettingValue:
    if not key.startswith(FILE):
        return _read_scalar(f"parameter {shown(key)}", given)
    if not isinstance(given, str):
        raise DecodeError(f"parameter {shown(key)} must be a string of base64, not {shown(given)}")
    try:
        return b64decode(given, validate=True)
    except Base64Error as error:
        raise DecodeError(f"parameter {shown(key)} is not base64: {error}") from error


def _read_trace_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """Return the settings to change. The values are strings, lists of strings, or null to reset a setting."""
    return {key: _read_trace_setting(key, given) for key, given in _read_body(message, listener).items()}


def _read_trace_setting(key: str, given: object) -> SettingValue:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return tuple(given)
    raise DecodeError(f"trace setting {shown(key)} must be a string, a list of strings or null, not {shown(given)}")


def _read_log_settings(message: Message, listener: ListenerSettings) -> dict[str, SettingValue]:
    """Return the settings to change. The values are strings, integers and booleans."""
    return {
        key: _read_scalar(f"log setting {shown(key)}", given) for key, given in _read_body(message, listener).items()
    }


def _read_scalar(what: str, given: object) -> SettingValue:
    if isinstance(given, bool | str) or (isinstance(given, int) and _INT64_MIN <= given <= _INT64_MAX):
        return given
    raise DecodeError(f"{what} must be a string, an integer or a boolean, not {shown(given)}")


def _read_body(message: Message, listener: ListenerSettings) -> JsonObject:
    if message.method == "GET" or not len(message.body):
        return {}
    return json.read(message.body, {}, values=listener.limits.json_values, literals=False)


_SETTINGS: Mapping[Operation, Callable[[Message, ListenerSettings], Mapping[str, SettingValue]]] = {
    Operation.LOAD: _read_load_settings,
    Operation.UNLOAD: _read_load_settings,
    Operation.TRACE_SETTINGS: _read_trace_settings,
    Operation.LOG_SETTINGS: _read_log_settings,
}
"""The function that reads the body of each operation."""


# --- client side: responses ---


def encode_index(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the repository index, which is a JSON array."""
    assert isinstance(answer, tuple)
    return json_reply([_write_entry(each) for each in index_entries(answer, request)])


def _write_entry(entry: ModelEntry) -> JsonObject:
    written: JsonObject = {"name": entry.name}
    for key, text in (("version", entry.version), ("state", entry.state), ("reason", entry.reason)):
        if text:
            written[key] = text
    return written


def encode_config(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a model's configuration. perf_analyzer requires this path, but accepts `{}`."""
    assert isinstance(answer, Mapping)
    return json_reply(config_for_client(request, answer))


def encode_statistics(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return `{"model_stats": [...]}`, like Triton."""
    assert isinstance(answer, Statistics)
    entries = [{"name": each.name, "version": each.version, **each.counters} for each in answer.models]
    return json_reply({"model_stats": entries})


def encode_done(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the empty response to a load or an unload."""
    return Message(headers=JSON_HEADERS, status=200)


def encode_settings(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return all settings in one JSON object."""
    assert isinstance(answer, Mapping)
    return json_reply(dict(answer))


# --- upstream side: requests ---


def encode_index_request(request: Request, target: Target) -> Message:
    """Return the request for the repository index. KServe has no index, so its request is for the model names."""
    if target.flavor == KSERVE:
        return Message("GET", "/v2/models")
    # Triton also accepts an empty body; MLServer responds to an empty body with 422
    return Message("POST", "/v2/repository/index", JSON_HEADERS, (b"{}",))


def encode_load_request(verb: str, request: Request, target: Target) -> Message:
    """Return the request to load or unload (`verb`) a model.

    Raise GatewayError (INVALID_ARGUMENT) if a parameter is invalid. The message says which."""
    parameters = {key: _write_load_setting(key, given) for key, given in _settings(request).items()}
    path = f"/v2/repository/models/{path_segment(request.model, 'model', 'V2')}/{verb}"
    return Message("POST", path, JSON_HEADERS, (json.write({"parameters": parameters} if parameters else {}),))


def _write_load_setting(key: str, given: SettingValue) -> object:
    if not isinstance(given, bytes):
        return given
    if not key.startswith(FILE):
        raise invalid_input(f"parameter {key!r} holds bytes, which V2 REST allows in {FILE}PATH only")
    return b64encode(given).decode()


def encode_trace_request(request: Request, target: Target) -> Message:
    """Return the request to read or change the trace settings of the server or of the model in `request`."""
    model = f"/models/{path_segment(request.model, 'model', 'V2')}" if request.model else ""
    return _encode_settings_request(f"/v2{model}/trace/setting", request)


def encode_log_request(request: Request, target: Target) -> Message:
    """Return the request to read or change the log settings."""
    return _encode_settings_request("/v2/logging", request)


def _encode_settings_request(path: str, request: Request) -> Message:
    settings = _settings(request)
    if not settings:
        return Message("GET", path)
    document: dict[str, Any] = {key: list(each) if isinstance(each, tuple) else each for key, each in settings.items()}
    return Message("POST", path, JSON_HEADERS, (json.write(document),))


def _settings(request: Request) -> Mapping[str, SettingValue]:
    return request.settings if isinstance(request, ControlRequest) else {}


# --- upstream side: responses ---


def decode_index(reply: Message, limits: Limits) -> tuple[ModelEntry, ...]:
    """Return the models in a repository index. Raise DecodeError for anything except an array of objects with names."""
    # `json.read` reads only objects, because all other bodies are objects, so wrap the array in an object with one
    # member
    wrapped = b'{"models":%b}' % bytes(reply.body)
    document = json.read(wrapped, {}, values=limits.of_lists.json_values, literals=False)
    if document.keys() != {"models"}:
        raise DecodeError("the repository index must be one array")
    return tuple(_read_entry(entry, position) for position, entry in enumerate(read_list(document, "models")))


def _read_entry(entry: JsonObject, position: int) -> ModelEntry:
    name = read_name(entry, "model", position)
    return ModelEntry(name, *(read_string(entry, key) for key in ("version", "state", "reason")))


def decode_model_names(reply: Message, limits: Limits) -> tuple[ModelEntry, ...]:
    """Return the models in KServe's `{"models": [names]}`. Raise DecodeError for anything else."""
    return tuple(map(ModelEntry, read_strings(read_reply(reply, limits.of_lists), "models")))


def decode_statistics(reply: Message, limits: Limits) -> Statistics:
    """Return the counters of each version of each model. Raise DecodeError for any other body."""
    entries = read_list(read_reply(reply, limits.of_lists), "model_stats")
    return Statistics(tuple(_read_statistics(entry, position) for position, entry in enumerate(entries)))


def _read_statistics(entry: JsonObject, position: int) -> ModelStatistics:
    name = read_name(entry, "model", position)
    counters = {key: each for key, each in entry.items() if key not in ("name", "version")}
    return ModelStatistics(name, read_string(entry, "version"), counters)


def decode_done(reply: Message, limits: Limits) -> bool:
    """Return True, because the status of the response to a load or an unload means that the operation is complete.

    The response contains nothing else."""
    return True


# --- responses of both sides ---

RESPONSES: dict[Operation, tuple[EncodeResponse, Callable[[Message, Limits], Answer]]] = {
    Operation.MODELS: (encode_index, decode_index),
    Operation.CONFIG: (encode_config, read_reply),
    Operation.MODEL_STATISTICS: (encode_statistics, decode_statistics),
    Operation.ALL_STATISTICS: (encode_statistics, decode_statistics),
    Operation.LOAD: (encode_done, decode_done),
    Operation.UNLOAD: (encode_done, decode_done),
    Operation.TRACE_SETTINGS: (encode_settings, read_reply),
    Operation.LOG_SETTINGS: (encode_settings, read_reply),
}
"""A map from each operation to the function that writes its response for clients, and to the function that reads it
from servers."""
