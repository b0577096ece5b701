"""grps over HTTP, facing clients."""

from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.types import Answer, Message, Request, Response, Translate, reply
from gateway.protocols.grps import server
from gateway.protocols.grps.json.message import read_message, write_message
from gateway.protocols.grps.json.verbatim import text_as_it_came
from gateway.protocols.grps.rest import metrics_page
from gateway.protocols.grps.rest.bodies import (
    JSON,
    JSON_TYPE,
    NAN,
    OCTETS,
    OCTETS_TYPE,
    begins_object,
    bin_data_body,
    bin_data_message,
    media_type,
    stream_headers,
)
from gateway.protocols.grps.rest.urls import OPERATIONS, STREAMING, Query, is_inference, read_flag, read_query
from gateway.protocols.grps.schema import GrpsMessage, Payload

_STREAMING_HEADER = STREAMING.encode()


def wants_stream(message: Message) -> bool:
    """Whether the client asks for a stream, with `streaming=true` in the query or a header `streaming: true`."""
    if STREAMING not in message.query and _STREAMING_HEADER not in message.headers.first:
        return False
    if not is_inference(message):
        return False
    try:
        return _asks_for_stream(message, read_query(message.query))
    except DecodeError:
        return False  # `decode_request` reports what is wrong


def _asks_for_stream(message: Message, query: Query) -> bool:
    header = message.headers.get(STREAMING)
    return query.streaming or (bool(header) and read_flag(header, f"the header {STREAMING}"))


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The request of a client.

    Raises:
        DecodeError: an invalid query or body.
        GatewayError: RESOURCE_EXHAUSTED, tensors beyond the limit.
    """
    query = read_query(message.query)
    if is_inference(message):
        return _decode_inference(message, query, listener)
    operation = OPERATIONS.get(message.pattern, Operation.STATISTICS)
    grps = GrpsMessage()
    if operation is Operation.METADATA and len(message.body):
        grps = read_message(message.body, "input", listener.limits)
    return server.decode_request(grps, operation, message, query.model or listener.model)


def _decode_inference(message: Message, query: Query, listener: ListenerSettings) -> Request:
    is_stream = _asks_for_stream(message, query)
    if is_stream and query.returns_ndarray:
        # both servers' text
        raise DecodeError("Bad Request, err: Streaming and ret ndarray are not supported at the same time.")
    return server.decode_request(
        _read_body(message, listener.limits, is_stream),
        Operation.STREAM if is_stream else Operation.INFER,
        message,
        query.model or listener.model,
        returns_ndarray=query.returns_ndarray,
    )


def _read_body(message: Message, limits: Limits, is_stream: bool) -> GrpsMessage:
    """The message of an inference. Real servers refuse a type with parameters, and JSON without its type."""
    content_type = message.headers.get("content-type")
    given = media_type(content_type)
    if given == OCTETS_TYPE:
        return bin_data_message(message.body)
    if not begins_object(message.body) and given != JSON_TYPE:
        found = f"Content-Type {content_type[:100]!r} is" if content_type else "a body without Content-Type is"
        raise DecodeError(f"{found} not supported, expected {JSON_TYPE} or {OCTETS_TYPE}")
    return read_message(message.body, "input", limits, forbidden="" if is_stream else STREAMING)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The reply to a request that `decode_request` returned, or one message of a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT naming an output that the reply cannot carry.
    """
    if request.operation is Operation.STATISTICS:
        return metrics_page.encode_response(answer, request)
    grps = server.encode_response(answer, request, translate)
    is_stream = request.operation is Operation.STREAM
    if grps.payload is Payload.BIN_DATA:
        body = bin_data_body(grps)
        if len(body) or not is_stream:
            return reply(stream_headers(answer) if is_stream else OCTETS, (body,), 200)
        # An empty chunk would end the stream.
        grps = replace(grps, payload=Payload.STR_DATA)
    original = answer.original if isinstance(answer, Response) else None
    text = text_as_it_came(original, grps) or write_message(grps, "output", translate.nan or NAN)
    assert grps.status is not None
    return reply(stream_headers(answer) if is_stream else JSON, text, grps.status.code)


def encode_end(request: Request) -> Message:
    """The end of a stream: no bytes. In a stream without messages it is the reply."""
    return Message(headers=OCTETS, status=200)
