"""Calls that are given up while their connection to a server is being opened, and what is left of them."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gateway.core.certificates import TlsFiles
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.transports.certificates import client_context, server_context
from gateway.transports.grpc.client.connection import GrpcClientConnection
from gateway.transports.grpc.client.connector import GrpcConnector
from gateway.transports.http.client.connection import HttpClientConnection
from gateway.transports.http.client.connector import HttpConnector
from gateway.transports.tcp.client_connection import TcpClientConnection
from gateway.transports.tcp.connector import TcpConnector
from gateway.transports.tls import ClientTls, TlsTransport
from tests.limits import settle, until
from tests.tls.certificates import Files
from tests.transports.tcp.toy_protocol import ORDERED, TAGGED, packet

TURNS = 40
"""A connection over TLS on loopback is open after fewer turns of the event loop."""
AT_ONCE = 10

_CONNECTIONS = (HttpClientConnection, TcpClientConnection, GrpcClientConnection, TlsTransport)
_HTTP = Message("GET", "/", parts=(b"",))
_TCP = Message(parts=(packet("one")[:9], b"one"))
_GRPC = Message(path="/toy.Toy/Echo", parts=(b"one",))
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first frame of an HTTP/2 server."""

MAKE: dict[str, tuple[Callable[..., Any], Message, str]] = {
    "http": (partial(HttpConnector, connection_per_call=False), _HTTP, ""),
    "http, a connection for each call": (partial(HttpConnector, connection_per_call=True), _HTTP, ""),
    "tcp": (partial(TcpConnector, framing=ORDERED, connection_per_call=False), _TCP, ""),
    "tcp, one connection for all calls": (partial(TcpConnector, framing=TAGGED, connection_per_call=False), _TCP, ""),
    "grpc": (partial(GrpcConnector, connection_per_call=False), _GRPC, "h2"),
}
"""How a connector is made, a message for it, and its ALPN."""


@dataclass
class SilentServer:
    """Accepts connections, over TLS with `context`, and answers nothing."""

    opening: bytes
    port: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            writer.write(self.opening)
            with suppress(OSError):
                while await reader.read(2**16):
                    pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def until_all_are_closed(self) -> None:
        await until(lambda: not self.open)


@asynccontextmanager
async def silent_server(wire: str, files: Files | None) -> AsyncIterator[SilentServer]:
    """A server of `wire`; over TLS with `files`."""
    context = None
    if files is not None:
        own = TlsFiles(str(files.certificate), str(files.key))
        context = server_context(own, "none", _names(wire))
    served = SilentServer(_SETTINGS if wire == "grpc" else b"")
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context, backlog=1024)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


def connector_to(wire: str, files: Files | None, port: int) -> tuple[Any, Message]:
    """A connector to the server at this port, and a message for it."""
    make, message, _ = MAKE[wire]
    tls = None
    if files is not None:
        trusting = client_context(TlsFiles(authorities=str(files.ca)), alpn=_names(wire))
        tls = ClientTls(lambda: trusting, "localhost")
    return make(f"127.0.0.1:{port}", limits=Limits(), tls=tls), message


def _names(wire: str) -> tuple[str, ...]:
    alpn = MAKE[wire][2]
    return (alpn,) if alpn else ()


async def give_up(connector: Any, message: Message, calls: int) -> None:
    """Make calls, each of them given up after another number of turns of the loop than those beside it."""

    async def call(turns: int) -> None:
        exchange = asyncio.ensure_future(connector.exchange(message))
        await settle(turns)
        exchange.cancel()
        await asyncio.wait([exchange])
        if not exchange.cancelled():
            exchange.exception()

    for first in range(0, calls, AT_ONCE):
        await asyncio.gather(*(call(number % TURNS) for number in range(first, min(first + AT_ONCE, calls))))


def connections_left() -> int:
    """How many connections to servers there are in this process, open or not, that something still holds."""
    gc.collect()
    return sum(isinstance(each, _CONNECTIONS) for each in gc.get_objects())
