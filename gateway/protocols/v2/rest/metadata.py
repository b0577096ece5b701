"""V2 REST's other answers: health, metadata, the repository index and a model's configuration."""

from collections.abc import Mapping
from typing import Any

from gateway import json
from gateway.core.errors import DecodeError
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.types import (
    Answer,
    Message,
    ModelEntry,
    NotReady,
    Request,
    ServerInfo,
    Signature,
    TensorSpec,
    Translate,
)
from gateway.protocols.v2.extensions import named_for
from gateway.protocols.v2.flavors import BINARY_EXTENSION
from gateway.protocols.v2.index import asked_for
from gateway.protocols.v2.parameters import take_flag
from gateway.protocols.v2.rest.binary import JSON_HEADERS
from gateway.protocols.v2.rest.json_fields import Entry, read_list, read_name, read_text, read_texts
from gateway.protocols.v2.tensors import read_datatype, read_dimensions

EXTENSIONS = (BINARY_EXTENSION, "parameters")
"""Triton's names of the extensions that this wire form always has."""

GATEWAY_INFER = "gateway_infer"
"""A parameter of model metadata (MLServer's has `parameters`, too), false where only the model's companions can be
inferred: a UM-Bridge model may claim its gradient alone, and gateways in a row are to lose nothing."""


def _reply(document: object, status: int = 200) -> Message:
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=status)


_HEALTH = {Operation.LIVE: "live", Operation.READY: "ready", Operation.MODEL_READY: "ready"}


def encode_health(answer: Answer, request: Request, translate: Translate) -> Message:
    """Whether the server is live, the server ready or the model ready: 200, else 400."""
    # The status is the answer ("a 4xx status code indicates false", in Triton 400). The specification would have the
    # body empty, and tritonclient does not look; but KServe's client reads OIP's {"live": true} and fails without it.
    healthy = answer is True
    document: Entry = {_HEALTH[request.operation]: healthy}
    if request.operation is Operation.MODEL_READY:
        document = {"name": request.model, **document}
        if not healthy:
            document["error"] = f"model {request.model!r} is not ready"
    if isinstance(answer, NotReady):
        document["error"] = answer.text
    return _reply(document, 200 if healthy else 400)


def encode_server_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """The specification's $metadata_server_response; extensions are this wire's own unless the answer has some."""
    assert isinstance(answer, ServerInfo)
    extensions = answer.extensions or EXTENSIONS
    return _reply({"name": answer.name, "version": answer.version, "extensions": extensions})


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """The specification's $metadata_model_response; what nobody knows is an empty list."""
    assert isinstance(answer, Signature)
    document: Entry = {
        "name": request.model or answer.name,
        "versions": answer.versions,
        "platform": answer.platform,
        "inputs": [_write_spec(each) for each in answer.inputs],
        "outputs": [_write_spec(each) for each in answer.outputs],
    }
    if Operation.INFER not in answer.operations:
        document["parameters"] = {GATEWAY_INFER: False}
    return _reply(document)


def _write_spec(spec: TensorSpec) -> Entry:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def encode_config(answer: Answer, request: Request, translate: Translate) -> Message:
    """A model's configuration. `{}` is enough for perf_analyzer, which does not run without the path."""
    assert isinstance(answer, Mapping)
    return _reply(named_for(request, answer))


def encode_index(answer: Answer, request: Request, translate: Translate) -> Message:
    """The repository index: an array."""
    assert isinstance(answer, tuple)
    return _reply([_write_entry(each) for each in asked_for(answer, request)])


def _write_entry(entry: ModelEntry) -> Entry:
    written: Entry = {"name": entry.name}
    for key, text in (("version", entry.version), ("state", entry.state), ("reason", entry.reason)):
        if text:
            written[key] = text
    return written


def decode_index_request(message: Message, listener: ListenerSettings) -> dict[str, Any]:
    """The parameters of a repository index request: `ready`, if the client wants only models that are.

    Raises:
        DecodeError: a body that is neither empty, as tritonclient's, nor a JSON object.
    """
    if not len(message.body):
        return {}
    document = json.read(message.body, {}, values=listener.limits.json_values, literals=False)
    return {"ready": True} if take_flag(document, "ready", "the repository index") else {}


def decode_server_metadata(reply: Message, limits: Limits) -> ServerInfo:
    """A server's name, version and extensions. Raises DecodeError for another body."""
    document = _read(reply, limits)
    extensions = read_texts(document, "extensions")
    return ServerInfo(read_text(document, "name"), read_text(document, "version"), extensions)


def decode_metadata(reply: Message, limits: Limits) -> Signature:
    """A model's Signature; MLServer leaves out what its settings do not declare, KServe writes null versions.

    Raises:
        DecodeError: another body, an unknown datatype, a dimension below -1.
    """
    document = _read(reply, limits)
    return Signature(
        _read_specs(document, "input"),
        _read_specs(document, "output"),
        _read_operations(document.get("parameters")),
        name=read_text(document, "name"),
        versions=read_texts(document, "versions"),
        platform=read_text(document, "platform"),
    )


def _read_operations(parameters: object) -> frozenset[Operation]:
    if isinstance(parameters, dict) and parameters.get(GATEWAY_INFER) is False:
        return frozenset()
    return frozenset({Operation.INFER})


def _read_specs(document: Entry, role: str) -> tuple[TensorSpec, ...]:
    specs = []
    for position, entry in enumerate(read_list(document, f"{role}s")):
        name = read_name(entry, role, position)
        what = f"{role} {name!r}"
        datatype = read_datatype(entry.get("datatype"), what)
        specs.append(TensorSpec(name, datatype, read_dimensions(entry.get("shape"), what)))
    return tuple(specs)


def decode_config(reply: Message, limits: Limits) -> Entry:
    """A model's configuration, as it is. Raises DecodeError where it is no object."""
    return _read(reply, limits)


def decode_index(reply: Message, limits: Limits) -> tuple[ModelEntry, ...]:
    """The models of a repository index. Raises DecodeError for anything but an array of named objects."""
    # an array where every other body is an object: read as the one member of an object
    wrapped = b'{"models":%b}' % bytes(reply.body)
    document = json.read(wrapped, {}, values=limits.json_values, literals=False)
    if document.keys() != {"models"}:
        raise DecodeError("the repository index must be one array")
    return tuple(_read_entry(entry, position) for position, entry in enumerate(read_list(document, "models")))


def decode_model_names(reply: Message, limits: Limits) -> tuple[ModelEntry, ...]:
    """The models of KServe's `{"models": [names]}`. Raises DecodeError for anything else."""
    return tuple(map(ModelEntry, read_texts(_read(reply, limits), "models")))


def _read_entry(entry: Entry, position: int) -> ModelEntry:
    name = read_name(entry, "model", position)
    return ModelEntry(name, *(read_text(entry, key) for key in ("version", "state", "reason")))


def _read(reply: Message, limits: Limits) -> Entry:
    # Triton writes NaN and Infinity where a configuration has them
    return json.read(reply.body, {}, values=limits.json_values, literals=True)
