"""Passes messages from one codec to the other without sockets, in the form that a transport would deliver."""

from collections.abc import Callable
from typing import TypeVar

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.patterns import Match, PathTable, rows
from gateway.core.protocol import ListenerSettings, Protocol, StreamBinding
from gateway.core.requests import Translate

T = TypeVar("T")

LISTENER = ListenerSettings("contract", model="of the listener")
LITERAL = Translate(nan="literal")
"""Settings with which the gateway refuses no number."""
PEER = "192.0.2.1:4242"
RECEIVED, DEADLINE = 1000.0, 1001.0


def arrived(message: Message, protocol: Protocol) -> Message:
    """Return a request in the form that decode_request gets."""
    delivered = replace(_DELIVERIES[protocol.transport](message, protocol), peer=PEER, received=RECEIVED)
    return replace(delivered, parts=_parts(message, protocol), headers=_headers(message))


def returned(message: Message, protocol: Protocol) -> Message:
    """Return a reply in the form that decode_response gets."""
    return Message(headers=_headers(message), parts=_parts(message, protocol), status=message.status)


def or_error(call: Callable[[], T]) -> T | GatewayError:
    try:
        return call()
    except GatewayError as error:
        return error


def _parts(message: Message, protocol: Protocol) -> tuple[Buffer, ...]:
    """Return the message as one part, or for a byte stream as the header and the rest."""
    whole = b"".join(message.parts)
    if not isinstance(protocol.binding, StreamBinding):
        return (whole,)
    size = protocol.binding.framing.header_size
    return (whole[:size], whole[size:])


def _headers(message: Message) -> Headers:
    return Headers([(name.lower(), text) for name, text in message.headers.raw])


def _over_http(message: Message, protocol: Protocol) -> Message:
    match = PathTable(rows([(protocol, "")], LISTENER.model, ())).match(message.method, message.path)
    assert isinstance(match, Match), f"{protocol.name} does not serve {message.method} {message.path}"
    return replace(message, pattern=match.pattern, captures=match.captures, deadline=DEADLINE)


def _over_grpc(message: Message, protocol: Protocol) -> Message:
    assert message.path in protocol.patterns, f"{protocol.name} does not serve {message.path}"
    return replace(message, method="", pattern=message.path, deadline=DEADLINE)


def _over_tcp(message: Message, protocol: Protocol) -> Message:
    assert isinstance(protocol.binding, StreamBinding)
    header, rest = _parts(message, protocol)
    assert protocol.binding.framing.size(header) == len(rest)
    return Message()


_DELIVERIES = {"http": _over_http, "grpc": _over_grpc, "tcp": _over_tcp}
