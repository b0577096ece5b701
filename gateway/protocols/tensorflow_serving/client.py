"""Converts canonical Requests to TensorFlow Serving requests, and responses to Answers (upstream side)."""

from collections.abc import Callable, Mapping

from gateway.core.errors import Status, invalid_input, unsupported
from gateway.core.messages import Message, call
from gateway.core.operations import INFER, Operation
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response, refuse_parameters, refuse_parameters_of_inputs
from gateway.protocols.tensorflow_serving import inference, metadata, schema
from gateway.protocols.tensorflow_serving.errors import decode_error
from gateway.protocols.tensorflow_serving.examples import write_input
from gateway.protocols.tensorflow_serving.inference import TASKS, ExampleMessage
from gateway.protocols.tensorflow_serving.model_spec import Servable, read_any_spec, write_spec
from gateway.protocols.tensorflow_serving.predict import (
    REQUEST,
    RESPONSE,
    TYPED,
    TYPED_REQUEST,
    read_predict,
    write_predict,
)
from gateway.protocols.tensorflow_serving.schema import SIGNATURE_DEF, SIGNATURE_NAME, STATUS, Payload

_UNSUPPORTED = " by TensorFlow Serving"

# --- requests ---

_PATHS = {
    Payload.PREDICT: schema.PREDICT,
    Payload.CLASSIFY: schema.CLASSIFY,
    Payload.REGRESS: schema.REGRESS,
}


def _method(request: Request) -> str:
    """Return the method that runs the model. The result is the method that the route's `payload` selects, or else the
    method of a client that speaks this protocol, or else Predict."""
    if request.translate.payload:
        return request.translate.payload
    return request.origin.called if isinstance(request.origin, ExampleMessage) else Payload.PREDICT


def _encode_infer(request: Request) -> Message:
    refuse_parameters_of_inputs(request, _UNSUPPORTED)
    servable = Servable(request.model, request.version, _signature(request))
    if TASKS in request.parameters:
        tasks = inference.tasks_of(request.parameters[TASKS])
        return call(schema.MULTI_INFERENCE, inference.write_tasks(servable, tasks, write_input(request.inputs)))
    method = _method(request)
    if method != Payload.PREDICT:
        return call(_PATHS[method], inference.write_request(servable, write_input(request.inputs)))
    outputs = [each.name for each in request.outputs]
    kind = TYPED_REQUEST if request.origin is TYPED else REQUEST
    return call(schema.PREDICT, write_predict(kind, servable, request.inputs, outputs))


def _signature(request: Request) -> str:
    """Return the signature that the client requested.

    Raise GatewayError (INVALID_ARGUMENT) if the request has any other parameter."""
    for name, value in request.parameters.items():
        if name not in (SIGNATURE_NAME, TASKS):
            raise invalid_input(f"TensorFlow Serving has no parameters but {SIGNATURE_NAME!r}; got {name!r}")
        if not isinstance(value, str):
            raise invalid_input(f"parameter {name!r} is {value!r}; expected the name of a signature")
    for output in request.outputs:
        if output.parameters:
            refuse_parameters(output.parameters, f" of output {output.name!r}", _UNSUPPORTED)
    return str(request.parameters.get(SIGNATURE_NAME, ""))


def _encode_status(request: Request) -> Message:
    spec = write_spec(Servable(request.model, request.version))
    return call(schema.GET_MODEL_STATUS, (_with_spec(spec),))


def _encode_metadata(request: Request) -> Message:
    if request.part == STATUS:
        return _encode_status(request)
    asked = schema.GetModelMetadataRequest(metadata_field=[SIGNATURE_DEF])
    spec = write_spec(Servable(request.model, request.version))
    return call(schema.GET_MODEL_METADATA, (_with_spec(spec) + asked.SerializeToString(),))


def _with_spec(spec: bytes) -> bytes:
    written: bytes = schema.GetModelStatusRequest(model_spec=schema.ModelSpec.FromString(spec)).SerializeToString()
    return written


def _encode_nothing(request: Request) -> Message:
    """Return a GetModelStatusRequest without a model, which a running server rejects."""
    return call(schema.GET_MODEL_STATUS, (b"",))


_ENCODERS: Mapping[Operation, Callable[[Request], Message]] = {
    Operation.INFER: _encode_infer,
    Operation.METADATA: _encode_metadata,
    Operation.MODEL_READY: _encode_status,
    Operation.LIVE: _encode_nothing,
    Operation.READY: _encode_nothing,
}


def encode_request(request: Request, target: Target) -> Message:
    """Return the request as a message for `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if TensorFlow Serving does not support the operation; INVALID_ARGUMENT if the
            message cannot represent a tensor, a parameter or a name (the message says which); NOT_FOUND if the version
            does not fit in 64 bits.
    """
    if request.operation is Operation.MODELS:
        raise unsupported("TensorFlow Serving cannot list its models")
    ask = _ENCODERS.get(request.operation)
    if ask is None:
        raise unsupported(f"TensorFlow Serving has no operation {request.operation.value}")
    return ask(request)


# --- responses ---


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`.

    Raises:
        DecodeError: the message is not a response of the method.
        GatewayError: the error that the response reports.
    """
    operation = request.operation
    if operation in (Operation.LIVE, Operation.READY):
        return metadata.decode_server_ready(reply)
    if reply.status:
        if operation is Operation.MODEL_READY and reply.status == Status.NOT_FOUND:
            return False
        raise decode_error(reply, request)
    if operation is INFER:
        return _decode_infer(reply, request, target)
    if operation is Operation.MODEL_READY:
        return metadata.decode_ready(reply)
    return (
        metadata.decode_status(reply, request) if request.part == STATUS else metadata.decode_metadata(reply, request)
    )


def _decode_infer(reply: Message, request: Request, target: Target) -> Response:
    """Return the outputs in the method's response. The data of a large message's outputs are views of the message."""
    origin = None
    if TASKS in request.parameters:
        tasks = inference.tasks_of(request.parameters[TASKS])
        servable, outputs = inference.read_results(tasks, reply.body, target.limits.message)
    elif (method := _method(request)) != Payload.PREDICT:
        servable, outputs = inference.read_response(method, reply.body, target.limits.message)
    else:
        spec, outputs, _, origin = read_predict(reply.body, RESPONSE, target.limits.message)
        servable = read_any_spec(spec or b"")
    return Response(outputs, servable.model, servable.version, origin=origin)
