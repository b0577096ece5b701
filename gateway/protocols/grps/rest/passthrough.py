"""Routes with `passthrough: true`: "customized HTTP", requests and replies whose bodies only the model understands."""

from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Answer, Buffer, Headers, Message, Request, Response, Translate
from gateway.protocols.grps.rest.urls import read_model

HTTP_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
""" "any" of the C++ server"""

_FORWARDED_HEADERS = frozenset((b"content-type", b"accept"))
"""What describes the body. A client's other headers, its credentials above all, are for the gateway only."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The request of a client: always a stream. Raises DecodeError for an invalid query."""
    # "customized HTTP can only specify the model in the query"
    return Request(Operation.STREAM, read_model(message.query) or listener.model, origin=message)


def encode_request(request: Request, target: Target) -> Message:
    """The client's message, without the headers that are not forwarded."""
    message = request.origin
    assert message is not None
    headers = Headers([each for each in message.headers.raw if each[0] in _FORWARDED_HEADERS])
    return Message(message.method, message.path, headers, message.parts, query=message.query, deadline=request.deadline)


def decode_response(reply: Message, request: Request, target: Target) -> Answer:
    """The backend's reply, or one piece of its body, unread."""
    return Response(origin=reply)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """The backend's reply. The transport removes headers of the connection; for that it needs the names in
    `connection`, so this header stays."""
    assert isinstance(answer, Response)
    assert answer.origin is not None
    return answer.origin


def wants_stream(message: Message) -> bool:
    """Always, so that bodies are not collected."""
    return True


class PieceCutter:
    """Cuts a body into the pieces in which it arrives. A body without bytes is one empty piece: it tells that the reply
    has come."""

    _has_come = False

    def feed(self, data: Buffer) -> list[Buffer]:
        """The piece itself."""
        self._has_come = self._has_come or len(data) > 0
        return [data] if len(data) else []

    def boundary(self) -> list[Buffer]:
        """Nothing: pieces are never held back."""
        return []

    def end(self) -> list[Buffer]:
        """The empty piece of a body without bytes."""
        return [] if self._has_come else [b""]
