"""Facing clients: reads V2 REST's requests and writes its responses."""

import re
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from gateway import json
from gateway.core.errors import DecodeError
from gateway.core.frozen import extended, field, replace
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import DecodeRequest, EncodeResponse, ListenerSettings
from gateway.core.types import Answer, Buffer, Message, Request, RequestedOutput, Response, Tensor, Translate, reply
from gateway.protocols.v2.extensions import refuse_shared_memory_request
from gateway.protocols.v2.parameters import refuse_shared_memory, take_deadline, take_flag, without_consumed
from gateway.protocols.v2.rest import events, extensions, generate, metadata, repeated, verbatim
from gateway.protocols.v2.rest.binary import HEADER_LENGTH, binary_headers, split_body
from gateway.protocols.v2.rest.json_bodies import JSON_HEADERS, JsonObject, read_id, read_list, read_name
from gateway.protocols.v2.rest.parameters import json_parameters, read_parameters
from gateway.protocols.v2.rest.recalled import MakeOrigin, remember_request, request_like_before
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON, read_document, write_binary, write_json
from gateway.protocols.v2.rest.verbatim import BodyForm

_WHAT = "the request"
# Python 3.11 takes ten times as long to find a member in its class.
_JSON, _BINARY = BodyForm.JSON, BodyForm.BINARY


# --- inference requests ---


class BinaryOutputMessage(Message, frozen=True):
    """The message of an inference whose client wants outputs in the binary tensor data extension.

    The fields are the extension's parameters: `binary_data_output` of the request, and `binary_data` of the requested
    outputs that have it, which overrides the former.
    """

    binary_data_output: bool = False
    binary_data: Mapping[str, bool] = field(default_factory=dict)

    def wants_binary(self, output: str) -> bool:
        """Whether the client wants `output` in binary."""
        return self.binary_data.get(output, self.binary_data_output)


def _decode_infer(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/infer`."""
    limits = listener.limits
    if (known := request_like_before(message, limits)) is not None:
        return known
    header, binary = split_body(message)
    document, inputs = read_document(header, "input", binary, limits.json_values, limits.message)
    parameters = read_parameters(document.get("parameters"), _WHAT)
    refuse_shared_memory(parameters, _WHAT)
    binary_data_output = take_flag(parameters, "binary_data_output", _WHAT) or False
    outputs, binary_data = _read_outputs(document)
    make_origin = _make_origin(binary_data_output, binary_data)
    deadline = take_deadline(parameters, message, _WHAT)
    forwarded = without_consumed(parameters)
    request = Request(
        INFER,
        message.captures["model"],
        message.captures.get("version", ""),
        read_id(document),
        inputs,
        outputs,
        forwarded,
        "",
        deadline,
        message if make_origin is None else make_origin(message),
        original=verbatim.of_request(document, header, message, inputs, outputs, forwarded),
    )
    remember_request(document, header, request, make_origin)
    return request


def _read_outputs(document: JsonObject) -> tuple[tuple[RequestedOutput, ...], dict[str, bool]]:
    """The requested outputs, and the parameter `binary_data` of those that have it."""
    outputs: dict[str, RequestedOutput] = {}
    binary_data: dict[str, bool] = {}
    for position, entry in enumerate(read_list(document, "outputs")):
        name = read_name(entry, "output", position)
        if name in outputs:
            raise DecodeError(f"output {name!r} is requested twice")
        what = f"output {name!r}"
        parameters = read_parameters(entry.get("parameters"), what)
        refuse_shared_memory(parameters, what)
        binary = take_flag(parameters, "binary_data", what)
        if binary is not None:
            binary_data[name] = binary
        outputs[name] = RequestedOutput(name, parameters)
    return tuple(outputs.values()), binary_data


def _make_origin(binary_data_output: bool, binary_data: dict[str, bool]) -> MakeOrigin | None:
    """The function that makes the `origin` of a request of its message; None if that is the message, since all outputs
    are wanted in JSON."""
    if not binary_data_output and True not in binary_data.values():
        return None
    return lambda message: extended(BinaryOutputMessage, message, binary_data_output, binary_data)


# --- generate and streams ---
#
# Triton and MLServer both have the paths `generate` and `generate_stream`. Triton's requests name their inputs as
# members of one object; MLServer's are those of `infer`, with a list `inputs` of objects, and so is `infer_stream`.

# inside of a JSON string the quotes would have backslashes
_INPUTS = re.compile(rb'"inputs"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+\{')

_STREAM_PATHS = ("/generate_stream", "/infer_stream")


def wants_stream(message: Message) -> bool:
    """Whether the message's path is one that answers with a stream of responses."""
    return message.pattern.endswith(_STREAM_PATHS)


def _decode_generate(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/generate`, or `/generate_stream`."""
    if message.headers.get(HEADER_LENGTH) or _INPUTS.search(message.body):
        request = _decode_infer(message, listener)
    else:
        request = generate.decode_request(message, listener)
    return replace(request, operation=STREAM) if wants_stream(message) else request


def _decode_infer_stream(message: Message, listener: ListenerSettings) -> Request:
    """`POST v2/models/{model}[/versions/{version}]/infer_stream`."""
    return replace(_decode_infer(message, listener), operation=STREAM)


# --- all requests, by path ---


def _decode_path(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """A request that is all in its path."""
    captures = message.captures
    return Request(operation, captures.get("model", ""), captures.get("version", ""), origin=message)


_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"

_DECODERS: dict[str, DecodeRequest] = {
    "GET /v2": partial(_decode_path, Operation.SERVER_METADATA),
    "GET /v2/health/live": partial(_decode_path, Operation.LIVE),
    "GET /v2/health/ready": partial(_decode_path, Operation.READY),
    f"GET {_MODEL}": partial(_decode_path, Operation.METADATA),
    f"GET {_VERSION}": partial(_decode_path, Operation.METADATA),
    f"GET {_MODEL}/ready": partial(_decode_path, Operation.MODEL_READY),
    f"GET {_VERSION}/ready": partial(_decode_path, Operation.MODEL_READY),
    f"GET {_MODEL}/config": partial(_decode_path, Operation.CONFIG),
    f"GET {_VERSION}/config": partial(_decode_path, Operation.CONFIG),
    f"POST {_MODEL}/infer": _decode_infer,
    f"POST {_VERSION}/infer": _decode_infer,
    f"POST {_MODEL}/generate": _decode_generate,
    f"POST {_VERSION}/generate": _decode_generate,
    f"POST {_MODEL}/generate_stream": _decode_generate,
    f"POST {_VERSION}/generate_stream": _decode_generate,
    f"POST {_MODEL}/infer_stream": _decode_infer_stream,
    f"POST {_VERSION}/infer_stream": _decode_infer_stream,
    "POST /v2/repository/index": extensions.decode_index_request,
    "GET /v2/models/stats": partial(_decode_path, Operation.ALL_STATISTICS),
    f"GET {_MODEL}/stats": partial(_decode_path, Operation.MODEL_STATISTICS),
    f"GET {_VERSION}/stats": partial(_decode_path, Operation.MODEL_STATISTICS),
    "POST /v2/repository/models/{model}/load": partial(extensions.decode_control, Operation.LOAD),
    "POST /v2/repository/models/{model}/unload": partial(extensions.decode_control, Operation.UNLOAD),
    "GET /v2/trace/setting": partial(extensions.decode_control, Operation.TRACE_SETTINGS),
    "POST /v2/trace/setting": partial(extensions.decode_control, Operation.TRACE_SETTINGS),
    f"GET {_MODEL}/trace/setting": partial(extensions.decode_control, Operation.TRACE_SETTINGS),
    f"POST {_MODEL}/trace/setting": partial(extensions.decode_control, Operation.TRACE_SETTINGS),
    "GET /v2/logging": partial(extensions.decode_control, Operation.LOG_SETTINGS),
    "POST /v2/logging": partial(extensions.decode_control, Operation.LOG_SETTINGS),
    **{
        pattern.format(kind=kind): partial(refuse_shared_memory_request, kind)
        for kind in ("system", "cuda", "tpu")
        for pattern in (
            "GET /v2/{kind}sharedmemory/status",
            "GET /v2/{kind}sharedmemory/region/{{region}}/status",
            "POST /v2/{kind}sharedmemory/region/{{region}}/register",
            "POST /v2/{kind}sharedmemory/region/{{region}}/unregister",
            "POST /v2/{kind}sharedmemory/unregister",
        )
    },
}

PATTERNS = tuple(_DECODERS)
"""The methods and paths that are served."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The request in a client's message.

    Raises:
        DecodeError: a body that is no request of its path, or one that would crash a real server.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit; UNIMPLEMENTED, shared memory.
    """
    return _DECODERS[message.pattern](message, listener)


# --- responses ---

_Outputs: TypeAlias = tuple[list[JsonObject], list[Buffer]]


def _encode_infer(answer: Answer, request: Request, translate: Translate) -> Message:
    """The response, with each output in the form that the client asked for; JSON if it did not ask."""
    if request.schemaless:
        return generate.encode_response(answer, request, translate)
    assert isinstance(answer, Response)
    form, original = _form_of(answer, request.origin), answer.original
    if original is not None and original.form is form:
        original = verbatim.response_as_it_came(answer, request, form, translate)
        if original is not None:
            return reply(verbatim.headers_of(original), original.parts, 200)
    return _encode_response(answer, request, form, translate)


def _form_of(response: Response, origin: Message | None) -> BodyForm | None:
    """The form in which the client wants all outputs; None if it wants some in each."""
    if not isinstance(origin, BinaryOutputMessage):
        return _JSON
    return _BINARY if all(origin.wants_binary(each.name) for each in response.outputs) else None


def _encode_stream(answer: Answer, request: Request, translate: Translate) -> Message:
    """One response of a stream, in the form of its request. Always in JSON, since events are text."""
    if request.schemaless:
        message = generate.encode_response(answer, request, translate)
    else:
        assert isinstance(answer, Response)
        message = _encode_response(answer, request, _JSON, translate)
    return replace(message, headers=events.HEADERS)


def encode_end(request: Request) -> Message:
    """An empty message: a stream without a response still needs its status and headers."""
    return Message(headers=events.HEADERS, status=200)


def _encode_response(response: Response, request: Request, form: BodyForm | None, translate: Translate) -> Message:
    """The response with its outputs in `form`, as `_form_of`."""
    if form is not None and (written := repeated.response_in(form, response, request)) is not None:
        headers, parts = written
        return reply(headers, parts, 200)
    outputs, tensors = _write_outputs(response.outputs, None if form is _JSON else request.origin, translate)
    document = json.write_parts(_response_document(response, request, outputs))
    if not tensors:
        # like Triton, without the header if every binary tensor is empty
        return reply(JSON_HEADERS, document, 200)
    return reply(binary_headers(sum(map(len, document))), (*document, *tensors), 200)


def _write_outputs(outputs: tuple[Tensor, ...], origin: Message | None, translate: Translate) -> _Outputs:
    """The outputs' JSON, and the raw bytes of those that are binary and not empty. Those are that `origin` wants so."""
    entries: list[JsonObject] = []
    tensors: list[Buffer] = []
    for output in outputs:
        if not (isinstance(origin, BinaryOutputMessage) and origin.wants_binary(output.name)):
            entries.append(write_json(output, "output", translate, WITHOUT_JSON))
            continue
        entries.append(write_binary(output))
        if len(output.data):
            tensors.append(output.data)
    return entries, tensors


def _response_document(response: Response, request: Request, outputs: list[JsonObject]) -> JsonObject:
    # In Triton's order. Name, version and id are the client's own: MLServer answers a request without an id with a new
    # UUID, KServe with null.
    document: JsonObject = {}
    if request.id is not None:
        document["id"] = request.id
    document["model_name"] = request.model or response.model
    version = request.version or response.version
    if version:
        document["model_version"] = version
    if response.parameters:
        document["parameters"] = json_parameters(response.parameters, "the response")
    document["outputs"] = outputs
    return document


_ENCODERS: dict[Operation, EncodeResponse] = {
    INFER: _encode_infer,
    STREAM: _encode_stream,
    Operation.LIVE: metadata.encode_health,
    Operation.READY: metadata.encode_health,
    Operation.MODEL_READY: metadata.encode_health,
    Operation.METADATA: metadata.encode_metadata,
    Operation.SERVER_METADATA: metadata.encode_server_metadata,
    Operation.MODELS: extensions.encode_index,
    Operation.CONFIG: extensions.encode_config,
    Operation.MODEL_STATISTICS: extensions.encode_statistics,
    Operation.ALL_STATISTICS: extensions.encode_statistics,
    Operation.LOAD: extensions.encode_done,
    Operation.UNLOAD: extensions.encode_done,
    Operation.TRACE_SETTINGS: extensions.encode_settings,
    Operation.LOG_SETTINGS: extensions.encode_settings,
}


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that `decode_request` read; one reply of several in a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that the form which the client asked for cannot carry.
    """
    return _ENCODERS[request.operation](answer, request, translate)
