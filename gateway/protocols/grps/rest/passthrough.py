"""Routes with `passthrough: true` ("customized HTTP"), whose requests and responses have bodies that only the model
understands.
"""

from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Answer, Buffer, Headers, Message, Request, Response, Translate
from gateway.protocols.grps.rest.urls import read_model

HTTP_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
""" "any" of the C++ server"""

_FORWARDED_HEADERS = frozenset((b"content-type", b"accept"))
"""The headers that describe the body. The gateway does not forward a client's other headers, above all its
credentials."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the Request of a client, which is always a stream. Raises DecodeError for an invalid query."""
    # "customized HTTP can only specify the model in the query"
    return Request(Operation.STREAM, read_model(message.query) or listener.model, origin=message)


def encode_request(request: Request, target: Target) -> Message:
    """Return the client's message, without the headers that are not forwarded."""
    message = request.origin
    assert message is not None
    headers = Headers([each for each in message.headers.raw if each[0] in _FORWARDED_HEADERS])
    return Message(message.method, message.path, headers, message.parts, query=message.query, deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """Return the backend's response, or one piece of its body, undecoded."""
    return Response(origin=reply)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the backend's response. It keeps the header `connection`, because the transport needs this header to find
    the names of the connection headers that it removes."""
    assert isinstance(answer, Response)
    assert answer.origin is not None
    return answer.origin


def wants_stream(message: Message) -> bool:
    """Return True, so bodies are not collected."""
    return True


class PieceCutter:
    """Splits a body into the pieces in which it arrives. A body without bytes is one empty piece, which signals the
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
        """Return the empty piece of a body without bytes."""
        return [] if self._has_come else [b""]
