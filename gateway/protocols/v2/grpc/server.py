"""Converts V2 gRPC requests to canonical Requests, and Answers to responses (client side)."""

from collections.abc import Sequence
from functools import partial

from gateway.core.errors import DecodeError, unsupported
from gateway.core.frozen import extended, replace
from gateway.core.messages import NO_HEADERS, Message, reply
from gateway.core.operations import CONTROL_OPERATIONS, SERVER_OPERATIONS, Operation
from gateway.core.protobuf.schema import Protobuf, ProtobufClass, parse
from gateway.core.protocol import DecodeRequest, EncodeResponse, ListenerSettings
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Parameters, Tensor
from gateway.protocols.v2.extensions import refuse_shared_memory_request
from gateway.protocols.v2.grpc import extensions, metadata, schema
from gateway.protocols.v2.grpc.parameters import read_parameters
from gateway.protocols.v2.grpc.schema import method_path
from gateway.protocols.v2.grpc.streams import (
    ENABLE_EMPTY_FINAL,
    TYPED_REPLY,
    InferMessage,
    wants_empty_final,
    wrap_response,
)
from gateway.protocols.v2.grpc.tensors import (
    REQUEST,
    RESPONSE,
    InferenceHead,
    Parts,
    read_inference,
    write_inference,
    write_typed,
)
from gateway.protocols.v2.grpc.typed_contents import all_typed
from gateway.protocols.v2.parameters import (
    FINAL_RESPONSE,
    refuse_shared_memory,
    take_deadline,
    take_flag,
    without_consumed,
)
from gateway.protocols.v2.tensors import as_written

_WHAT = "the request"


# --- inference requests ---


def _decode_infer(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a ModelInferRequest. `operation` is INFER or STREAM, depending on the method.

    The tensors of a large message are views of the message."""
    model, version, id, inputs, rest, typed = read_inference(message.body, REQUEST, listener.limits.message)
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Parameters = {}
    deadline, empty_final = None, False
    if rest is not None:
        outputs = _read_outputs(rest.outputs)
        given = read_parameters(rest.parameters, _WHAT)
        refuse_shared_memory(given, _WHAT)
        deadline = take_deadline(given, message, _WHAT) if given else None
        # perf_analyzer also sets this parameter in unary calls
        empty_final = bool(take_flag(given, ENABLE_EMPTY_FINAL, _WHAT)) and operation is Operation.STREAM
        parameters = without_consumed(given)
    origin = extended(InferMessage, message, empty_final, typed) if empty_final or typed else message
    return Request(operation, model, version, id, inputs, outputs, parameters, deadline=deadline, origin=origin)


def _read_outputs(given: Protobuf) -> tuple[RequestedOutput, ...]:
    outputs: dict[str, RequestedOutput] = {}
    for position, entry in enumerate(given):
        name = entry.name
        if not name:
            raise DecodeError(f"requested output {position} has no name")
        if name in outputs:
            raise DecodeError(f"output {name!r} is requested twice; request it once")
        what = f"output {name!r}"
        parameters = read_parameters(entry.parameters, what)
        refuse_shared_memory(parameters, what)
        parameters.pop("binary_data", None)
        outputs[name] = RequestedOutput(name, parameters)
    return tuple(outputs.values())


# --- all requests, by method ---


def _decode_model(operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings) -> Request:
    """Return a request for a model and optionally a version."""
    parsed = parse(kind, message.body)
    return Request(operation, parsed.name, parsed.version, origin=message)


def _decode_server(operation: Operation, kind: ProtobufClass, message: Message, listener: ListenerSettings) -> Request:
    """Return a request about the entire server.

    Raise GatewayError (UNIMPLEMENTED) if the message contains a `repository_name`, which Triton also rejects."""
    parsed = parse(kind, message.body)
    ready = operation is Operation.MODELS and parsed.ready
    if operation is Operation.MODELS and parsed.repository_name:
        raise unsupported("'repository_name' is not supported; leave it out for the index of all repositories")
    return Request(operation, parameters={"ready": True} if ready else {}, origin=message)


def _decode_statistics(message: Message, listener: ListenerSettings) -> Request:
    """Return a request for the statistics of one model, or of all models if the message contains no model name."""
    request = _decode_model(Operation.MODEL_STATISTICS, schema.ModelStatisticsRequest, message, listener)
    return request if request.model else replace(request, operation=Operation.ALL_STATISTICS, version="")


def _decoder(operation: Operation, kind: ProtobufClass) -> DecodeRequest:
    if operation in (Operation.INFER, Operation.STREAM):
        return partial(_decode_infer, operation)
    if operation in CONTROL_OPERATIONS:
        return partial(extensions.decode_control, operation, kind)
    if operation in (Operation.MODEL_STATISTICS, Operation.ALL_STATISTICS):
        return _decode_statistics
    return partial(_decode_server if operation in SERVER_OPERATIONS else _decode_model, operation, kind)


_SHARED_MEMORY: dict[str, DecodeRequest] = {
    method_path(f"{kind.title()}SharedMemory{verb}"): partial(refuse_shared_memory_request, kind)
    for kind in ("system", "cuda", "tpu")
    for verb in ("Status", "Register", "Unregister")
}
"""Methods that are not in the schema. The gateway serves them only to reject their calls with a specific error."""

_DECODERS: dict[str, DecodeRequest] = {
    **{method: _decoder(operation, kind) for operation, (method, kind) in schema.REQUESTS.items()},
    **_SHARED_MEMORY,
}

PATTERNS = (*schema.METHODS, *_SHARED_MEMORY)
"""The methods that the gateway serves."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request in a client's message.

    Raises:
        DecodeError: the message is not a message of the method, or would crash a model server.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds the limit; UNIMPLEMENTED if the request is for shared
        memory.
    """
    return _DECODERS[message.pattern](message, listener)


# --- responses ---


def _encode_infer(answer: Answer, request: Request, translate: Translate, typed: bool = False) -> Message:
    """Return a ModelInferResponse."""
    assert isinstance(answer, Response)
    return reply(NO_HEADERS, _write_response(answer, request, answer.parameters, translate, typed))


def _encode_stream(answer: Answer, request: Request, translate: Translate, typed: bool = False) -> Message:
    """Return one ModelStreamInferResponse."""
    assert isinstance(answer, Response)
    parameters = answer.parameters
    if wants_empty_final(request):
        parameters = {**parameters, FINAL_RESPONSE: False}
    return Message(parts=wrap_response(_write_response(answer, request, parameters, translate, typed)))


def _write_response(
    response: Response, request: Request, parameters: Parameters, translate: Translate, typed: bool
) -> Parts:
    """Return the ModelInferResponse for `response`, with `parameters` instead of the response's own parameters.

    The contents are typed if the request's contents are typed, and either the backend's contents are typed or `typed`
    is True. Clients that send raw requests read only raw contents, because Triton always sends raw contents. For
    example, tritonclient reads typed numbers as an empty array."""
    # name, version and id come from the client's request, because MLServer adds a new UUID to a response if its request
    # has no id
    model, version = request.model or response.model, request.version or response.version
    head = InferenceHead(model, version, request.id, parameters)
    outputs: Sequence[Tensor] = response.outputs
    for each in outputs:
        if each.content_type:
            outputs = as_written(outputs, translate)
            break
    origin = request.origin
    if (
        type(origin) is InferMessage
        and origin.typed
        and (typed or response.origin is TYPED_REPLY)
        and all_typed(outputs)
    ):
        return write_typed(head, RESPONSE, outputs)
    return write_inference(head, RESPONSE, outputs)


_ENCODERS: dict[Operation, EncodeResponse] = {
    Operation.LIVE: metadata.encode_health,
    Operation.READY: metadata.encode_health,
    Operation.MODEL_READY: metadata.encode_health,
    Operation.METADATA: metadata.encode_metadata,
    Operation.SERVER_METADATA: metadata.encode_server_metadata,
    **{operation: encode for operation, (_, encode, _) in extensions.RESPONSES.items()},
}


def encode_response(answer: Answer, request: Request, translate: Translate, typed: bool = False) -> Message:
    """Return the response to a request that `decode_request` returned, or one response of a stream.

    If `typed` is True, the response to a request with typed contents also has typed contents, as in MLServer and
    KServe. Otherwise, it has typed contents only if the backend's response also does.

    Raises:
        GatewayError: INVALID_ARGUMENT if a string is not UTF-8 or a parameter does not fit in 64 bits; INTERNAL if a
            configuration or statistics do not match Triton's message.
    """
    if request.operation is Operation.INFER:
        return _encode_infer(answer, request, translate, typed)
    if request.operation is Operation.STREAM:
        return _encode_stream(answer, request, translate, typed)
    return _ENCODERS[request.operation](answer, request, translate)
