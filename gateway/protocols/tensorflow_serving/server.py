"""Converts TensorFlow Serving requests to canonical Requests, and Answers to responses (client side)."""

from collections.abc import Mapping
from functools import partial

from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import extended, replace
from gateway.core.messages import NO_HEADERS, Buffer, Message, reply
from gateway.core.operations import Operation
from gateway.core.protobuf.schema import parse
from gateway.core.protobuf.wire import Allowance
from gateway.core.protocol import DecodeRequest, EncodeResponse, ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Parameters
from gateway.protocols.tensorflow_serving import inference, metadata, schema
from gateway.protocols.tensorflow_serving.examples import read_input
from gateway.protocols.tensorflow_serving.inference import TASKS, ExampleMessage, Task
from gateway.protocols.tensorflow_serving.model_spec import Servable, read_spec, response_spec
from gateway.protocols.tensorflow_serving.predict import (
    RAW,
    RAW_RESPONSE,
    REQUEST,
    RESPONSE,
    read_predict,
    write_predict,
)
from gateway.protocols.tensorflow_serving.schema import (
    GET_MODEL_METADATA,
    SERVING_DEFAULT,
    SIGNATURE_DEF,
    SIGNATURE_NAME,
    Payload,
)

# --- requests ---


def _parameters(signature: str) -> Parameters:
    # this is the default, so servers without signatures can accept the request
    return {SIGNATURE_NAME: signature} if signature and signature != SERVING_DEFAULT else {}


def _decode_predict(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a PredictRequest. The tensors of a large message are views of the message."""
    spec, inputs, outputs, origin = read_predict(message.body, REQUEST, listener.limits.message)
    servable = read_spec(spec)
    return Request(
        Operation.INFER,
        servable.model,
        servable.version,
        inputs=inputs,
        outputs=outputs,
        parameters=_parameters(servable.signature),
        origin=origin,
    )


def _decode_examples(method: str, message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a ClassificationRequest or RegressionRequest."""
    spec, examples = inference.read_request(message.body)
    servable = read_spec(spec)
    return _examples_request(servable, (Task(method, servable.signature),), examples, message, listener, called=method)


def _decode_multi(message: Message, listener: ListenerSettings) -> Request:
    servable, tasks, examples = inference.read_tasks(message.body, listener.limits.message)
    return _examples_request(servable, tasks, examples, message, listener)


def _examples_request(
    servable: Servable,
    tasks: tuple[Task, ...],
    examples: Buffer,
    message: Message,
    listener: ListenerSettings,
    *,
    called: str = "",
) -> Request:
    inputs, count = read_input(examples, listener.limits.message)
    bare = replace(message, parts=())
    origin = extended(ExampleMessage, bare, called or tasks[0].method, count, () if called else tasks)
    several = {TASKS: inference.tasks_text(tasks)}
    parameters = several if len(tasks) > 1 else _parameters(tasks[0].signature)
    return Request(
        Operation.INFER, servable.model, servable.version, inputs=inputs, parameters=parameters, origin=origin
    )


def _decode_metadata(message: Message, listener: ListenerSettings) -> Request:
    asked = parse(schema.GetModelMetadataRequest, _small(message))
    servable = read_spec(asked.model_spec.SerializeToString() if asked.HasField("model_spec") else None)
    if not asked.metadata_field:
        raise DecodeError("GetModelMetadataRequest must specify at least one metadata_field")
    for field in asked.metadata_field:
        if field != SIGNATURE_DEF:
            raise DecodeError(f"Metadata field {field} is not supported")
    return Request(Operation.METADATA, servable.model, servable.version)


def _decode_status(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a GetModelStatusRequest. Without a model, the request asks whether the server is ready, and
    a ready server rejects it (`metadata.encode_ready`)."""
    asked = parse(schema.GetModelStatusRequest, _small(message))
    if not asked.HasField("model_spec"):
        return Request(Operation.READY)
    servable = read_spec(asked.model_spec.SerializeToString())
    return Request(Operation.MODEL_READY, servable.model, servable.version)


def _small(message: Message) -> Buffer:
    """Return the body of a request without tensors. Raise DecodeError if the body is too large."""
    body = message.body
    if len(body) > Allowance.ALWAYS:
        raise DecodeError(f"the request has {len(body)} bytes; expected at most {Allowance.ALWAYS} without tensors")
    return body


def _refuse_reload(message: Message, listener: ListenerSettings) -> Request:
    raise unsupported(
        "HandleReloadConfigRequest is not supported: it replaces all models with their folders, which the"
        " gateway does not have; send it to the model server"
    )


_DECODERS: Mapping[str, DecodeRequest] = {
    schema.PREDICT: _decode_predict,
    schema.CLASSIFY: partial(_decode_examples, Payload.CLASSIFY),
    schema.REGRESS: partial(_decode_examples, Payload.REGRESS),
    schema.MULTI_INFERENCE: _decode_multi,
    GET_MODEL_METADATA: _decode_metadata,
    schema.GET_MODEL_STATUS: _decode_status,
    schema.RELOAD_CONFIG: _refuse_reload,
}

PATTERNS = tuple(_DECODERS)
"""The methods that the gateway serves."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a client's message.

    Raises:
        DecodeError: the message is not a message of the method, contains no model name, or contains malformed tensors
            or examples.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit; UNIMPLEMENTED if the method is
            HandleReloadConfigRequest, or the request has options of newer versions.
    """
    return _DECODERS[message.pattern](message, listener)


# --- responses ---


def _encode_infer(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response of the method that the client called."""
    assert isinstance(answer, Response)
    signature = str(request.parameters.get(SIGNATURE_NAME, SERVING_DEFAULT))
    servable = response_spec(request.model, answer.version or request.version, signature)
    origin = request.origin
    if not isinstance(origin, ExampleMessage):
        kind = RAW_RESPONSE if answer.origin is RAW else RESPONSE
        return reply(NO_HEADERS, write_predict(kind, servable, answer.outputs))
    outputs = {each.name: each for each in answer.outputs}
    if origin.tasks:
        return reply(NO_HEADERS, inference.write_results(origin.tasks, servable, outputs, origin.examples))
    return reply(NO_HEADERS, (inference.write_response(origin.called, servable, outputs, origin.examples),))


_ENCODERS: Mapping[Operation, EncodeResponse] = {
    Operation.INFER: _encode_infer,
    Operation.METADATA: metadata.encode_metadata,
    Operation.MODEL_READY: metadata.encode_status,
    Operation.READY: metadata.encode_ready,
}


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the response to a request that `decode_request` returned.

    As in responses from real servers, outputs are typed lists, unless the backend sent `tensor_content`.

    Raises:
        GatewayError: INVALID_ARGUMENT if a name is not valid Unicode; INTERNAL if the outputs do not match Classify or
            Regress.
    """
    return _ENCODERS[request.operation](answer, request, translate)
