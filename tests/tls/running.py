"""Gateways with TLS, and raw clients of them."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gateway.runtime.app import Gateway
from tests.paused_server import port_of

THETA = [0.5, -0.25]


def at(gateway: Gateway, listener: str) -> int:
    return port_of(gateway.state.listeners[listener].address)


def infer(model: str) -> bytes:
    """A V2 request for `posterior` under the name `model`."""
    item = {"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [THETA]}
    return post(f"/v2/models/{model}/infer", json.dumps({"inputs": [item]}).encode())


def post(path: str, body: bytes, headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def connected(
    port: int, context: ssl.SSLContext | None, name: str = "localhost"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of the port, which expects a certificate for `name`."""
    server_name = None if context is None else name
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and body of the next HTTP reply."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r")[0])
    return int(head.split()[1]), await reader.readexactly(size)


async def ask(port: int, context: ssl.SSLContext | None, request: bytes, name: str = "localhost") -> tuple[int, bytes]:
    """The reply to one request on a connection of its own."""
    async with connected(port, context, name) as (reader, writer):
        writer.write(request)
        return await reply(reader)
