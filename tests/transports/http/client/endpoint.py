"""A raw server: the test decides every byte that it sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits
from gateway.transports.http.client.connector import HttpConnector
from tests.paused_server import port_of
from tests.transports.raw_server import Handle, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = Message("GET", "/v2")
JSON = Headers([(b"content-type", b"application/json")])


def post(*parts: bytes | memoryview, deadline: float | None = None) -> Message:
    """A request with a body."""
    return Message("POST", "/v2/models/m/infer", JSON, parts, deadline=deadline)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next request; IncompleteReadError at the end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), 0)
    return head, await reader.readexactly(length)


OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each request with its body."""
    while True:
        _, body = await read_request(reader)
        writer.write(OK_HEAD % len(body) + body)


@dataclass
class Endpoint:
    """Answers the n-th request with the n-th reply, later ones with the last, and counts connections, and those that
    the client has closed."""

    replies: list[bytes]
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: int = 0
    ended: int = 0
    close_after_reply: bool = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await read_request(reader))
                writer.write(self.replies[min(len(self.requests), len(self.replies)) - 1])
                if self.close_after_reply:
                    return
        except asyncio.IncompleteReadError:
            self.ended += 1


@asynccontextmanager
async def serving(handle: Handle, *, port: int = 0, **options: Any) -> AsyncIterator[int]:
    """The port of a raw server."""
    async with raw_server(handle, port=port, **options) as address:
        yield port_of(address)


@asynccontextmanager
async def connecting(place: int | str, limits: Limits | None = None, **settings: Any) -> AsyncIterator[HttpConnector]:
    """A connector to a port of loopback, or to an address."""
    address = place if isinstance(place, str) else f"127.0.0.1:{place}"
    connector = HttpConnector(address, limits=limits or Limits(), **{"connection_per_call": False, **settings})
    try:
        yield connector
    finally:
        await connector.close()


@asynccontextmanager
async def connector_to(handle: Handle, limits: Limits | None = None, **settings: Any) -> AsyncIterator[HttpConnector]:
    """A connector to a raw server."""
    async with serving(handle) as port, connecting(port, limits, **settings) as connector:
        yield connector


@asynccontextmanager
async def answering(
    *replies: bytes, close_after_reply: bool = False, **settings: Any
) -> AsyncIterator[tuple[Endpoint, HttpConnector]]:
    """An endpoint with these replies, and a connector to it with these settings."""
    endpoint = Endpoint(list(replies), close_after_reply=close_after_reply)
    async with connector_to(endpoint.handle, **settings) as connector:
        yield endpoint, connector
