"""The protocol `grps-grpc`: GrpsMessage in protobuf, as request and reply of every method of GrpsService.

A Message's `path` and `pattern` are the whole method. Errors are messages: the status of the call is OK, that inside is
FAILURE. PredictStreaming takes one request, and the replies are any number of messages.
"""

from gateway.core.errors import REASON_HEADER, GatewayError, Reason, refusal
from gateway.core.examples import grpcurl
from gateway.core.frozen import replace
from gateway.core.grpc_status import error_of
from gateway.core.protocol import GrpcForm, ListenerSettings, Protocol, Target
from gateway.core.types import Answer, Headers, Message, Request, Translate
from gateway.protocols.grps import client as requests
from gateway.protocols.grps import errors
from gateway.protocols.grps import server as responses
from gateway.protocols.grps.descriptors import DESCRIPTORS, SERVICE
from gateway.protocols.grps.descriptors import METHODS as PATTERNS
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.operations import METHODS, method
from gateway.protocols.grps.protobuf.message import read_message, write_message
from gateway.protocols.grps.schema import BINARY_PAYLOADS, GRPC, TRAITS

_OPERATIONS = {f"/{SERVICE}/{name}": operation for name, operation in METHODS.items()}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks.

    Raises:
        DecodeError: not a GrpsMessage, or one that no model can have.
        GatewayError: RESOURCE_EXHAUSTED, tensors beyond the limit.
    """
    grps = read_message(message.body, listener.limits.message)
    return requests.decode(grps, _OPERATIONS[message.pattern], message, listener)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that decode_request read; one of them in a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no form in the reply.
    """
    return _reply(responses.encode(answer, request, translate))


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The message that tells `error`, also to those who sent none: every client of grps looks into the message, and
    a call that fails is to it a connection that does."""
    return replace(_reply(errors.failure(error)), headers=Headers((errors.reason_header(error),)))


def _reply(grps: GrpsMessage) -> Message:
    return Message(parts=write_message(grps))


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation in grps, or an ndarray; INVALID_ARGUMENT, a parameter or an input
            that has no form on it.
    """
    path = f"/{SERVICE}/{method(request.operation)}"
    return Message(path=path, parts=write_message(requests.encode(request)), pattern=path)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`; one of them in a stream.

    Raises:
        DecodeError: a reply that is not grps'.
        GatewayError: the error that the reply tells, in its message or by the status of the call.
    """
    if reply.status:
        raise _failed_call(reply)
    grps = read_message(reply.body, target.limits.message)
    return responses.decode(grps, reply.headers, request)


def _failed_call(reply: Message) -> GatewayError:
    error = error_of(reply)
    # The Python server's limit is one of calls, gRPC's own ("SERVER: Received message larger than max") of bytes.
    if error.reason is Reason.TOO_LARGE and "larger than max" not in error.message and not _is_of_gateway(reply):
        return refusal(Reason.OVERLOADED, error.message)
    return error


def _is_of_gateway(reply: Message) -> bool:
    return bool(reply.headers.get(REASON_HEADER))


GRPS_GRPC = Protocol(
    name=GRPC,
    carrier=GrpcForm(frozenset({f"/{SERVICE}/PredictStreaming"}), DESCRIPTORS),
    patterns=PATTERNS,
    decode_request=decode_request,
    encode_response=encode_response,
    encode_error=encode_error,
    encode_request=encode_request,
    decode_response=decode_response,
    traits=replace(TRAITS, wire=replace(TRAITS.wire, streams=True)),
    payloads=BINARY_PAYLOADS,
    example=lambda address, model, version: grpcurl(address, f"{SERVICE}/ModelMetadata", {"str_data": model}),
)
