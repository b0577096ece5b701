"""Converts canonical Requests to V2 gRPC requests, and responses to Answers (upstream side)."""

from collections.abc import Callable, Sequence

from gateway.core.datatypes import Datatype
from gateway.core.errors import unsupported
from gateway.core.grpc_status import error_of
from gateway.core.messages import Buffer, Message, call
from gateway.core.models import Signature
from gateway.core.operations import CONTROL_OPERATIONS, INFER, SERVER_OPERATIONS, STREAM, Operation
from gateway.core.protobuf.schema import Protobuf, ProtobufClass, check_values, not_utf8
from gateway.core.protocol import Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.v2.extensions import check_operation, check_outputs, check_parameters
from gateway.protocols.v2.flavors import KSERVE, MLSERVER, OPENVINO, TYPED, check_version
from gateway.protocols.v2.grpc import extensions, metadata, schema
from gateway.protocols.v2.grpc.errors import decode_stream_error, denies_readiness
from gateway.protocols.v2.grpc.parameters import read_parameters
from gateway.protocols.v2.grpc.streams import TYPED_REPLY, InferMessage, unwrap_response
from gateway.protocols.v2.grpc.tensors import (
    REQUEST,
    RESPONSE,
    InferenceHead,
    read_inference,
    write_inference,
    write_typed,
)
from gateway.protocols.v2.grpc.typed_contents import all_typed
from gateway.protocols.v2.parameters import check_id
from gateway.protocols.v2.tensors import as_written, widen

# --- requests ---

LACKING = {
    **{flavor: frozenset({Datatype.BF16}) for flavor in (KSERVE, MLSERVER)},
    TYPED: frozenset({Datatype.FP16, Datatype.BF16}),
}
"""The datatypes that a server type does not support, or that typed contents cannot represent."""


def encode_request(request: Request, target: Target) -> Message:
    """Return the request as a message for `target`.

    Raises:
        GatewayError: UNIMPLEMENTED if V2 gRPC does not define the operation or the server lacks the extension;
            INVALID_ARGUMENT if the message cannot represent a string or parameter (the error message says which);
            NOT_FOUND if this server type cannot have the version.
    """
    if request.operation is INFER or request.operation is STREAM:
        return _encode_infer(request, target)
    check_operation(request.operation, target)
    if request.operation in CONTROL_OPERATIONS:
        return extensions.encode_control(request)
    if request.operation not in schema.REQUESTS:
        raise unsupported(f"V2 gRPC has no operation {request.operation.value}")
    method, kind = schema.REQUESTS[request.operation]
    return call(method, (_write_request(kind, request, target).SerializeToString(),))


def _write_request(kind: ProtobufClass, request: Request, target: Target) -> Protobuf:
    if request.operation in SERVER_OPERATIONS:
        return kind()
    check_version(request.version, target)
    try:
        return kind(name=request.model, version=request.version)
    except UnicodeEncodeError as error:
        raise not_utf8(error, "the request") from error


def _encode_infer(request: Request, target: Target) -> Message:
    """Return a ModelInferRequest. Its contents are typed if the client's request is typed, and raw otherwise. All
    server types except TYPED read raw contents."""
    if request.version:
        check_version(request.version, target)
    if request.outputs:
        check_outputs(request.outputs, target)
    if request.parameters:
        check_parameters(request.parameters, target)
    method, _ = schema.REQUESTS[request.operation]
    lacking = LACKING.get(target.flavor)
    inputs: Sequence[Tensor] = [widen(each, lacking) for each in request.inputs] if lacking else request.inputs
    for each in inputs:
        if each.content_type:
            inputs = as_written(inputs, request.translate)
            break
    head = InferenceHead(request.model, request.version, request.id, request.parameters, request.outputs, target)
    origin = request.origin
    if target.flavor == TYPED or (type(origin) is InferMessage and origin.typed and all_typed(inputs)):
        return call(method, write_typed(head, REQUEST, inputs))
    return call(method, write_inference(head, REQUEST, inputs))


# --- responses ---

_DECODERS: dict[Operation, Callable[[Message], Answer]] = {
    Operation.LIVE: metadata.decode_live,
    Operation.READY: metadata.decode_ready,
    Operation.MODEL_READY: metadata.decode_model_ready,
    Operation.METADATA: metadata.decode_metadata,
    Operation.SERVER_METADATA: metadata.decode_server_metadata,
    **{operation: decode for operation, (_, _, decode) in extensions.RESPONSES.items()},
}


_COUNTED: dict[Operation, ProtobufClass] = {
    Operation.METADATA: schema.ModelMetadataResponse,
    Operation.SERVER_METADATA: schema.ServerMetadataResponse,
    **{operation: kind for operation, (kind, _, _) in extensions.RESPONSES.items() if kind.DESCRIPTOR.fields},
}
"""The types of responses in which every field becomes a Python object."""
_LISTS = frozenset({Operation.MODELS, Operation.ALL_STATISTICS})


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's Answer to `request`, or one Answer of a stream.

    Raises:
        DecodeError: V2 does not allow the response, or the response contains the id of another request.
        GatewayError: the error that the response reports.
    """
    if reply.status:
        if request.operation is Operation.MODEL_READY and denies_readiness(reply):
            return False
        raise error_of(reply)
    if request.operation is not INFER and request.operation is not STREAM:
        kind, limits = _COUNTED.get(request.operation), target.limits
        if kind is not None:
            most = limits.of_lists if request.operation in _LISTS else limits
            check_values(kind, reply.body, most.json_values)
        answer = _DECODERS[request.operation](reply)
        return answer.with_images() if target.flavor == OPENVINO and isinstance(answer, Signature) else answer
    # MLServer streams ModelInferResponses without a wrapper
    is_wrapped = request.operation is STREAM and target.flavor != MLSERVER
    body = _unwrapped(reply) if is_wrapped else reply.body
    model, version, id, outputs, rest, typed = read_inference(body, RESPONSE, target.limits.message)
    parameters = read_parameters(rest.parameters, "the response", reply=True) if rest else {}
    response = Response(outputs, model, version, id, parameters, TYPED_REPLY if typed else reply)
    if request.id:
        check_id(response, request.id)
    return response


def _unwrapped(reply: Message) -> Buffer:
    """Return the ModelInferResponse in a stream's response. Raise GatewayError if the response is an error."""
    wrapped, error = unwrap_response(reply.body)
    if error:
        raise decode_stream_error(error, wrapped)
    return wrapped
