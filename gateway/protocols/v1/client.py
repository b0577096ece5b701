"""Converts canonical Requests to V1 requests, and V1 responses to Answers (upstream side)."""

from collections.abc import Callable, Mapping
from functools import partial

from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import extended
from gateway.core.json import missing
from gateway.core.messages import JSON_HEADERS, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response, refuse_parameters_of_inputs
from gateway.protocols.v1 import errors, metadata, tensors
from gateway.protocols.v1.json_bodies import Body, are_rows, read_body, write_body
from gateway.protocols.v1.parameters import BodyMessage, to_members, to_parameters
from gateway.protocols.v1.schema import (
    KSERVE,
    MODELS,
    REPLY,
    REQUEST,
    STATUS,
    TENSORFLOW,
    Payload,
    TensorFormat,
    backend_path,
)

_PAYLOAD_FORMATS = {
    Payload.ROWS: (TensorFormat.ROWS, False),
    Payload.NAMED_ROWS: (TensorFormat.ROWS, True),
    Payload.COLUMNS: (TensorFormat.COLUMNS, False),
    Payload.NAMED_COLUMNS: (TensorFormat.COLUMNS, True),
}
"""The tensor format of each payload, and whether a single tensor also has a name in the body."""


def _encode_inference(suffix: str, request: Request, target: Target) -> Message:
    """Return a `:predict` or `:explain` request. The format is the route's `payload`, or else the V1 client's format,
    or else rows. Inputs that cannot be rows become columns."""
    refuse_parameters_of_inputs(request, " by V1")
    tensor_format, named = _tensor_format(request)
    if tensor_format is TensorFormat.ROWS and not are_rows(request.inputs):
        tensor_format = TensorFormat.COLUMNS
    body = Body(tensor_format, request.inputs, to_members(request.parameters, request.origin))
    # KServe responds with 400 to NaN; TensorFlow Serving reads it as a number
    nan = request.translate.nan or ("error" if target.flavor == KSERVE else "literal")
    parts = write_body(body, REQUEST, nan, request.translate, named=named)
    return Message("POST", backend_path(request, target, suffix), JSON_HEADERS, parts)


def _tensor_format(request: Request) -> tuple[TensorFormat, bool]:
    if request.translate.payload:
        return _PAYLOAD_FORMATS[request.translate.payload]
    origin = request.origin
    return (origin.tensor_format, origin.named) if isinstance(origin, BodyMessage) else (TensorFormat.ROWS, False)


def _encode_get(path: str, request: Request, target: Target) -> Message:
    return Message("GET", path)


def _encode_model_ready(request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target))


def _encode_metadata(request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target, "" if request.part == STATUS else "/metadata"))


def _encode_models(request: Request, target: Target) -> Message:
    if target.flavor == TENSORFLOW:
        raise unsupported("TensorFlow Serving cannot list its models")
    return Message("GET", MODELS)


_ENCODERS: Mapping[Operation, Callable[[Request, Target], Message]] = {
    Operation.INFER: partial(_encode_inference, ":predict"),
    Operation.EXPLAIN: partial(_encode_inference, ":explain"),
    Operation.LIVE: partial(_encode_get, "/"),
    Operation.READY: partial(_encode_get, "/"),
    Operation.SERVER_METADATA: partial(_encode_get, "/"),
    Operation.MODELS: _encode_models,
    Operation.MODEL_READY: _encode_model_ready,
    Operation.METADATA: _encode_metadata,
}


def encode_request(request: Request, target: Target) -> Message:
    """Return the HTTP request that sends `request` to `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if V1 does not support the operation; INVALID_ARGUMENT or NOT_FOUND if V1 cannot
            represent a name, version, parameter or tensor.
    """
    ask = _ENCODERS.get(request.operation)
    if ask is None:
        raise unsupported(f"V1 has no operation {request.operation.value}")
    return ask(request, target)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`. The gateway ignores Content-Type, because KServe omits it in text
    responses.

    Raises:
        DecodeError: the response is not a V1 response.
        GatewayError: the error in the response.
    """
    match request.operation:
        case Operation.LIVE | Operation.READY:
            return metadata.decode_alive(reply)
        case Operation.SERVER_METADATA:
            return metadata.decode_server(reply)
        case Operation.MODEL_READY:
            return metadata.decode_ready(reply, request, target)
        case Operation.METADATA if request.part == STATUS:
            return metadata.decode_status(reply, request, target)
        case Operation.METADATA:
            return metadata.decode_metadata(reply, request, target)
        case Operation.MODELS:
            return metadata.decode_models(reply, target)
    if reply.status >= 400:
        raise errors.decode_error(reply)
    if reply.status != 200:
        raise DecodeError(f"status {reply.status}, expected 200")
    return (
        _decode_explanation(reply)
        if request.operation is Operation.EXPLAIN
        else _decode_predict(reply, target, request.translate.nan)
    )


def _decode_predict(reply: Message, target: Target, nan: str | None) -> Response:
    """Return the predictions in a response.

    `nan` is the route's setting. If it is `null`, each null among numbers becomes NaN. Otherwise, an array with null
    counts as arbitrary JSON, which the client receives as text."""
    text = missing.as_nan(reply.body, members=True) if nan == "null" else None
    try:
        body = read_body(reply.body if text is None else text, REPLY, target.limits.json_values, any_json=True)
    except DecodeError as fault:
        error = errors.error_in_success(reply)
        raise fault if error is None else error from fault
    if "message" in body.members and body.members.get("batchId") == "":
        raise errors.batcher_error(body.members["message"])
    parameters, nested = to_parameters(body)
    origin = extended(BodyMessage, Message(), body.tensor_format, False, body.members, nested) if parameters else None
    return Response(body.tensors, parameters=parameters, origin=origin)


def _decode_explanation(reply: Message) -> Response:
    """Return an explanation, which can be any JSON, as one BYTES element with the JSON text."""
    return Response((tensors.json_text("explanation", bytes(reply.body)),))
