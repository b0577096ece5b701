"""Converts V2 REST requests to canonical Requests, and Answers to responses (client side)."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from msgspec import UNSET

from gateway.core import json, server_sent_events
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import extended, field, replace
from gateway.core.messages import JSON_HEADERS, Buffer, Message, reply
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import DecodeRequest, EncodeResponse, Limits, ListenerSettings
from gateway.core.requests import Answer, NestedParameters, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Parameters
from gateway.protocols.v2.extensions import refuse_shared_memory_request
from gateway.protocols.v2.parameters import refuse_shared_memory, take_deadline, take_flag, without_consumed
from gateway.protocols.v2.rest import extensions, generate, metadata
from gateway.protocols.v2.rest.binary import HEADER_LENGTH, binary_headers, split_body
from gateway.protocols.v2.rest.messages import (
    DATA,
    REQUESTS,
    InferenceRequest,
    InferenceResponse,
    InferenceTensor,
    RequestOutput,
    checked_id,
    general_request,
)
from gateway.protocols.v2.rest.parameters import json_parameters, nested_parameter, read_parameters
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON, read_tensors, write_binary, write_json
from gateway.protocols.v2.tensors import as_written

_WHAT = "the request"
_B64 = 'V2 has no {"b64": ...}: BYTES are texts, or base64 texts with the parameter `content_type: base64` of the input'


# --- inference requests ---


class BinaryOutputMessage(Message, frozen=True):
    """The message of an inference that requests outputs in the binary tensor data extension.

    The fields are the extension's parameters: `binary_data_output` in the request, and `binary_data` in requested
    outputs, which overrides `binary_data_output`."""

    binary_data_output: bool = False
    binary_data: Mapping[str, bool] = field(default_factory=dict)

    def wants_binary(self, output: str) -> bool:
        """Return True if the client requests `output` in binary."""
        return self.binary_data.get(output, self.binary_data_output)


def _decode_infer(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in `POST v2/models/{model}[/versions/{version}]/infer`."""
    limits = listener.limits
    header, behind = split_body(message)
    try:
        return _request(REQUESTS.read(header, limits.json_values, DATA), behind, message, limits)
    except (DecodeError, GatewayError):
        pass  # the general reader accepts the body, or reports the error with its position
    try:
        return _with_flaw(_request(general_request(header, limits.json_values), behind, message, limits))
    except DecodeError as error:
        if b'"b64"' in header:
            raise DecodeError(f"{error}; {_B64}") from error

        def read(text: bytes) -> Request:
            return _with_flaw(_request(general_request(text, limits.json_values), behind, message, limits))

        request = json.missing.reread(error, header, read, members=False)
        if request.flaw:
            raise DecodeError(f"{error}; and {request.flaw}") from error
        return replace(request, flaw=json.missing.flaw(error))


def _with_flaw(request: Request) -> Request:
    """Return the request, with a flaw if it contains nested parameters."""
    text = nested_parameter(request.parameters, (*request.inputs, *request.outputs), _WHAT, "tensor")
    return replace(request, flaw=NestedParameters(text)) if text else request


def _request(infer: InferenceRequest, behind: Buffer, message: Message, limits: Limits) -> Request:
    inputs = read_tensors(infer.inputs, "input", behind, limits)
    parameters: Parameters = {}
    outputs: tuple[RequestedOutput, ...] = ()
    origin, deadline, binary_data_output, binary_data = message, None, False, _NO_FLAGS
    if infer.parameters is not UNSET:
        given = read_parameters(infer.parameters, _WHAT)
        refuse_shared_memory(given, _WHAT)
        binary_data_output = take_flag(given, "binary_data_output", _WHAT) or False
        deadline = take_deadline(given, message, _WHAT)
        parameters = without_consumed(given)
    if infer.outputs:
        outputs, binary_data = _read_outputs(infer.outputs)
    if binary_data_output or True in binary_data.values():
        origin = extended(BinaryOutputMessage, message, binary_data_output, binary_data)
    captures = message.captures
    return Request(
        INFER,
        captures["model"],
        captures.get("version", ""),
        checked_id(infer.id),
        inputs,
        outputs,
        parameters,
        deadline=deadline,
        origin=origin,
    )


_NO_FLAGS: Mapping[str, bool] = MappingProxyType({})


def _read_outputs(entries: Sequence[RequestOutput]) -> tuple[tuple[RequestedOutput, ...], Mapping[str, bool]]:
    """Return the requested outputs, and the parameter `binary_data` of outputs that set it."""
    outputs: dict[str, RequestedOutput] = {}
    binary_data: dict[str, bool] = {}
    for entry in entries:
        name = entry.name
        if name in outputs:
            raise DecodeError(f"output {name!r} is requested twice; request it once")
        what = f"output {name!r}"
        parameters = read_parameters(entry.parameters, what)
        refuse_shared_memory(parameters, what)
        binary = take_flag(parameters, "binary_data", what)
        if binary is not None:
            binary_data[name] = binary
        outputs[name] = RequestedOutput(name, parameters)
    return tuple(outputs.values()), binary_data


# --- generate and streams ---
#
# Triton and MLServer both serve the paths `generate` and `generate_stream`. In Triton's requests, inputs are members of
# one object. MLServer's requests, including requests at `infer_stream`, are in the format of `infer`, with a list
# `inputs` of objects.

# in a JSON string, a backslash would precede each quote
_INPUTS = re.compile(rb'"inputs"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+\{')

_STREAM_PATHS = ("/generate_stream", "/infer_stream")


def wants_stream(message: Message) -> bool:
    """Return True if the response to a request at the message's path is a stream."""
    return message.pattern.endswith(_STREAM_PATHS)


def is_of_infer(message: Message) -> bool:
    """Return True if the body of a request to a `generate` path is in the format of `infer`, as in MLServer."""
    return bool(message.headers.get(HEADER_LENGTH)) or _INPUTS.search(message.body) is not None


def _decode_generate(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in `POST v2/models/{model}[/versions/{version}]/generate`, or `/generate_stream`."""
    decode = _decode_infer if is_of_infer(message) else generate.decode_request
    request = decode(message, listener)
    return replace(request, operation=STREAM) if wants_stream(message) else request


def _decode_infer_stream(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in `POST v2/models/{model}[/versions/{version}]/infer_stream`."""
    return replace(_decode_infer(message, listener), operation=STREAM)


# --- all requests, by path ---


def _decode_path(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """Return a request that consists only of its path."""
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
"""The methods and paths that the gateway serves."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a client's message.

    Raises:
        DecodeError: the body is not a valid request for its path, or would crash a model server.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds the limit; UNIMPLEMENTED if the request is for shared
        memory.
    """
    return _DECODERS[message.pattern](message, listener)


# --- responses ---


def _encode_infer(answer: Answer, request: Request, translate: Translate, binary: bool = True) -> Message:
    """Return the response, with each output in the format that the client requested, or in JSON by default.

    If `binary` is False, all outputs are JSON."""
    if request.schemaless:
        return generate.encode_response(answer, request, translate)
    assert isinstance(answer, Response)
    origin = request.origin if binary else None
    entries: list[InferenceTensor] = []
    tensors: list[Buffer] = []
    for output in answer.outputs:
        if not (isinstance(origin, BinaryOutputMessage) and origin.wants_binary(output.name)):
            entries.append(write_json(output, "output", translate, WITHOUT_JSON))
            continue
        if output.content_type:
            (output,) = as_written((output,), translate)
        entries.append(write_binary(output))
        if len(output.data):
            tensors.append(output.data)
    # Name, version and id come from the client's request. If the request has no id, MLServer's response contains a new
    # UUID, and KServe's response contains null.
    message = InferenceResponse(
        id=UNSET if request.id is None else request.id,
        model_name=request.model or answer.model,
        model_version=request.version or answer.version or UNSET,
        parameters=json_parameters(answer.parameters, "the response") if answer.parameters else UNSET,
        outputs=entries,
    )
    document = json.write_message(message)
    if not tensors:
        # like Triton, omit the header if every binary tensor is empty
        return reply(JSON_HEADERS, document, 200)
    return reply(binary_headers(sum(map(len, document))), (*document, *tensors), 200)


def _encode_stream(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return one response of a stream. The response is always JSON, because events are text."""
    return replace(_encode_infer(answer, request, translate, binary=False), headers=server_sent_events.HEADERS)


def encode_end(request: Request) -> Message:
    """Return an empty message, because a stream without a response still needs its status and headers."""
    return Message(headers=server_sent_events.HEADERS, status=200)


_ENCODERS: dict[Operation, EncodeResponse] = {
    INFER: _encode_infer,
    STREAM: _encode_stream,
    Operation.LIVE: metadata.encode_health,
    Operation.READY: metadata.encode_health,
    Operation.MODEL_READY: metadata.encode_health,
    Operation.METADATA: metadata.encode_metadata,
    Operation.SERVER_METADATA: metadata.encode_server_metadata,
    **{operation: encode for operation, (encode, _) in extensions.RESPONSES.items()},
}


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a request that `decode_request` returned, or one response of a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT if the format that the client requested cannot represent an output. The message
            says which.
    """
    return _ENCODERS[request.operation](answer, request, translate)
