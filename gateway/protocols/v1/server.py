"""Converts V1 requests to canonical Requests, and Answers to responses for the listener's `flavor` (client side)."""

from collections.abc import Mapping
from functools import partial

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError, invalid_output, unsupported
from gateway.core.frozen import extended, replace
from gateway.core.messages import JSON_HEADERS, Message, reply
from gateway.core.operations import Operation
from gateway.core.protocol import DecodeRequest, EncodeResponse, ListenerSettings
from gateway.core.requests import Answer, Nan, Request, Response, Translate
from gateway.protocols.v1 import cloudevents, metadata
from gateway.protocols.v1.json_bodies import Body, are_rows, read_body, write_body
from gateway.protocols.v1.parameters import BodyMessage, to_members, to_parameters
from gateway.protocols.v1.schema import (
    EXPLANATION,
    KSERVE,
    MODEL_PATHS,
    MODELS,
    REPLY,
    REQUEST,
    SERVING_DEFAULT,
    SIGNATURE_NAME,
    TENSORFLOW,
    TensorFormat,
    asked_version,
)
from gateway.protocols.v1.tensors import ANY_JSON


def _decode_path_only(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """Return the Request of a message whose path contains all information."""
    return Request(
        operation,
        message.captures.get("model", ""),
        asked_version(message),
    )


def _decode_kserve(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    message, event = cloudevents.unwrap(message, listener.limits.json_values)
    try:
        body = read_body(message.body, REQUEST, listener.limits.json_values, any_json=True)
    except DecodeError as error:
        raise _as_kserve_error(error) from error
    return _inference(operation, body, message, event)


def _as_kserve_error(error: DecodeError) -> DecodeError:
    return DecodeError(f"Unrecognized request format: {error}") if _is_syntax_error(error) else error


def _is_syntax_error(error: DecodeError) -> bool:
    return any(words in str(error) for words in ("not JSON", "not UTF-8", "empty body"))


def _decode_tensorflow(message: Message, listener: ListenerSettings) -> Request:
    try:
        body = read_body(message.body, REQUEST, listener.limits.json_values, any_json=False)
    except DecodeError as error:
        raise DecodeError(f"JSON Parse error: {error}" if _is_syntax_error(error) else str(error)) from error
    if body.tensor_format is TensorFormat.ROWS and not body.tensors[0].shape[0]:
        raise DecodeError("JSON Value: [] No values in 'instances' array")
    return _inference(Operation.INFER, body, message, "")


def _inference(operation: Operation, body: Body, message: Message, event: str) -> Request:
    parameters, nested = to_parameters(body)
    if parameters.get(SIGNATURE_NAME) == SERVING_DEFAULT and SIGNATURE_NAME not in nested:
        # this is the default, so servers without signatures can accept the request; for V1 servers, the origin keeps
        # the name
        parameters = {name: each for name, each in parameters.items() if name != SIGNATURE_NAME}
    named = bool(body.tensors) and bool(body.tensors[0].name)
    origin = None
    if named or body.members or event or body.tensor_error or body.tensor_format is not TensorFormat.ROWS:
        bare = replace(message, parts=())
        origin = extended(BodyMessage, bare, body.tensor_format, named, body.members, nested, body.tensor_error, event)
    return Request(
        operation,
        message.captures["model"],
        asked_version(message),
        inputs=body.tensors,
        parameters=parameters,
        origin=origin,
    )


def _refuse(verb: str, message: Message, listener: ListenerSettings) -> Request:
    raise unsupported(f"{verb} is not supported over REST; use predict, or {verb} over gRPC")


_SHARED: Mapping[str, DecodeRequest] = {
    **{f"GET {path}": partial(_decode_path_only, Operation.MODEL_READY) for path in MODEL_PATHS},
    **{f"GET {path}/metadata": partial(_decode_path_only, Operation.METADATA) for path in MODEL_PATHS},
}

DECODERS: Mapping[str, Mapping[str, DecodeRequest]] = {
    KSERVE: {
        **{f"POST {path}:predict": partial(_decode_kserve, Operation.INFER) for path in MODEL_PATHS},
        **{f"POST {path}:explain": partial(_decode_kserve, Operation.EXPLAIN) for path in MODEL_PATHS},
        "GET /": partial(_decode_path_only, Operation.LIVE),
        f"GET {MODELS}": partial(_decode_path_only, Operation.MODELS),
        **_SHARED,
    },
    TENSORFLOW: {
        **{f"POST {path}:predict": _decode_tensorflow for path in MODEL_PATHS},
        **{f"POST {path}:{verb}": partial(_refuse, verb) for path in MODEL_PATHS for verb in ("classify", "regress")},
        **_SHARED,
    },
}
"""The decoder of each path, by the listener's server type.

A real KServe server has no versions, labels or metadata, but a listener of this type offers them."""


def decode_request(flavor: str, message: Message, listener: ListenerSettings) -> Request:
    """Return the canonical Request of a client's message.

    Raises:
        DecodeError: the body has no valid tensors.
        GatewayError: UNIMPLEMENTED if the path ends in `:classify` or `:regress`.
    """
    return DECODERS[flavor][message.pattern](message, listener)


DEFAULT_NAN: Mapping[str, Nan] = {KSERVE: "null", TENSORFLOW: "literal"}
"""The form of NaN and infinities in real servers of each type."""


def _encode_predict(flavor: str, answer: Answer, request: Request, translate: Translate) -> Message:
    assert isinstance(answer, Response)
    origin = request.origin
    tensor_format = origin.tensor_format if isinstance(origin, BodyMessage) else TensorFormat.ROWS
    if flavor == TENSORFLOW and tensor_format is TensorFormat.ROWS and not are_rows(answer.outputs):
        shapes = ", ".join(f"{each.name!r} {list(each.shape)}" for each in answer.outputs) or "none"
        raise invalid_output(
            f"outputs cannot be rows, one for each instance: {shapes}; "
            "send 'inputs' instead of 'instances' to get them whole"
        )
    body = Body(tensor_format, answer.outputs, to_members(answer.parameters, answer.origin))
    parts = write_body(body, REPLY, translate.nan or DEFAULT_NAN[flavor], translate)
    event = origin.event_mode if isinstance(origin, BodyMessage) else ""
    return (
        cloudevents.wrap(parts, event, request.model)
        if event
        else Message(headers=JSON_HEADERS, parts=parts, status=200)
    )


def _encode_explanation(answer: Answer, request: Request, translate: Translate) -> Message:
    assert isinstance(answer, Response)
    explanation = answer.outputs[0]
    if explanation.content_type == ANY_JSON and not explanation.shape:
        return Message(headers=JSON_HEADERS, parts=tuple(bytes_elements.unpack(explanation.data)), status=200)
    parts = write_body(Body(TensorFormat.ROWS, answer.outputs), EXPLANATION, translate.nan or "null", translate)
    return reply(JSON_HEADERS, parts, 200)


_ENCODERS: Mapping[str, Mapping[Operation, EncodeResponse]] = {
    flavor: {
        Operation.INFER: partial(_encode_predict, flavor),
        Operation.EXPLAIN: _encode_explanation,
        Operation.LIVE: metadata.encode_alive,
        Operation.MODELS: metadata.encode_models,
        Operation.MODEL_READY: ready,
        Operation.METADATA: metadata.encode_metadata,
    }
    for flavor, ready in ((KSERVE, metadata.encode_ready), (TENSORFLOW, metadata.encode_status))
}


def encode_response(flavor: str, answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a request that `decode_request` returned.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent an output (the message says which); INTERNAL if the
            outputs cannot be rows and the client sent rows to a listener with `flavor: tensorflow`.
    """
    return _ENCODERS[flavor][request.operation](answer, request, translate)
