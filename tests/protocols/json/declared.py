"""Forms of the tests, from YAML, and messages in them."""

from typing import Any
from urllib.parse import unquote

import yaml

from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.requests import Answer, Request, Response
from gateway.protocols.json.form import parse_form
from gateway.protocols.json.protocol import protocol_of


def declared(text: str) -> Protocol:
    """The Protocol of the form in a YAML text."""
    document: Any = yaml.safe_load(text)
    return protocol_of("test", parse_form(document))


def headers(**fields: str) -> Headers:
    """Headers; an underscore in a name stands for a hyphen."""
    return Headers(tuple((name.replace("_", "-").encode(), text.encode()) for name, text in fields.items()))


def message(
    pattern: str, body: bytes = b"", query: str = "", captures: dict[str, str] | None = None, **fields: str
) -> Message:
    """A client's message at one of a protocol's patterns."""
    method, _, path = pattern.partition(" ")
    path = unquote(path.format(**captures or {}))
    return Message(method, path, headers(**fields), (body,), 0, query, pattern, captures or {})


def read(protocol: Protocol, pattern: str, body: bytes = b"", **more: Any) -> Request:
    """The request in a client's message."""
    return protocol.decode_request(message(pattern, body, **more), ListenerSettings())


def written(protocol: Protocol, request: Request) -> Message:
    """The message to a backend."""
    return protocol.encode_request(request, Target())


def answered(protocol: Protocol, request: Request, body: bytes, status: int = 200, **fields: str) -> Answer:
    """The answer in a backend's reply."""
    return protocol.decode_response(Message(headers=headers(**fields), parts=(body,), status=status), request, Target())


def response(protocol: Protocol, request: Request, body: bytes, **fields: str) -> Response:
    """The response in a backend's reply."""
    answer = answered(protocol, request, body, 200, **fields)
    assert isinstance(answer, Response)
    return answer


def without_origin(request: Request) -> Request:
    """A request as from a client of another wire form."""
    return replace(request, origin=None)
