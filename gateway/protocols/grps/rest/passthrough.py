"""Customized HTTP paths of grps models, passed through: requests and replies are whatever the model makes of them."""

from gateway.core.operations import Operation
from gateway.core.protocol import HttpForm, ListenerSettings, Protocol, Target
from gateway.core.types import Answer, Headers, Message, Request, Response, Translate
from gateway.protocols.grps.rest import urls as queries
from gateway.protocols.grps.rest.errors import encode_error
from gateway.protocols.grps.rest.streams import PIECES
from gateway.protocols.grps.schema import REST, TRAITS

_FORWARDED = frozenset((b"content-type", b"accept"))
"""What a client says of its body. Everything else, its credentials above all, is the gateway's."""


def _decode_request(message: Message, listener: ListenerSettings) -> Request:
    # "customized HTTP can only specify the model in the query"
    return Request(Operation.STREAM, queries.read(message.query).model or listener.model, origin=message)


def _encode_request(request: Request, target: Target) -> Message:
    message = request.origin
    assert message is not None
    headers = Headers([each for each in message.headers.raw if each[0] in _FORWARDED])
    return Message(message.method, message.path, headers, message.parts, query=message.query, deadline=request.deadline)


def _decode_response(reply: Message, request: Request, target: Target) -> Answer:
    return Response(origin=reply)


def _encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    assert isinstance(answer, Response)
    assert answer.origin is not None
    # The transport leaves out what is of the connection alone; it needs `connection` for the names that stand in it.
    return answer.origin


def _always(message: Message) -> bool:
    return True


PASSTHROUGH = Protocol(
    name=REST,
    carrier=HttpForm(
        # "any" of the C++ server
        any_path=("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
        wants_stream=_always,
        stream_framing=PIECES,
    ),
    patterns=(),
    decode_request=_decode_request,
    encode_response=_encode_response,
    encode_error=encode_error,
    encode_request=_encode_request,
    decode_response=_decode_response,
    traits=TRAITS,
)
