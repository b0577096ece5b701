"""Whole messages through a gateway of a given configuration, without sockets: what clients write, what backends are
sent, and what comes back."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TypeAlias

from gateway.assembly.forms import spoken
from gateway.assembly.reference import REFERENCE, reference_router
from gateway.assembly.registry import policies, protocols
from gateway.config import paths
from gateway.core import patterns
from gateway.core.errors import DecodeError
from gateway.core.exchange import answer
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import Limits, ListenerSettings, Protocol, StreamBinding
from gateway.core.requests import Request
from gateway.core.streaming import answer_message
from gateway.core.transport import Select
from gateway.reference.model import Model
from tests.assembled import assembled
from tests.running_gateway import config_of

Server: TypeAlias = Callable[[Message], Awaitable[Message]]


class NoPathError(AssertionError):
    """A message at a path that no protocol of the listener serves."""


class Wires:
    """A gateway whose backends are functions. `servers` are by the host in a backend's `endpoints` (`lab:1`); `sent`
    keeps what each of them got."""

    def __init__(self, text: str, **servers: Server) -> None:
        self._config = config_of(text)
        self._protocols = spoken(self._config)
        self._servers = servers
        self.sent: dict[str, list[Message]] = {name: [] for name in servers}
        self._assembly = assembled(self._config, self._connect, self._protocols, policies(), clock=lambda: 0.0)

    def _connect(self, address: str, protocol: Protocol, limits: Limits, ip: str) -> "_Wire":
        host = address.partition("://")[2] or address
        name = host.partition(":")[0]
        return _Wire(self._servers[name], self.sent[name], protocol)

    async def send(self, protocol: str, message: Message) -> Message:
        """The reply to a client's message at the first listener that speaks `protocol`."""
        settings, facing, table = self._listener(protocol)
        return await _answered(message, facing, table, settings, self._assembly.router.select)

    async def stream(self, protocol: str, message: Message) -> list[Message]:
        """The replies to a message that asks for a stream, as `send`. Each part of a server's reply is one of its
        stream."""
        settings, facing, table = self._listener(protocol)
        matched, asked = _matched(message, facing, table)
        return [each async for each in answer_message(asked, matched, settings, self._assembly.router.select)]

    def _listener(self, protocol: str) -> tuple[ListenerSettings, Protocol, PathTable]:
        """The settings of the first listener that speaks `protocol`, the protocol as clients there meet it, and the
        paths that it serves."""
        listener = next(each for each in self._config.listeners if protocol in each.protocols)
        settings = ListenerSettings(listener.name, listener.limits, listener.model, relays=self._assembly.router.relays)
        rows = paths.rows(listener, self._config.routes, self._config.backends, self._protocols)
        facing = next((each for each, _ in rows if each.name == protocol), self._protocols[protocol])
        return settings, facing, PathTable(rows)

    async def post(self, protocol: str, path: str, body: bytes, content_type: str = "application/json") -> Message:
        """The reply to an HTTP client's `body`."""
        headers = Headers([(b"content-type", content_type.encode())])
        path, _, query = path.partition("?")
        return await self.send(protocol, Message("POST", path, headers, (body,), query=query))


def reference(protocol: str, *models: Model, heard: Callable[[Request], Request] = lambda request: request) -> Server:
    """A reference server. `heard` makes of a request, as it was decoded, the one that is answered."""
    own = protocols()[protocol]
    spoken = replace(own, decode_request=lambda message, listener: heard(own.decode_request(message, listener)))
    router = reference_router(models, spoken, lambda: 0.0)
    settings = ListenerSettings(REFERENCE, model=models[0].name if len(models) == 1 else "")
    table = PathTable(patterns.rows([(spoken, "")], settings.model, ()))

    async def serve(message: Message) -> Message:
        return await _answered(message, spoken, table, settings, router.select)

    return serve


def replying(*parts: bytes, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Server:
    """A server that always gives one reply."""

    async def serve(message: Message) -> Message:
        return Message(headers=Headers(headers), parts=parts, status=status)

    return serve


def cut(protocol: Protocol, raw: bytes) -> tuple[bytes, bytes]:
    """A message of a byte stream as its header and the rest."""
    assert isinstance(protocol.binding, StreamBinding)
    return raw[: protocol.binding.framing.header_size], raw[protocol.binding.framing.header_size :]


class _Wire:
    """A Connector to a function."""

    def __init__(self, server: Server, sent: list[Message], protocol: Protocol) -> None:
        self._server = server
        self._sent = sent
        self._protocol = protocol

    async def exchange(self, message: Message) -> Message:
        self._sent.append(message)
        return _received(await self._server(message), self._protocol)

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        self._sent.append(message)
        reply = await self._server(message)
        for part in reply.parts:
            yield replace(reply, parts=(part,))

    async def close(self) -> None:
        pass


def _received(message: Message, protocol: Protocol) -> Message:
    """The message as a transport hands it over: in one part, or two on byte streams."""
    raw = b"".join(map(bytes, message.parts))
    return replace(message, parts=cut(protocol, raw) if isinstance(protocol.binding, StreamBinding) else (raw,))


async def _answered(
    message: Message, protocol: Protocol, table: PathTable, settings: ListenerSettings, select: Select
) -> Message:
    protocol, message = _matched(_received(message, protocol), protocol, table)
    reply = answer(message, protocol, settings, select)
    return await reply if isawaitable(reply) else reply


def _matched(message: Message, protocol: Protocol, table: PathTable) -> tuple[Protocol, Message]:
    """The wire form of a message, and the message with the pattern that its path has."""
    if protocol.transport == "grpc":
        return protocol, replace(message, pattern=message.path)
    if protocol.transport != "http":
        return protocol, message
    try:
        match = table.match(message.method, message.path or "/")
    except DecodeError as error:
        raise NoPathError(message.path) from error
    if not isinstance(match, Match):
        raise NoPathError(message.path)
    return match.protocol, replace(message, pattern=match.pattern, captures=match.captures)
