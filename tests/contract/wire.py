"""Messages on their way: as the other side's transport hands over what one side's codec wrote. No sockets."""

from collections.abc import Callable
from typing import TypeVar

from gateway.core.errors import GatewayError
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import ListenerSettings, Protocol, Target
from gateway.core.types import Answer, Headers, Message, Request, Translate
from gateway.core.values import replace

T = TypeVar("T")

LISTENER = ListenerSettings("contract", model="of the listener")
TARGET = Target("contract", "127.0.0.1:1")
LITERAL = Translate(nan="literal")
"""So that no number is refused."""
PEER = "192.0.2.1:4242"
RECEIVED, DEADLINE = 1000.0, 1001.0


def arrived(message: Message, protocol: Protocol) -> Message:
    """A request as decode_request gets it."""
    return _ARRIVALS[protocol.transport](_joined(message), protocol)


def returned(message: Message) -> Message:
    """A reply as decode_response gets it."""
    whole = _joined(message)
    return Message(headers=whole.headers, parts=whole.parts, status=whole.status)


def asked(protocol: Protocol, request: Request, target: Target = TARGET) -> Request:
    """What the server understands of `request`."""
    return protocol.decode_request(arrived(protocol.encode_request(request, target), protocol), LISTENER)


def answered(protocol: Protocol, answer: Answer, question: Request, request: Request) -> Answer:
    """What the client understands of `answer`, which the server gives to `question`, its reading of `request`."""
    reply = protocol.encode_response(answer, question, LITERAL)
    return protocol.decode_response(returned(reply), request, TARGET)


def or_error(call: Callable[[], T]) -> T | GatewayError:
    """What `call` returns, or the GatewayError that it raises."""
    try:
        return call()
    except GatewayError as error:
        return error


def _joined(message: Message) -> Message:
    headers = Headers([(name.lower(), text) for name, text in message.headers.raw])
    return replace(message, parts=(b"".join(message.parts),), headers=headers)


def _over_http(message: Message, protocol: Protocol) -> Message:
    match = PathTable([(protocol, "")]).match(message.method, message.path)
    assert isinstance(match, Match), f"{protocol.name} does not serve {message.method} {message.path}"
    return replace(
        message, pattern=match.pattern, captures=match.captures, peer=PEER, received=RECEIVED, deadline=DEADLINE
    )


def _over_grpc(message: Message, protocol: Protocol) -> Message:
    assert message.path in protocol.patterns, f"{protocol.name} does not serve {message.path}"
    return replace(message, method="", pattern=message.path, peer=PEER, received=RECEIVED, deadline=DEADLINE)


_ARRIVALS: dict[str, Callable[[Message, Protocol], Message]] = {"http": _over_http, "grpc": _over_grpc}
