"""V2 REST's inference response: read from backends, written to clients."""

from typing import TypeAlias

from gateway import json
from gateway.core.protocol import Limits
from gateway.core.types import Answer, Buffer, Message, Request, Response, Tensor, Translate
from gateway.protocols.v2.parameters import read_parameters, writable
from gateway.protocols.v2.rest.binary import JSON_HEADERS, binary_headers, split
from gateway.protocols.v2.rest.json_fields import Entry, read_text
from gateway.protocols.v2.rest.requests import InferMessage
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON, binary_entry, json_entry, read_inference, read_tensors

_Outputs: TypeAlias = tuple[list[Entry], list[Buffer]]


def encode_infer(answer: Answer, request: Request, translate: Translate) -> Message:
    """The response in the forms that the client asked for, output by output; JSON where it did not say.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no JSON form.
    """
    assert isinstance(answer, Response)
    outputs, tensors = _write_outputs(answer.outputs, request.origin, translate)
    document = json.write_parts(_document(answer, request, outputs))
    if not tensors:
        # Triton, too, leaves the header out when every binary tensor is empty
        return Message(headers=JSON_HEADERS, parts=document, status=200)
    return Message(headers=binary_headers(sum(map(len, document))), parts=(*document, *tensors), status=200)


def _write_outputs(outputs: tuple[Tensor, ...], origin: Message | None, translate: Translate) -> _Outputs:
    entries: list[Entry] = []
    tensors: list[Buffer] = []
    for output in outputs:
        if not (isinstance(origin, InferMessage) and origin.wants_binary(output.name)):
            entries.append(json_entry(output, "output", translate, WITHOUT_JSON))
            continue
        entries.append(binary_entry(output))
        if len(output.data):
            tensors.append(output.data)
    return entries, tensors


def _document(response: Response, request: Request, outputs: list[Entry]) -> Entry:
    # Triton's order. Names, version and id are those that the client knows: MLServer answers a request without an id
    # with a fresh UUID, KServe with null.
    document: Entry = {}
    if request.id is not None:
        document["id"] = request.id
    document["model_name"] = request.model or response.model
    version = request.version or response.version
    if version:
        document["model_version"] = version
    if response.parameters:
        document["parameters"] = writable(response.parameters, "the response")
    document["outputs"] = outputs
    return document


def decode_infer(reply: Message, limits: Limits) -> Response:
    """The response in `reply`. Binary outputs are views on its body.

    Raises:
        DecodeError: not an inference response.
    """
    header, binary = split(reply)
    document = read_inference(header, limits.json_values)
    parameters = read_parameters(document.get("parameters"), "the response", reply=True)
    parameters.pop("binary_data_output", None)  # KServe's models repeat the request's, and this is the gateway's own
    return Response(
        read_tensors(document, "output", binary, limits.message, reply=True),
        read_text(document, "model_name"),
        read_text(document, "model_version"),
        document["id"] if isinstance(document.get("id"), str) else None,
        parameters,
        reply,
    )
