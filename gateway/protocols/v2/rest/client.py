"""Converts canonical Requests to V2 REST requests, and responses to Answers (upstream side)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from msgspec import UNSET

from gateway.core import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.models import Signature
from gateway.core.operations import INFER, STREAM, Operation
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Parameters, ParameterValue, Tensor
from gateway.protocols.v2.extensions import check_operation, check_outputs, check_parameters
from gateway.protocols.v2.flavors import KSERVE, MLSERVER, OPENVINO, PLAIN, TRITON
from gateway.protocols.v2.parameters import check_id
from gateway.protocols.v2.rest import extensions, generate, metadata
from gateway.protocols.v2.rest.binary import binary_headers, split_body
from gateway.protocols.v2.rest.errors import decode_error, decode_event_error, denies_readiness
from gateway.protocols.v2.rest.messages import (
    DATA,
    RESPONSES,
    BodyForm,
    InferenceRequest,
    InferenceResponse,
    InferenceTensor,
    RequestOutput,
    checked_string,
    general_response,
)
from gateway.protocols.v2.rest.parameters import json_parameters, nested_parameter, read_parameters
from gateway.protocols.v2.rest.paths import backend_path
from gateway.protocols.v2.rest.tensors import REFUSED_IN_JSON, WITHOUT_JSON, read_tensors, write_binary, write_json
from gateway.protocols.v2.tensors import as_written, widen

# --- inference requests ---


@frozen
class _FlavorForm:
    """The format in which the gateway sends tensors to a server type (binary or JSON), and the datatypes that the
    server type does not support."""

    form: BodyForm
    lacking: frozenset[Datatype] = frozenset()
    needs_id: bool = False
    """True if the server rejects requests without an id."""


_BINARY = BodyForm.BINARY  # in Python 3.11, looking up an enum member in its class takes ten times as long
_BINARY_FORM = _FlavorForm(_BINARY)
_FORMS = {
    # KServe's models return the request's id, and its JSON responses cannot contain None
    KSERVE: _FlavorForm(BodyForm.BINARY, lacking=frozenset({Datatype.BF16}), needs_id=True),
    # has no binary extension, but accepts FP16 as JSON
    MLSERVER: _FlavorForm(BodyForm.JSON, lacking=WITHOUT_JSON),
    PLAIN: _FlavorForm(BodyForm.JSON, lacking=REFUSED_IN_JSON),
}
"""The format of tensors for each server type. Server types that are not listed accept every datatype in binary."""


def _encode_infer(request: Request, target: Target) -> Message:
    form = _FORMS.get(target.flavor, _BINARY_FORM)
    path = backend_path(request, target, "/infer")
    if request.outputs:
        check_outputs(request.outputs, target)
    if request.parameters:
        check_parameters(request.parameters, target)
    if form.needs_id and request.id is None:
        request = replace(request, id="")
    headers, parts = (_write_binary if form.form is _BINARY else _write_json)(request, form.lacking)
    return Message("POST", path, headers, parts)


def _write_binary(request: Request, lacking: frozenset[Datatype]) -> tuple[Headers, tuple[Buffer, ...]]:
    parameters = dict(request.parameters)
    if not request.outputs:
        parameters["binary_data_output"] = True
    inputs: Sequence[Tensor] = [widen(each, lacking) for each in request.inputs] if lacking else request.inputs
    for each in inputs:
        if each.content_type:
            inputs = as_written(inputs, request.translate)
            break
    entries = [write_binary(each) for each in inputs]
    (header,) = json.write_message(_infer_request(request, entries, parameters, {"binary_data": True}))
    return binary_headers(len(header)), (header, *[each.data for each in inputs if len(each.data)])


def _write_json(request: Request, lacking: frozenset[Datatype]) -> tuple[Headers, tuple[Buffer, ...]]:
    entries = [write_json(each, "input", request.translate, lacking) for each in request.inputs]
    return JSON_HEADERS, json.write_message(_infer_request(request, entries, request.parameters, {}))


def _infer_request(
    request: Request, inputs: list[InferenceTensor], parameters: Parameters, of_outputs: Parameters
) -> InferenceRequest:
    """Return the message of a request. `of_outputs` are additional parameters for each requested output."""
    outputs = [
        RequestOutput(
            each.name,
            {**json_parameters(each.parameters, f"output {each.name!r}"), **of_outputs}
            if each.parameters
            else of_outputs or UNSET,
        )
        for each in request.outputs
    ]
    return InferenceRequest(
        id=UNSET if request.id is None else request.id,
        parameters=json_parameters(parameters, "the request") or UNSET,
        inputs=inputs,
        outputs=outputs or UNSET,
    )


def _encode_stream(request: Request, target: Target) -> Message:
    if target.flavor in (KSERVE, OPENVINO, PLAIN):
        raise unsupported(f"backend {target.backend!r} ({target.flavor}) has no streams over REST")
    if target.flavor == TRITON:
        return generate.encode_request(request, target)
    # MLServer and other gateways accept a request in the JSON format of `infer`
    if request.outputs:
        check_outputs(request.outputs, target)
    check_parameters(request.parameters, target)
    lacking = _FORMS[MLSERVER].lacking if target.flavor == MLSERVER else REFUSED_IN_JSON
    headers, parts = _write_json(request, lacking)
    return Message("POST", backend_path(request, target, "/generate_stream"), headers, parts)


# --- all requests, by operation ---

_Encode: TypeAlias = Callable[[Request, Target], Message]


def _get(path: str, request: Request, target: Target) -> Message:
    return Message("GET", path)


def _get_model(suffix: str, request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target, suffix))


def _if_supported(encode: _Encode, request: Request, target: Target) -> Message:
    check_operation(request.operation, target)
    return encode(request, target)


_ENCODERS: dict[Operation, _Encode] = {
    INFER: _encode_infer,
    STREAM: _encode_stream,
    Operation.LIVE: partial(_get, "/v2/health/live"),
    Operation.READY: partial(_get, "/v2/health/ready"),
    Operation.SERVER_METADATA: partial(_get, "/v2"),
    Operation.METADATA: partial(_get_model, ""),
    Operation.MODEL_READY: partial(_get_model, "/ready"),
    Operation.CONFIG: partial(_if_supported, partial(_get_model, "/config")),
    Operation.MODELS: extensions.encode_index_request,
    Operation.MODEL_STATISTICS: partial(_if_supported, partial(_get_model, "/stats")),
    Operation.ALL_STATISTICS: partial(_if_supported, partial(_get, "/v2/models/stats")),
    Operation.LOAD: partial(_if_supported, partial(extensions.encode_load_request, "load")),
    Operation.UNLOAD: partial(_if_supported, partial(extensions.encode_load_request, "unload")),
    Operation.TRACE_SETTINGS: partial(_if_supported, extensions.encode_trace_request),
    Operation.LOG_SETTINGS: partial(_if_supported, extensions.encode_log_request),
}


def encode_request(request: Request, target: Target) -> Message:
    """Return the request as a message for `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if V2 REST does not define the operation, or the server lacks the extension or does
            not stream; INVALID_ARGUMENT if a model name, parameter or tensor cannot be sent to this server (the error
            message says which); NOT_FOUND if this server type cannot have the version.
    """
    encode = _ENCODERS.get(request.operation)
    if encode is None:
        raise unsupported(f"V2 REST has no operation {request.operation.value}")
    return encode(request, target)


# --- responses ---

_V2_REST = "v2-rest"
"""The client protocol that can represent nested parameters."""


def _decode_infer(reply: Message, request: Request, limits: Limits) -> Response:
    """Return an inference response. Its binary outputs are views of the response's body."""
    header, behind = split_body(reply)
    try:
        return _response(RESPONSES.read(header, limits.json_values, DATA), behind, reply, limits)
    except (DecodeError, GatewayError):
        pass  # the general reader accepts the body, or reports the error with its position

    def read(text: Buffer) -> Response:
        response = _response(general_response(bytes(text), limits.json_values), behind, reply, limits)
        if request.protocol != _V2_REST:
            refused = nested_parameter(response.parameters, response.outputs, "the response", "output")
            if refused:
                raise DecodeError(refused)
        return response

    try:
        return read(header)
    except DecodeError as fault:
        error = decode_event_error(reply)
        if error is not None:  # some servers report errors with status 200
            raise error from fault
        return json.missing.read_reply(fault, header, read, request.translate.nan, members=False)


def _response(infer: InferenceResponse, behind: Buffer, reply: Message, limits: Limits) -> Response:
    outputs = read_tensors(infer.outputs, "output", behind, limits)
    parameters: dict[str, ParameterValue] = {}
    if infer.parameters is not UNSET:
        parameters = read_parameters(infer.parameters, "the response", reply=True)
        # KServe's models copy this parameter from the request, in which the gateway had set it
        parameters.pop("binary_data_output", None)
    model = checked_string(infer.model_name, "model_name")
    version = "" if infer.model_version is UNSET else checked_string(infer.model_version, "model_version")
    id = infer.id if type(infer.id) is str else None
    return Response(outputs, model, version, id, parameters, reply)


def _decode_stream(reply: Message, request: Request, target: Target) -> Response:
    """Return one response of a stream. Raise GatewayError if the response is an error."""
    if target.flavor != TRITON:
        return _decode_infer(reply, request, target.limits)
    try:
        return generate.decode_response(reply, target.limits)
    except DecodeError as fault:
        error = decode_event_error(reply)
        if error is not None:
            raise error from fault
        read = partial(generate.read_response, reply=reply, limits=target.limits)
        return json.missing.read_reply(fault, reply.body, read, request.translate.nan, members=True)


_DECODERS: dict[Operation, Callable[[Message, Limits], Answer]] = {
    Operation.METADATA: metadata.decode_metadata,
    Operation.SERVER_METADATA: metadata.decode_server_metadata,
    **{operation: decode for operation, (_, decode) in extensions.RESPONSES.items()},
}

_KSERVE_DECODERS = {**_DECODERS, Operation.MODELS: extensions.decode_model_names}

_HEALTH = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`, or one Answer of a stream.

    Raises:
        DecodeError: V2 does not allow the response, or the response contains the id of another request.
        GatewayError: the error that the response reports.
    """
    status, operation = reply.status, request.operation
    if status != 200:
        if status >= 400:
            # "a 4xx status code indicates false"
            if operation in _HEALTH and denies_readiness(reply):
                return False
            raise decode_error(reply, request)
        # like tritonclient, accept no other status; MLServer redirects a path with an additional slash (307)
        raise DecodeError(f"status {status}, expected 200")
    if operation is INFER:
        answer: Answer = _decode_infer(reply, request, target.limits)
    elif operation in _HEALTH:
        return True
    elif operation is STREAM:
        answer = _decode_stream(reply, request, target)
    else:
        decoders = _KSERVE_DECODERS if target.flavor == KSERVE else _DECODERS
        answer = decoders[operation](reply, target.limits)
        if target.flavor == OPENVINO and isinstance(answer, Signature):
            answer = answer.with_images()
    if request.id:
        check_id(answer, request.id)
    return answer
