"""The protocol `grps-rest`: which question stands at which path, and who reads and writes it."""

from gateway.core.errors import DecodeError
from gateway.core.examples import curl
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import HttpForm, ListenerSettings, Protocol, Target
from gateway.core.types import Answer, Message, Request, Translate
from gateway.protocols.grps import client as requests
from gateway.protocols.grps import operations
from gateway.protocols.grps import server as responses
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.rest import bodies as rest_bodies
from gateway.protocols.grps.rest import pages
from gateway.protocols.grps.rest import urls as queries
from gateway.protocols.grps.rest.bodies import JSON, OCTETS
from gateway.protocols.grps.rest.errors import encode_error
from gateway.protocols.grps.rest.passthrough import PASSTHROUGH
from gateway.protocols.grps.rest.streams import CONCATENATED
from gateway.protocols.grps.schema import PAYLOADS, REST, TRAITS, Kind

_ROOT = "/grps/v1"
_PREDICT = f"{_ROOT}/infer/predict"
_PATHS = {
    "Predict": ("POST", _PREDICT),
    "PredictStreaming": ("POST", _PREDICT),
    "Online": ("GET", f"{_ROOT}/health/online"),
    "Offline": ("GET", f"{_ROOT}/health/offline"),
    "CheckLiveness": ("GET", f"{_ROOT}/health/live"),
    "CheckReadiness": ("GET", f"{_ROOT}/health/ready"),
    "ServerMetadata": ("GET", f"{_ROOT}/metadata/server"),
    "ModelMetadata": ("POST", f"{_ROOT}/metadata/model"),
}
"""How each method is asked. "GET, POST" of the Python server and "any" of the C++ server take both where there is a
GET."""

_OPERATIONS = {
    f"{method} {path}": operations.METHODS[name]
    for name, (own, path) in _PATHS.items()
    if path != _PREDICT
    for method in dict.fromkeys((own, "GET", "POST"))
}

_NAN = "string"


def _is_inference(message: Message) -> bool:
    """Its own path, and every other that a route gives to the protocol."""
    return message.pattern not in _OPERATIONS and message.pattern not in pages.PATTERNS


def wants_stream(message: Message) -> bool:
    """Whether the client said `streaming=true`."""
    if "streaming" not in message.query or not _is_inference(message):
        return False
    try:
        return queries.read(message.query).streaming
    except DecodeError:
        return False  # decode_request tells what is wrong


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """What a client asks.

    Raises:
        DecodeError: a query or a body that is not grps'.
        GatewayError: RESOURCE_EXHAUSTED.
    """
    query = queries.read(message.query)
    if _is_inference(message):
        return _decode_infer(message, query, listener)
    operation = _OPERATIONS.get(message.pattern, Operation.STATISTICS)
    grps = GrpsMessage()
    if operation is Operation.METADATA and len(message.body):
        grps = json_message.read(message.body, "input", listener.limits)
    return requests.decode(grps, operation, message, listener, model=query.model)


def _decode_infer(message: Message, query: queries.Query, listener: ListenerSettings) -> Request:
    if query.streaming and query.returns_ndarray:
        # the words of both servers
        raise DecodeError("Bad Request, err: Streaming and ret ndarray are not supported at the same time.")
    return requests.decode(
        rest_bodies.read_request(message, listener.limits),
        Operation.STREAM if query.streaming else Operation.INFER,
        message,
        listener,
        model=query.model,
        returns_ndarray=query.returns_ndarray,
    )


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that decode_request read, or one message of a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that has no form in the reply that was asked for.
    """
    if request.operation is Operation.STATISTICS:
        return pages.encode(answer, request)
    grps = responses.encode(answer, request, translate)
    streamed = request.operation is Operation.STREAM
    if grps.kind is Kind.BIN_DATA:
        body = rest_bodies.bytes_of(grps)
        if len(body) or not streamed:
            return Message(headers=OCTETS, parts=(body,), status=200)
        # an empty chunk would be the end of the stream
        grps = replace(grps, kind=Kind.STR_DATA)
    text = json_message.write(grps, "output", translate.nan or _NAN)
    assert grps.status is not None
    return Message(headers=OCTETS if streamed else JSON, parts=text, status=grps.status.code)


def encode_end(request: Request) -> Message:
    """Nothing more; of a stream without a message the head."""
    return Message(headers=OCTETS, status=200)


def encode_request(request: Request, target: Target) -> Message:
    """The message that asks `target`.

    Raises:
        GatewayError: UNIMPLEMENTED, no such operation in grps; INVALID_ARGUMENT, a parameter or tensor that has no form
            in it.
    """
    method, path = _PATHS[operations.method(request.operation)]
    grps = requests.encode(request)
    streaming = request.operation is Operation.STREAM
    if grps.kind is Kind.BIN_DATA:
        query = queries.write(model=grps.model, streaming=streaming)
        body = rest_bodies.bytes_of(grps)
        return Message(method, path, OCTETS, (body,), query=query, deadline=request.deadline)
    if method == "GET":
        return Message(method, path, deadline=request.deadline)
    text = json_message.write(grps, "input", request.translate.nan or _NAN)
    return Message(method, path, JSON, text, query=queries.write(streaming=streaming), deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's answer to `request`, or one message of its stream.

    Raises:
        DecodeError: a reply that is not grps'.
        GatewayError: the error that it tells.
    """
    grps = rest_bodies.read_reply(reply, target.limits, streamed=request.operation is Operation.STREAM)
    return responses.decode(grps, reply.headers, request)


GRPS_REST = Protocol(
    name=REST,
    carrier=HttpForm(
        # "customized_predict_http": the same body on another path
        any_path=("POST",),
        wants_stream=wants_stream,
        stream_framing=CONCATENATED,
        passthrough=PASSTHROUGH,
        pages=pages.PATTERNS,
    ),
    patterns=(f"POST {_PREDICT}", *_OPERATIONS),
    payloads=PAYLOADS,
    decode_request=decode_request,
    encode_response=encode_response,
    encode_error=encode_error,
    encode_request=encode_request,
    decode_response=decode_response,
    traits=replace(TRAITS, wire=replace(TRAITS.wire, streams=True)),
    encode_end=encode_end,
    example=lambda address, model, version: curl(f"http://{address}/grps/v1/metadata/model", {"str_data": model}),
)
