"""Reads and writes V1 metadata: liveness, the model list, KServe's readiness, and TensorFlow Serving's version status
and `signature_def`.

Listeners of both server types write a model's signature in TensorFlow Serving's format, because KServe offers no
metadata over V1.
"""

from typing import Any

from gateway.core.datatypes import TENSORFLOW_NAMES
from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import replace
from gateway.core.json import Json, read, write
from gateway.core.messages import JSON_HEADERS, Headers, Message
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.v1 import errors
from gateway.protocols.v1.schema import GATEWAY, KSERVE, MARK, SERVING_DEFAULT, TENSORFLOW

_ALIVE = b'{"status":"alive"}'
_ALIVE_HEADERS = Headers((*JSON_HEADERS.raw, (MARK, b"kserve")))
_DATATYPES = {name: datatype for datatype, name in TENSORFLOW_NAMES.items()}
_PREDICT = "tensorflow/serving/predict"
_AVAILABLE = "AVAILABLE"


# --- Client side ---


def encode_alive(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to `GET /`, which reports that the gateway is alive."""
    return Message(headers=_ALIVE_HEADERS, parts=(_ALIVE,), status=200)


def encode_models(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to `GET /v1/models`, which lists each model name once."""
    assert isinstance(answer, tuple)
    return _reply({"models": [*dict.fromkeys(entry.name for entry in answer)]})


def encode_ready(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return KServe's response to `GET /v1/models/{model}`, which contains `name` and `ready`, or has status 503."""
    if not answer:
        # KServe has sent this message since version 0.10
        return _reply({"error": f"Model with name {request.model} is not ready."}, 503)
    return _reply({"name": request.model, "ready": True})


def encode_status(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return TensorFlow Serving's response to `GET /v1/models/{model}`, which is the state of the requested version.

    If the request contains no version, the response reports version 1, because the gateway cannot determine the version
    that runs."""
    version = request.version or "1"
    state = {
        "version": version,
        "state": _AVAILABLE if answer else "LOADING",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return _reply({"model_version_status": [state]})


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to `GET /v1/models/{model}/metadata`, which contains `model_spec` and `signature_def`."""
    assert isinstance(answer, Signature)
    version = request.version or (answer.versions[-1] if answer.versions else "")
    definition = {
        "inputs": {spec.name: _info(spec) for spec in answer.inputs},
        "outputs": {spec.name: _info(spec) for spec in answer.outputs},
        "method_name": _PREDICT,
    }
    return _reply(
        {
            "model_spec": {"name": request.model, "signature_name": "", "version": version},
            "metadata": {"signature_def": {"signature_def": {SERVING_DEFAULT: definition}}},
        }
    )


def _info(spec: TensorSpec) -> dict[str, Json]:
    dimensions = [{"size": str(size), "name": ""} for size in spec.shape]
    shape = {"dim": dimensions, "unknown_rank": False}
    return {"dtype": TENSORFLOW_NAMES[spec.datatype], "tensor_shape": shape, "name": f"{spec.name}:0"}


def _reply(document: dict[str, Json], status: int = 200) -> Message:
    return Message(headers=JSON_HEADERS, parts=(write(document),), status=status)


# --- Upstream side ---


def decode_alive(reply: Message) -> bool:
    """Return whether the server is alive. TensorFlow Serving responds with 404 to `GET /`, which counts as alive.

    Raises:
        GatewayError: the error in a response with status 500 or above.
    """
    if reply.status >= 500:
        raise errors.decode_error(reply)
    return True


def decode_server(reply: Message) -> ServerInfo:
    """Return the server type according to the response to `GET /`, or an empty string if the type is unknown.

    Raises:
        GatewayError: the error in the response.
    """
    if reply.status == 404:
        return ServerInfo(TENSORFLOW, "")
    if reply.status != 200:
        raise errors.decode_error(reply)
    if bytes(reply.body).replace(b" ", b"") != _ALIVE:
        return ServerInfo("", "")
    return ServerInfo(GATEWAY if reply.headers.get(MARK.decode()) else KSERVE, "")


def decode_models(reply: Message, target: Target) -> tuple[ModelEntry, ...]:
    """Return the models in the response to `GET /v1/models`. Raise DecodeError if the response is not a list of
    names."""
    names = _document(reply, replace(target, limits=target.limits.of_lists)).get("models")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DecodeError('expected an array of model names at "models"')
    return tuple(map(ModelEntry, names))


def decode_ready(reply: Message, request: Request, target: Target) -> bool:
    """Return whether the model is ready, from either server type's response to `GET /v1/models/{model}`. In KServe 0.9
    and earlier, the body of the 503 response is `{"ready": false}`.

    Raises:
        GatewayError: the error in the response; UNIMPLEMENTED if the server does not have the path, because it might
            have only `:predict`.
        DecodeError: the response is not from a known server type.
    """
    if reply.status == 503:
        error = errors.decode_error(reply)
        if error.message.endswith("is not ready.") or b'"ready"' in bytes(reply.body):
            return False
        raise error
    document = _document(reply, target, request.model)
    if isinstance(document.get("ready"), bool):
        return bool(document["ready"])
    return bool(_available(document))


def decode_status(reply: Message, request: Request, target: Target) -> Signature:
    """Return the available model versions, in a Signature without tensors.

    The Signature is empty if the server does not have the path, because it might have only `:predict`.

    Raises:
        GatewayError, DecodeError: the errors of `decode_ready`.
    """
    if errors.lacks_path(reply, request.model):
        return Signature()
    if reply.status == 503 and not decode_ready(reply, request, target):
        return Signature(name=request.model)
    document = _document(reply, target, request.model)
    name = _name(document, request)
    return Signature(name=name, versions=() if "ready" in document else _available(document))


def _name(document: dict[str, Json], request: Request) -> str:
    """Return the server's name for the model, or the name in the request if the server does not report a name."""
    name = document.get("name")
    return name if isinstance(name, str) and name else request.model


def _available(document: dict[str, Json]) -> tuple[str, ...]:
    states = _member(document, "model_version_status", None)
    if not isinstance(states, list):
        raise DecodeError('expected "ready" or "model_version_status"')
    # protobuf's JSON mapping omits the state UNKNOWN, which is 0
    found = [each for each in states if isinstance(each, dict) and each.get("state") == _AVAILABLE]
    return tuple(str(each.get("version", "")) for each in found)


def decode_metadata(reply: Message, request: Request, target: Target) -> Signature:
    """Return the model's default signature, which is `serving_default` or the model's only signature.

    The result has no tensors if the server offers no metadata (KServe), if the model has no such signature, or if a
    tensor has an unknown datatype or rank. A signature without a method name comes from OpenVINO's server, which
    decodes image files.

    Raises:
        GatewayError: the error in the response.
        DecodeError: the response is not TensorFlow Serving's metadata.
    """
    if errors.lacks_path(reply, request.model):
        return Signature()  # KServe sends the name with the status
    document = _document(reply, target, request.model)
    try:
        spec = _member(document, "model_spec", {})
        name, version = _name(spec, request), spec.get("version", "")
        definitions = _member(_member(document["metadata"], "signature_def"), "signature_def")
        definition = definitions.get(SERVING_DEFAULT) or (
            next(iter(definitions.values())) if len(definitions) == 1 else {}
        )
        inputs, outputs = (_specs(definition.get(side, {})) for side in ("inputs", "outputs"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"the metadata for model {request.model!r} has no valid signature_def: {_shown(error)}"
        raise DecodeError(text) from error
    versions = (str(version),) if version else ()
    signature = Signature(inputs or (), outputs or (), name=name, versions=versions)
    return signature if _member(definition, "method_name", "") else signature.with_images()


def _member(document: dict[str, Json], name: str, *default: Json) -> Any:
    """Return a member by its name in the schema, or by its name in lowerCamelCase, as in protobuf's JSON mapping.

    OpenVINO's server writes both forms. Raise KeyError if the member is missing and the caller passes no `default`."""
    first, *others = name.split("_")
    for spelling in (name, first + "".join(map(str.capitalize, others))):
        if spelling in document:
            return document[spelling]
    if default:
        return default[0]
    raise KeyError(name)


def _shown(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _specs(tensors: dict[str, Json]) -> tuple[TensorSpec, ...] | None:
    """Return the specifications of the tensors, or None if a specification cannot represent a tensor."""
    found = [_spec(name, info) for name, info in tensors.items()]
    return None if None in found else tuple(each for each in found if each is not None)


def _spec(name: str, info: dict[str, Json]) -> TensorSpec | None:
    shape = _member(info, "tensor_shape", {})
    datatype = _DATATYPES.get(info["dtype"])
    if datatype is None or _member(shape, "unknown_rank", False):
        return None
    # protobuf's JSON mapping omits zeros
    return TensorSpec(name, datatype, tuple(int(each.get("size", 0)) for each in shape.get("dim", ())))


def _document(reply: Message, target: Target, model: str = "") -> dict[str, Json]:
    if errors.lacks_path(reply, model):
        text = "the server does not describe its models: it lacks the V1 path for model metadata"
        raise unsupported(f"{text}; declare the tensors by `signature` on the route")
    if reply.status >= 400:
        raise errors.decode_error(reply)
    if reply.status != 200:
        raise DecodeError(f"status {reply.status}, expected 200")
    return read(reply.body, {}, values=target.limits.json_values, literals=True)
