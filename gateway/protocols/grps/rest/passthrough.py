"""Handles routes with `passthrough: true` ("customized HTTP"). Only the model understands the bodies of their requests
and responses.
"""

from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.protocols.grps.rest.urls import read_model

HTTP_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
""""any" in the C++ server"""

_FORWARDED_HEADERS = frozenset((b"content-type", b"accept"))
"""The headers that describe the body. The gateway forwards no other client headers, and in particular no
credentials."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the client's Request, which is always for a stream. Raise DecodeError if the query is invalid."""
    # "customized HTTP can only specify the model in the query"
    return Request(Operation.STREAM, read_model(message.query) or listener.model, origin=message)


def encode_request(request: Request, target: Target) -> Message:
    """Return the client's message, with only the headers that the gateway forwards."""
    message = request.origin
    assert message is not None
    headers = Headers([each for each in message.headers.raw if each[0] in _FORWARDED_HEADERS])
    return Message(message.method, message.path, headers, message.parts, query=message.query, deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's response, or one piece of its body, without decoding it."""
    return Response(origin=reply)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the backend's response. The response keeps the `connection` header, which lists the hop-by-hop headers
    that the transport must remove."""
    assert isinstance(answer, Response)
    assert answer.origin is not None
    return answer.origin


def wants_stream(message: Message) -> bool:
    """Return True, which prevents the gateway from collecting bodies."""
    return True


class PieceCutter:
    """Splits a body into the pieces in which it arrives. An empty body becomes one empty piece, which starts the
    response."""

    _has_come = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """Return the piece unchanged."""
        self._has_come = self._has_come or len(data) > 0
        return [data] if len(data) else []

    def boundary(self) -> list[Buffer]:
        """Return nothing, because pieces are never buffered."""
        return []

    def end(self) -> list[Buffer]:
        """Return the empty piece if the body was empty."""
        return [] if self._has_come else [b""]
