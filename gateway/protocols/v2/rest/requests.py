"""V2 REST's inference request: read from clients, written to backends."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gateway import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import extended, frozen, replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Buffer, Headers, Message, Request, RequestedOutput
from gateway.protocols.v2.extensions import check_outputs
from gateway.protocols.v2.flavors import KSERVE, MLSERVER, PLAIN
from gateway.protocols.v2.parameters import (
    read_parameters,
    refuse_shared_memory,
    take_deadline,
    take_flag,
    without_consumed,
    writable,
)
from gateway.protocols.v2.rest.binary import JSON_HEADERS, binary_headers, split
from gateway.protocols.v2.rest.json_fields import Entry, read_id, read_list, read_name
from gateway.protocols.v2.rest.paths import backend_path
from gateway.protocols.v2.rest.tensors import (
    WITHOUT_JSON,
    binary_entry,
    json_entry,
    read_inference,
    read_tensors,
)
from gateway.protocols.v2.widening import widened

NAME = "v2-rest"

_WHAT = "the request"


@frozen
class InferMessage(Message):
    """An inference's message, and in which form its client wants the outputs: `binary`, but for the exceptions."""

    binary: bool = False
    exceptions: Mapping[str, bool] = field(default_factory=dict)

    def wants_binary(self, output: str) -> bool:
        """Whether the client asked for `output` in the binary form."""
        return self.exceptions.get(output, self.binary)


def decode_infer(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/infer`.

    Raises:
        DecodeError: not an inference request, or one that a real server must not see.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    header, binary = split(message)
    document = read_inference(header, listener.limits.json_values)
    inputs = read_tensors(document, "input", binary, listener.limits.message, reply=False)
    parameters = read_parameters(document.get("parameters"), _WHAT)
    refuse_shared_memory(parameters, _WHAT)
    wants_binary = take_flag(parameters, "binary_data_output", _WHAT) or False
    outputs, exceptions = _read_outputs(document)
    deadline = take_deadline(parameters, message, _WHAT)
    return Request(
        Operation.INFER,
        message.captures["model"],
        message.captures.get("version", ""),
        read_id(document.get("id")),
        inputs,
        outputs,
        without_consumed(parameters),
        deadline=deadline,
        origin=_with_forms(message, wants_binary, exceptions),
    )


def _read_outputs(document: Entry) -> tuple[tuple[RequestedOutput, ...], dict[str, bool]]:
    """The requested outputs, and the `binary_data` of those that have it."""
    outputs: dict[str, RequestedOutput] = {}
    exceptions: dict[str, bool] = {}
    for position, entry in enumerate(read_list(document, "outputs")):
        name = read_name(entry, "output", position)
        if name in outputs:
            raise DecodeError(f"output {name!r} is requested twice")
        what = f"output {name!r}"
        parameters = read_parameters(entry.get("parameters"), what)
        refuse_shared_memory(parameters, what)
        binary = take_flag(parameters, "binary_data", what)
        if binary is not None:
            exceptions[name] = binary
        outputs[name] = RequestedOutput(name, parameters)
    return tuple(outputs.values()), exceptions


def _with_forms(message: Message, binary: bool, exceptions: dict[str, bool]) -> Message:
    if not binary and not exceptions:
        return message
    return extended(InferMessage, message, binary, exceptions)


def encode_infer(request: Request, target: Target) -> Message:
    """The inference as a server of `target`'s flavor takes it.

    Raises:
        GatewayError: INVALID_ARGUMENT naming what has no form on the wire; UNIMPLEMENTED, an extension that the server
            lacks.
    """
    form = _FORMS.get(target.flavor, _BINARY)
    path = backend_path(request, target, "/infer")
    if request.outputs:
        check_outputs(request.outputs, target)
    if form.needs_id and request.id is None:
        request = replace(request, id="")
    headers, parts = (_write_binary if form.binary else _write_json)(request, form.lacks)
    return Message("POST", path, headers, parts)


def encode_infer_stream(request: Request, target: Target) -> Message:
    """The same as a question for a stream, whose events are JSON texts: MLServer's, and another gateway's.

    Raises:
        GatewayError: as `encode_infer`.
    """
    if request.outputs:
        check_outputs(request.outputs, target)
    lacks = _FORMS[MLSERVER].lacks if target.flavor == MLSERVER else WITHOUT_JSON
    headers, parts = _write_json(request, lacks)
    return Message("POST", backend_path(request, target, "/generate_stream"), headers, parts)


@frozen
class _Form:
    """How a flavor takes tensors; it `lacks` these datatypes. `needs_id`: it fails on a request without one."""

    binary: bool
    lacks: frozenset[Datatype] = frozenset()
    needs_id: bool = False


_BINARY = _Form(binary=True)
_FORMS = {
    # Its models answer with the request's id, and None is not valid in its JSON replies
    KSERVE: _Form(binary=True, lacks=frozenset({Datatype.BF16}), needs_id=True),
    # It has no binary extension, but takes FP16 as JSON
    MLSERVER: _Form(binary=False, lacks=frozenset({Datatype.BF16})),
    PLAIN: _Form(binary=False, lacks=WITHOUT_JSON),
}
"""The others are binary in all."""


def _write_binary(request: Request, lacks: frozenset[Datatype]) -> tuple[Headers, tuple[Buffer, ...]]:
    parameters: dict[str, Any] = dict(request.parameters)
    if not request.outputs:
        parameters["binary_data_output"] = True
    inputs = [widened(each, lacks) for each in request.inputs] if lacks else request.inputs
    document = _document(request, [binary_entry(each) for each in inputs], parameters, binary=True)
    header = json.write(document)
    return binary_headers(len(header)), (header, *[each.data for each in inputs if len(each.data)])


def _write_json(request: Request, lacks: frozenset[Datatype]) -> tuple[Headers, tuple[Buffer, ...]]:
    inputs = [json_entry(each, "input", request.translate, lacks) for each in request.inputs]
    return JSON_HEADERS, json.write_parts(_document(request, inputs, dict(request.parameters), binary=False))


def _document(request: Request, inputs: list[Entry], parameters: dict[str, Any], *, binary: bool) -> Entry:
    document: Entry = {}
    if request.id is not None:
        document["id"] = request.id
    if parameters:
        document["parameters"] = writable(parameters, _WHAT)
    document["inputs"] = inputs
    if request.outputs:
        document["outputs"] = [_requested(each, binary) for each in request.outputs]
    return document


def _requested(output: RequestedOutput, binary: bool) -> Entry:
    parameters = {**output.parameters, "binary_data": True} if binary else output.parameters
    return {"name": output.name, "parameters": parameters} if parameters else {"name": output.name}
