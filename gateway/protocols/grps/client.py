"""Converts a Request to a GrpsMessage, and the GrpsMessage of a response to an Answer (upstream side of all
transports)."""

from collections.abc import Callable

from gateway.core import bytes_elements
from gateway.core.datatypes import GATEWAY_DATATYPE, NUMBERS, WIDENINGS, Datatype
from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response, refuse_parameters
from gateway.core.tensors import Tensor
from gateway.protocols.grps import gmap, metadata
from gateway.protocols.grps.errors import OK, backend_error, is_failure
from gateway.protocols.grps.payload import (
    Data,
    backend_message,
    check_payload,
    client_payload,
    fit,
    gmap_keys,
    is_one_element,
    one_element,
    str_data,
    with_distinct_names,
)
from gateway.protocols.grps.schema import HEALTH, INFERENCES, GrpsMessage, Payload
from gateway.protocols.grps.strings import as_string, as_strings

_UNSUPPORTED = ": grps has no parameters"


def encode_request(request: Request) -> GrpsMessage:
    """Return the message of a request to a backend.

    Raises:
        GatewayError: INVALID_ARGUMENT if grps does not support a parameter, or a tensor does not fit into the payload
            that the route sets (`translate.payload`).
    """
    if request.operation is Operation.METADATA:
        # The version is omitted, because real servers find the model by its name in inference.yml.
        return GrpsMessage(payload=Payload.STR_DATA, tensors=(str_data(request.model),))
    if request.operation not in INFERENCES:
        return GrpsMessage()
    _refuse_parameters(request)
    payload, tensors = _request_data(request)
    return GrpsMessage(model_and_version(request), payload=payload, tensors=tensors)


def model_and_version(request: Request) -> str:
    """Return the model name and version for "Select model(with `name-version` format)".

    The name is empty if the server must run its own DAG."""
    return f"{request.model}-{request.version}" if request.model and request.version else request.model


def _request_data(request: Request) -> Data:
    """Return the inputs in the route's payload if it is set, else in the client's payload if it can hold them, else in
    gtensors."""
    if request.translate.payload:
        payload = Payload(request.translate.payload)
        return payload, _PAYLOAD_TENSORS[payload](request)
    keys = gmap_keys(request.origin)
    data = fit(client_payload(request.origin), request.inputs, keys, from_gmap=True)
    return data or (Payload.GTENSORS, _gtensors(request))


def _refuse_parameters(request: Request) -> None:
    refuse_parameters(request.parameters, "", _UNSUPPORTED)
    for tensor in request.inputs:
        if tensor.parameters:
            refuse_parameters(tensor.parameters, f" of input {tensor.name!r}", _UNSUPPORTED, GATEWAY_DATATYPE)
    for output in request.outputs:
        refuse_parameters(output.parameters, f" of output {output.name!r}", _UNSUPPORTED)


# --- The payload of a route ---


def _gtensors(request: Request) -> tuple[Tensor, ...]:
    return as_strings(request.inputs, request.translate.bytes, "input")


def _str_data(request: Request) -> tuple[Tensor, ...]:
    element = _one_element(request, Payload.STR_DATA)
    return (as_string(element, request.translate.bytes, f"input {element.name!r}"),)


def _bin_data(request: Request) -> tuple[Tensor, ...]:
    return (_one_element(request, Payload.BIN_DATA),)


def _one_element(request: Request, payload: Payload) -> Tensor:
    inputs = _one_input(request, payload)
    if not is_one_element(inputs):
        raise _does_not_fit(inputs[0], payload, "one element of BYTES")
    return one_element(inputs)[0]


def _ndarray(request: Request) -> tuple[Tensor, ...]:
    [tensor] = _one_input(request, Payload.NDARRAY)
    # Servers convert all numbers to DT_FLOAT32.
    if tensor.datatype not in NUMBERS or Datatype.FP32 not in WIDENINGS[tensor.datatype]:
        raise _does_not_fit(tensor, Payload.NDARRAY, "numbers that FP32 holds exactly")
    return (tensor,)


def _gmap(request: Request) -> tuple[Tensor, ...]:
    from_gmap, keys = client_payload(request.origin) is Payload.GMAP, gmap_keys(request.origin)
    return tuple([_entry(each, keys, from_gmap) for each in request.inputs])


def _entry(tensor: Tensor, keys: gmap.GmapKeys, from_gmap: bool) -> Tensor:
    entry = gmap.fit(tensor, keys, from_gmap=from_gmap)
    if entry is None:
        raise _does_not_fit(tensor, Payload.GMAP, "a name and one element")
    return entry


def _one_input(request: Request, payload: Payload) -> tuple[Tensor, ...]:
    if len(request.inputs) != 1:
        names = ", ".join(repr(each.name) for each in request.inputs)
        text = f"translate.payload: {payload.value} takes one input, got {len(request.inputs)}: {names}"
        raise invalid_input(f"{text}; send one, or change `translate.payload` on the route")
    return request.inputs


def _does_not_fit(tensor: Tensor, payload: Payload, expected: str) -> GatewayError:
    found = f"{tensor.datatype} of shape {list(tensor.shape)}"
    return invalid_input(f"input {tensor.name!r} is {found}; translate.payload: {payload.value} takes {expected}")


_PAYLOAD_TENSORS: dict[Payload, Callable[[Request], tuple[Tensor, ...]]] = {
    Payload.GTENSORS: _gtensors,
    Payload.STR_DATA: _str_data,
    Payload.BIN_DATA: _bin_data,
    Payload.NDARRAY: _ndarray,
    Payload.GMAP: _gmap,
}


# --- Responses ---


def decode_response(grps: GrpsMessage, headers: Headers, request: Request) -> Answer:
    """Return the backend's Answer to `request`. `headers` are the headers of the response.

    Raises:
        DecodeError: the response contains neither a status nor data, or its data does not answer the request.
        GatewayError: the error that the response reports.
    """
    failed = is_failure(grps.status)
    if request.operation in HEALTH:
        # FAILURE means that the server is not ready. The code is 503, or 403 from the Python server over gRPC.
        return not failed
    if grps.status is not None and failed:
        raise backend_error(grps.status, headers)
    if request.operation is Operation.METADATA:
        return metadata.read_model(_metadata_text(grps))
    if request.operation is Operation.MODELS:
        return metadata.read_server(_metadata_text(grps))
    return _decode_inference(grps)


def _metadata_text(grps: GrpsMessage) -> str:
    if grps.payload is not Payload.STR_DATA:
        raise DecodeError("the reply holds no str_data, expected metadata as YAML text")
    [content] = bytes_elements.unpack(grps.tensors[0].data)
    return content.decode()


def _decode_inference(grps: GrpsMessage) -> Response:
    if grps.payload is None and grps.status is None:
        raise DecodeError("the reply holds no data, expected str_data, bin_data, gtensors, gmap or ndarray")
    check_payload(grps, "output")
    outputs, keys = with_distinct_names(grps)
    outcome = None if grps.status == OK else grps.status
    origin = backend_message(grps.payload, bool(grps.model), keys, outcome)
    return Response(outputs, grps.model, origin=origin)
