"""Converts a GrpsMessage to a Request, and a backend's Answer to the GrpsMessage of the response (client side of all
transports).
"""

from gateway.core import bytes_elements
from gateway.core.datatypes import NUMBERS
from gateway.core.errors import invalid_input
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import NotReady, Signature
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.grps import metadata
from gateway.protocols.grps.errors import NOT_READY, OK
from gateway.protocols.grps.payload import (
    BackendMessage,
    ClientMessage,
    Data,
    check_payload,
    client_message,
    client_payload,
    fit,
    gmap_keys,
    is_one_element,
    one_element,
    reply_payloads,
    str_data,
    with_distinct_names,
)
from gateway.protocols.grps.schema import HEALTH, INFERENCES, GrpsMessage, GrpsStatus, Payload
from gateway.protocols.grps.strings import as_strings, is_utf8


def decode_request(
    grps: GrpsMessage, operation: Operation, message: Message, default_model: str, *, returns_ndarray: bool = False
) -> Request:
    """Return the Request of a client that sent `grps` in `message`.

    If `grps` has no model name, the model is `default_model`.

    Raises:
        DecodeError: an inference has no data, or two tensors have the same name.
    """
    inputs: tuple[Tensor, ...] = ()
    if operation in INFERENCES:
        check_payload(grps, "input")
        inputs, keys = with_distinct_names(grps)
        message = client_message(message, grps.payload, returns_ndarray, keys)
        model = grps.model or default_model
    elif operation is Operation.METADATA:
        model = _metadata_model(grps) or default_model
    else:
        model = ""
    return Request(operation, model, inputs=inputs, origin=message)


def _metadata_model(grps: GrpsMessage) -> str:
    """Return the model of a metadata request, which is in `str_data` ("`str_data`: model_name") or in the member
    `model`."""
    if grps.payload is not Payload.STR_DATA:
        return grps.model
    [name] = bytes_elements.unpack(grps.tensors[0].data)
    return name.decode() or grps.model


def encode_response(answer: Answer, request: Request, translate: Translate) -> GrpsMessage:
    """Return the response to a request that `decode_request` returned.

    Raises:
        GatewayError: INVALID_ARGUMENT if the response cannot represent an output (the message says which).
    """
    if request.operation in HEALTH:
        return GrpsMessage(status=_health(answer))
    if isinstance(answer, Response):
        return _encode_inference(answer, request, translate)
    if isinstance(answer, Signature):
        return _metadata_reply(metadata.write_model(answer, request.model))
    assert isinstance(answer, tuple)
    return _metadata_reply(metadata.write_server(answer))


def _health(answer: Answer) -> GrpsStatus:
    if isinstance(answer, NotReady):
        return replace(NOT_READY, text=answer.text)
    return OK if answer is True else NOT_READY


def _metadata_reply(yaml: str) -> GrpsMessage:
    return GrpsMessage(status=OK, payload=Payload.STR_DATA, tensors=(str_data(yaml),))


def _encode_inference(response: Response, request: Request, translate: Translate) -> GrpsMessage:
    payload, tensors = _reply_data(response, request.origin, translate)
    origin = response.origin
    # As in real servers, a response contains the client's model name only if the model set a name, as echo models do.
    names_model, outcome = bool(response.model), None
    if isinstance(origin, BackendMessage):
        names_model, outcome = origin.names_model, origin.outcome
    return GrpsMessage(request.model if names_model else "", outcome or OK, payload, tensors)


def _reply_data(response: Response, client: Message | None, translate: Translate) -> Data:
    """Return the outputs in the first payload that can hold them. The backend's payload is a candidate only if the
    route does not set the payload of requests."""
    outputs, form = response.outputs, translate.bytes
    if isinstance(client, ClientMessage) and client.returns_ndarray:
        return Payload.NDARRAY, (_ndarray_output(outputs),)
    from_gmap = isinstance(response.origin, BackendMessage) and response.origin.payload is Payload.GMAP
    own, keys = client_payload(client), gmap_keys(client, response.origin)
    for payload in (own,) if translate.payload else reply_payloads(response.origin, own):
        if payload is Payload.GTENSORS:
            break
        if data := fit(payload, outputs, keys, from_gmap=from_gmap):
            return data
    if form == "text" and is_one_element(outputs) and not is_utf8(outputs[0]):
        return Payload.BIN_DATA, one_element(outputs)
    return Payload.GTENSORS, as_strings(outputs, form, "output")


def _ndarray_output(outputs: tuple[Tensor, ...]) -> Tensor:
    """Return the output of a response with an ndarray. Error messages begin like the C++ server's messages. Real
    servers return only DT_FLOAT32; the gateway returns any numeric datatype."""
    if not outputs:
        raise invalid_input("No tensors in output. Cannot convert to ndarray.")
    if len(outputs) > 1:
        names = ", ".join(repr(each.name) for each in outputs)
        raise invalid_input(f"NDArray only support one tensor, got {len(outputs)}: {names}")
    if outputs[0].datatype not in NUMBERS:
        raise invalid_input(f"NDArray only support numbers, output {outputs[0].name or 0!r} is {outputs[0].datatype}")
    return outputs[0]
