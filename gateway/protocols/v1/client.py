"""Facing servers: what they are asked, and what they answered."""

from collections.abc import Callable, Mapping
from functools import partial

from gateway.core.datatypes import GATEWAY_DATATYPE
from gateway.core.errors import DecodeError, invalid_input, unsupported
from gateway.core.frozen import extended
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, Request, Response
from gateway.protocols.v1 import errors, metadata, values
from gateway.protocols.v1.bodies import Body, are_rows, read_body, write_body
from gateway.protocols.v1.flavors import KSERVE, TENSORFLOW
from gateway.protocols.v1.members import BodyMessage, to_members, to_parameters
from gateway.protocols.v1.paths import MODELS, backend_path
from gateway.protocols.v1.words import JSON, REPLY, REQUEST, STATUS, Form, Payload

_FORMS = {
    Payload.ROWS: (Form.ROWS, False),
    Payload.NAMED_ROWS: (Form.ROWS, True),
    Payload.COLUMNS: (Form.COLUMNS, False),
    Payload.NAMED_COLUMNS: (Form.COLUMNS, True),
}
"""The form, and whether one tensor has its name too."""


def _ask(suffix: str, request: Request, target: Target) -> Message:
    """An inference or the like, in the form that the route says, else in the one of a client that speaks V1."""
    _refuse_parameters_of_tensors(request)
    form, named = _form(request)
    if form is Form.ROWS and not are_rows(request.inputs):
        form = Form.COLUMNS
    body = Body(form, request.inputs, to_members(request.parameters, request.origin))
    # NaN is 400 to KServe, and a number to TensorFlow Serving
    nan = request.translate.nan or ("error" if target.flavor == KSERVE else "literal")
    parts = write_body(body, REQUEST, nan, request.translate, named=named)
    return Message("POST", backend_path(request, target, suffix), JSON, parts)


def _form(request: Request) -> tuple[Form, bool]:
    if request.translate.payload:
        return _FORMS[request.translate.payload]
    origin = request.origin
    return (origin.form, origin.named) if isinstance(origin, BodyMessage) else (Form.ROWS, False)


def _refuse_parameters_of_tensors(request: Request) -> None:
    for tensor in request.inputs:
        for name in tensor.parameters:
            if name != GATEWAY_DATATYPE:
                raise invalid_input(f"parameter {name!r} of input {tensor.name!r} has no place in V1")


def _get(path: str, request: Request, target: Target) -> Message:
    return Message("GET", path)


def _get_model(request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target))


def _ask_metadata(request: Request, target: Target) -> Message:
    return Message("GET", backend_path(request, target, "" if request.part == STATUS else "/metadata"))


def _ask_models(request: Request, target: Target) -> Message:
    if target.flavor == TENSORFLOW:
        raise unsupported("TensorFlow Serving does not list its models")
    return Message("GET", MODELS)


_ASKING: Mapping[Operation, Callable[[Request, Target], Message]] = {
    Operation.INFER: partial(_ask, ":predict"),
    Operation.EXPLAIN: partial(_ask, ":explain"),
    Operation.LIVE: partial(_get, "/"),
    Operation.READY: partial(_get, "/"),
    Operation.SERVER_METADATA: partial(_get, "/"),
    Operation.MODELS: _ask_models,
    Operation.MODEL_READY: _get_model,
    Operation.METADATA: _ask_metadata,
}


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation on V1; INVALID_ARGUMENT or NOT_FOUND, a name, version, parameter
            or tensor that has no form on it.
    """
    ask = _ASKING.get(request.operation)
    if ask is None:
        raise unsupported(f"V1 has no operation {request.operation.value}")
    return ask(request, target)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`. Content-Type is not looked at: KServe sends texts without one.

    Raises:
        DecodeError: a reply that is not V1's.
        GatewayError: the error that the reply tells.
    """
    match request.operation:
        case Operation.LIVE | Operation.READY:
            return metadata.decode_alive(reply)
        case Operation.SERVER_METADATA:
            return metadata.decode_server(reply)
        case Operation.MODEL_READY:
            return metadata.decode_ready(reply, target)
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
    return _decode_explanation(reply) if request.operation is Operation.EXPLAIN else _decode_predict(reply, target)


def _decode_predict(reply: Message, target: Target) -> Response:
    body = read_body(reply.body, REPLY, target.limits.json_values, any_json=True)
    if "message" in body.members and body.members.get("batchId") == "":
        raise errors.batcher_error(body.members["message"])
    parameters, nested = to_parameters(body)
    origin = extended(BodyMessage, Message(), body.form, False, body.members, nested) if parameters else None
    return Response(body.tensors, parameters=parameters, origin=origin)


def _decode_explanation(reply: Message) -> Response:
    """Whatever JSON an explainer answers, as one text."""
    return Response((values.json_text("explanation", bytes(reply.body)),))
