"""Relay of inferences from a grps-rest client to a grps-rest server, without decoding them (`core.protocol.Relay`). The
client and the server must request streams in the same way."""

from functools import lru_cache, partial

from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message
from gateway.core.messages import reply as reply_to_client
from gateway.core.offload import LARGE
from gateway.core.operations import INFER, STREAM
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Head, Request
from gateway.protocols.grps.client import model_and_version
from gateway.protocols.grps.json.head import find_model, tells_success
from gateway.protocols.grps.rest.bodies import JSON_TYPE, OCTETS, OCTETS_TYPE, begins_object, media_type, stream_headers
from gateway.protocols.grps.rest.client import asked, decode_response
from gateway.protocols.grps.rest.stream_control import BODY, StreamControl
from gateway.protocols.grps.rest.urls import is_inference, read_query

_HEADERS = {JSON_TYPE: JSON_HEADERS, OCTETS_TYPE: OCTETS}


# --- requests ---


def head(message: Message, listener: ListenerSettings, control: StreamControl) -> Head | None:
    """Return the request of an inference.

    Return None if the gateway must decode the request, because it has another path, the client requests an ndarray, or
    `find_model` returns None.

    Raises:
        DecodeError: the query is invalid, or the client requests a stream in a way that `control` does not allow.
    """
    body = message.body
    if not len(body) or not is_inference(message):
        return None
    query = read_query(message.query, control.key)
    if query.returns_ndarray:
        return None
    asks = control.asks(message, query)
    model: str | None = ""
    if not _is_octets(message):
        model = find_model(body, control.key, 1 if asks and control.mode == BODY else 0)
        if model is None:
            return None
    return Head(STREAM if asks else INFER, model or query.model or listener.model)


def _is_octets(message: Message) -> bool:
    """Return whether a client's body is bin_data."""
    return media_type(message.headers.get("content-type")) == OCTETS_TYPE


def request(message: Message, request: Request, target: Target, control: StreamControl) -> Message | None:
    """Return the message to a server.

    Return None if only one of the client's message and `request` asks for a stream."""
    asks = request.operation is STREAM
    if asks is not control.asks(message, read_query(message.query, control.key)):
        return None
    headers = OCTETS if _is_octets(message) else JSON_HEADERS
    # The server uses the name in the query if the message contains no name. If it does, both names are the same.
    return asked(request, control, headers, message.parts, model_and_version(request))


# --- responses ---


def reply(reply: Message, request: Request, target: Target, control: StreamControl) -> Message | None:
    """Return the response to the client, or one message of a stream. Return None if the gateway must decode it.

    Raises:
        DecodeError, GatewayError: the errors of `client.decode_response`.
    """
    headers = _reply_headers(reply, request, control)
    if headers is None and reply.status == 200:
        return None
    if headers is None or not _is_success(reply.body, headers):
        if len(reply.body) > LARGE:
            return None
        decode_response(reply, request, target)
    return None if headers is None else reply_to_client(headers, reply.parts, 200)


def _reply_headers(reply: Message, request: Request, control: StreamControl) -> Headers | None:
    """Return the headers of the response to the client.

    Return None if grps does not use the content type, or if the status is not 200."""
    if reply.status != 200:
        return None
    given = reply.headers.get("content-type")
    if request.operation is STREAM:
        return stream_headers(control.content_type or given)
    return _HEADERS.get(media_type(given))


def _is_success(body: Buffer, headers: Headers) -> bool:
    """Return whether a body with these headers is bin_data, or begins with a success status."""
    return tells_success(body) or (headers is not JSON_HEADERS and not begins_object(body))


@lru_cache(64)
def relay(control: StreamControl) -> Relay | None:
    """Return the Relay between a listener and a backend with the same `control`. Return None if JSON has several
    spellings of its key."""
    if not control.is_plain:
        return None
    return Relay(partial(head, control=control), partial(request, control=control), partial(reply, control=control))
