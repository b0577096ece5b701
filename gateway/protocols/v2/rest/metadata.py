"""Reads and writes V2 REST health, server metadata and model metadata, for clients and for backends."""

from gateway.core.messages import Message
from gateway.core.models import NotReady, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Limits
from gateway.core.requests import Answer, Request, Translate
from gateway.protocols.v2.flavors import BINARY_EXTENSION
from gateway.protocols.v2.rest.messages import (
    JsonObject,
    json_reply,
    read_list,
    read_name,
    read_reply,
    read_string,
    read_strings,
)
from gateway.protocols.v2.tensors import read_datatype, read_dimensions

OWN_EXTENSIONS = (BINARY_EXTENSION, "parameters")
"""The extensions that the gateway always supports over REST, under Triton's names."""

GATEWAY_INFER = "gateway_infer"
"""A parameter in model metadata that only gateways read and write. The value is False for a model that supports
derivatives but not `infer`, such as a UM-Bridge model that supports only Gradient. MLServer's metadata also contains
`parameters`, but not this parameter."""


# --- client side ---

_HEALTH = {Operation.LIVE: "live", Operation.READY: "ready", Operation.MODEL_READY: "ready"}


def encode_health(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return a response that reports whether the server is live or ready, or whether the model is ready.

    The status is 200 for yes and 400 for no."""
    # The status is the result ("a 4xx status code indicates false"; Triton uses 400). The specification defines an
    # empty body, and tritonclient ignores the body. KServe's client, however, fails without {"live": true}, which the
    # newer OIP defines.
    healthy = answer is True
    document: JsonObject = {_HEALTH[request.operation]: healthy}
    if request.operation is Operation.MODEL_READY:
        document = {"name": request.model, **document}
        if not healthy:
            document["error"] = f"model {request.model!r} is not ready"
    if isinstance(answer, NotReady):
        document["error"] = answer.text
    return json_reply(document, 200 if healthy else 400)


def encode_server_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the specification's $metadata_server_response.

    The response lists the extensions in the answer, or the gateway's own extensions over REST if the answer has
    none."""
    assert isinstance(answer, ServerInfo)
    extensions = answer.extensions or OWN_EXTENSIONS
    return json_reply({"name": answer.name, "version": answer.version, "extensions": extensions})


def encode_metadata(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the specification's $metadata_model_response. Unknown values are empty lists or strings."""
    assert isinstance(answer, Signature)
    document: JsonObject = {
        "name": request.model or answer.name,
        "versions": answer.versions,
        "platform": answer.platform,
        "inputs": [_write_spec(each) for each in answer.inputs],
        "outputs": [_write_spec(each) for each in answer.outputs],
    }
    if Operation.INFER not in answer.operations:
        document["parameters"] = {GATEWAY_INFER: False}
    return json_reply(document)


def _write_spec(spec: TensorSpec) -> JsonObject:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


# --- upstream side ---


def decode_server_metadata(reply: Message, limits: Limits) -> ServerInfo:
    """Return a server's name, version and extensions. Raise DecodeError for any other body."""
    document = read_reply(reply, limits)
    extensions = read_strings(document, "extensions")
    return ServerInfo(read_string(document, "name"), read_string(document, "version"), extensions)


def decode_metadata(reply: Message, limits: Limits) -> Signature:
    """Return a model's Signature.

    MLServer omits fields that the model's settings do not declare. KServe writes null for versions.

    Raises:
        DecodeError: the body is another document, or contains an unknown datatype or a dimension below -1.
    """
    document = read_reply(reply, limits)
    return Signature(
        _read_specs(document, "input"),
        _read_specs(document, "output"),
        _read_operations(document.get("parameters")),
        name=read_string(document, "name"),
        versions=read_strings(document, "versions"),
        platform=read_string(document, "platform"),
    )


def _read_operations(parameters: object) -> frozenset[Operation]:
    if isinstance(parameters, dict) and parameters.get(GATEWAY_INFER) is False:
        return frozenset()
    return frozenset({Operation.INFER})


def _read_specs(document: JsonObject, role: str) -> tuple[TensorSpec, ...]:
    specs = []
    for position, entry in enumerate(read_list(document, f"{role}s")):
        name = read_name(entry, role, position)
        what = f"{role} {name!r}"
        datatype = read_datatype(entry.get("datatype"), what)
        specs.append(TensorSpec(name, datatype, read_dimensions(entry.get("shape"), what)))
    return tuple(specs)
