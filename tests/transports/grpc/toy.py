"""Protocols that are nothing but methods, raw clients and raw servers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from gateway.core.address import Address
from gateway.core.errors import GatewayError, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import GrpcBinding, Limits, ListenerSettings, Protocol
from gateway.core.requests import Request
from gateway.core.transport import Exchange, Exchanges, ExchangeStream, Ready, always_ready
from gateway.transports.grpc import Connector, Listener
from gateway.transports.grpc.client.pool import Resolve
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.timeouts import GRPC_TIMEOUTS, GrpcEndpointTimeouts, Timeouts
from tests.core.http2 import by_hand as http2
from tests.limits import GENEROUS

SMALL = Limits(message=100_000, headers=10_000)

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

ECHO = "/toy.Toy/Echo"
CHAT = "/toy.Toy/Chat"


HEAD = http2.head(http2.OK, http2.CONTENT_TYPE)
TRAILERS = http2.head((b"grpc-status", b"0"), end=True)
"""What stands before and behind the messages of a reply, in HTTP/2 by hand."""


def unused(*_: Any) -> Any:
    raise AssertionError("the transport calls no other codec function")


def toy(name: str, *methods: str, streams: frozenset[str] = frozenset()) -> Protocol:
    def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
        return failure(error.status, f"{name}: {error.message}")

    return Protocol(name, GrpcBinding(streams), methods, unused, unused, encode_error, unused, unused)


TOY = toy("toy", ECHO, CHAT, streams=frozenset({CHAT}))
OTHER = toy("other", "/other.Other/Echo", "/other.Other/More")
TOLD = "/told.Told/Chat"
TELLING = replace(
    toy("telling", TOLD, streams=frozenset({TOLD})),
    encode_error=lambda error, request, message: Message(parts=(str(error).encode(),)),
)
"""Its errors are messages."""


def failure(status: int, text: str, *headers: tuple[bytes, bytes]) -> Message:
    return Message(status=status, headers=Headers(headers), parts=(text.encode(),))


def echo(message: Message, protocol: Protocol) -> Message:
    return Message(parts=message.parts)


async def echo_twice(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
    """Two replies to each message."""
    async for message in messages:
        yield Message(parts=(b"1", *message.parts))
        yield Message(parts=(b"2", *message.parts))


def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    return protocol.encode_error(error, None, message)


@asynccontextmanager
async def listening(
    exchange: Exchange = echo,
    stream: ExchangeStream = echo_twice,
    *,
    limits: Limits = SMALL,
    ready: Ready = always_ready,
    timeouts: Timeouts = Timeouts(),  # noqa: B008
    connections: ListenerConnections | None = None,
    protocols: Sequence[Protocol] = (TOY, OTHER),
) -> AsyncIterator[Listener]:
    """A listener on a free port of the loopback. The test has GENEROUS seconds for it."""
    settings, exchanges = ListenerSettings(limits=limits), Exchanges(exchange, stream, refuse, ready)
    spoken = [(each, "") for each in protocols]
    listener = Listener(settings, spoken, exchanges, connections=connections, timeouts=timeouts)
    await listener.start(Address("127.0.0.1"))
    try:
        async with asyncio.timeout(GENEROUS):
            yield listener
    finally:
        await listener.drain(0)


@asynccontextmanager
async def channel(address: str) -> AsyncIterator[Any]:
    """A raw client, without limits of its own and with a connection of its own."""
    options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
    async with grpc.aio.insecure_channel(address, options=options) as made:
        yield made


@asynccontextmanager
async def client(
    exchange: Exchange = echo, stream: ExchangeStream = echo_twice, *, limits: Limits = SMALL
) -> AsyncIterator[Any]:
    """A raw client of a listener."""
    async with listening(exchange, stream, limits=limits) as listener, channel(listener.address) as made:
        yield made


async def failed(call: Awaitable[object]) -> Any:
    """The error of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call succeeded")


class Held:
    """An exchange that waits until it may `go`, and notes whether it was cancelled."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Message] = asyncio.Queue()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, message: Message, protocol: Protocol) -> Message:
        self.asked.put_nowait(message)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Message(parts=message.parts)

    async def stream(self, messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        """The same for each message of a stream."""
        async for message in messages:
            yield await self(message, protocol)


class Endless:
    """A stream that has a reply whenever one is pulled, and notes whether it was closed."""

    def __init__(self, size: int) -> None:
        self.pulled = 0
        self.closed = asyncio.Event()
        self._size = size

    async def __call__(self, messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        try:
            while True:
                self.pulled += 1
                yield Message(parts=(self.pulled.to_bytes(4, "big"), bytes(self._size)))
        finally:
            self.closed.set()


class Server:
    """A raw server: `unary` serves ECHO, `stream` serves CHAT."""

    def __init__(self, unary: Any = None, stream: Any = None, port: int = 0, compression: Any = None) -> None:
        self._handlers = {
            ECHO: unary and grpc.unary_unary_rpc_method_handler(unary),
            CHAT: stream and grpc.stream_stream_rpc_method_handler(stream),
        }
        options = [*UNLIMITED, ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(handlers=(self,), options=options, compression=compression)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)

    async def __aenter__(self) -> "Server":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def connected(
    address: str, limits: Limits = SMALL, resolve: Resolve | None = None, timeouts: GrpcEndpointTimeouts = GRPC_TIMEOUTS
) -> AsyncIterator[Connector]:
    """A connector. The test has GENEROUS seconds for it."""
    connector = Connector(address, connection_per_call=False, limits=limits, timeouts=timeouts, resolve=resolve)
    try:
        async with asyncio.timeout(GENEROUS):
            yield connector
    finally:
        await connector.close()


@asynccontextmanager
async def connector_to(unary: Any = None, stream: Any = None, limits: Limits = SMALL) -> AsyncIterator[Connector]:
    """A connector to a raw server."""
    async with Server(unary, stream) as server, connected(server.address, limits) as connector:
        yield connector


@asynccontextmanager
async def scripted(
    *scripts: http2.Script,
    opening: bytes = http2.settings() + http2.window_update(0, 2**30),
    limits: Limits = SMALL,
    timeouts: GrpcEndpointTimeouts = GRPC_TIMEOUTS,
) -> AsyncIterator[Connector]:
    """A connector to a server whose HTTP/2 is by hand. It plays one script on each connection, the last one on all
    further ones: behind its `opening`, which answers the client's preface, and until the client closes."""

    def whole(script: http2.Script) -> http2.Script:
        async def play(peer: http2.Peer) -> None:
            await peer.opening(opening)
            await script(peer)
            await peer.closed()

        return play

    async with (
        http2.serving(*map(whole, scripts)) as address,
        connected(address, limits, timeouts=timeouts) as connector,
    ):
        yield connector


async def refused(exchange: Awaitable[object]) -> TransportError:
    """The error of an exchange that must fail."""
    with pytest.raises(TransportError) as caught:
        await exchange
    return caught.value


def ask(body: bytes = b"", *headers: tuple[bytes, bytes], path: str = ECHO, deadline: float | None = None) -> Message:
    return Message(path=path, parts=(body,), headers=Headers(headers), deadline=deadline)


def code(error: Any) -> Status:
    return Status(error.code().value[0])
