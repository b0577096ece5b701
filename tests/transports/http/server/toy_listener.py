"""A listener of a toy protocol whose replies repeat what the listener understood, and raw clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from gateway.core.address import Address
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import HttpBinding, Limits, ListenerSettings, Protocol
from gateway.core.requests import Request
from gateway.core.transport import Exchange, Exchanges, ExchangeStream
from gateway.transports.http.server.listener import HttpListener
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS
from tests.transports.http.line_framing import LINES

NUMBERS = {
    Reason.INVALID_INPUT: 400,
    Reason.PATH_NOT_FOUND: 404,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.REQUEST_TIMEOUT: 408,
    Reason.TOO_LARGE: 413,
    Reason.UNSUPPORTED_MEDIA_TYPE: 415,
    Reason.UNSUPPORTED_ENCODING: 415,
    Reason.HEADERS_TOO_LARGE: 431,
    Reason.INTERNAL: 500,
    Reason.TIMEOUT: 504,
    Reason.VERSION_NOT_SUPPORTED: 505,
}
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Tests run on both, because their transports pause, close and half-close differently."""

SMALL = Limits(message=1000, headers=500)


def unused(*_: Any) -> Any:
    raise AssertionError("the listener calls no other codec function")


def toy(name: str, *patterns: str) -> Protocol:
    def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
        return text_reply(f"{name}: {error.message}", NUMBERS[error.reason])

    return Protocol(name, HttpBinding(), patterns, unused, unused, encode_error, unused, unused)


TOY = toy("toy", "GET /hello", "POST /echo", "POST /models/{model}")
OTHER = toy("other", "GET /other", "POST /other/echo")
STREAMER = replace(
    toy("streamer", "GET /stream", "POST /stream", "POST /stream/not"),
    binding=HttpBinding(wants_stream=lambda message: message.path == "/stream", stream_framing=LINES),
)


def text_reply(text: str, status: int = 200) -> Message:
    return Message(status=status, headers=Headers(((b"Content-Type", b"text/plain"),)), parts=(text.encode(),))


def say_back(message: Message, protocol: Protocol) -> Message:
    """A reply that repeats everything of `message` that a codec would look at, and its body."""
    query = f"?{message.query}" if message.query else ""
    names = "".join(f" {name}={text}" for name, text in message.captures.items())
    said = f"{message.method} {message.path}{query}{names} [{bytes(message.body).decode('latin-1')}]"
    return text_reply(said)


def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    return protocol.encode_error(error, None, message)


def exchanges(exchange: Exchange, stream: ExchangeStream = unused) -> Exchanges:
    return Exchanges(exchange, stream, refuse)


@asynccontextmanager
async def listening(
    exchange: Exchange = say_back,
    stream: ExchangeStream = unused,
    *,
    limits: Limits = SMALL,
    timeouts: Timeouts | None = None,
) -> AsyncIterator[HttpListener]:
    """A listener on a free port of the loopback."""
    settings = ListenerSettings(limits=limits)
    rows = [(TOY, ""), (OTHER, ""), (STREAMER, "")]
    listener = HttpListener(settings, rows, exchanges(exchange, stream), timeouts=timeouts or Timeouts())
    await listener.start(Address("127.0.0.1"))
    try:
        yield listener
    finally:
        await listener.drain(0)


@asynccontextmanager
async def connected(listener: HttpListener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw client."""
    host, _, port = listener.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_whole(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def send_byte_by_byte(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send each byte in a segment of its own. The listener, on the same loop, has read it before the next is sent."""
    for at in range(len(data)):
        writer.write(data[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Everything until the listener closes."""
    async with asyncio.timeout(GENEROUS):
        return await reader.read()


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """One reply with a Content-Length."""
    async with asyncio.timeout(GENEROUS):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head + await reader.readexactly(length)


def reply(status: str, body: str, *extra: str, last: bool = False) -> bytes:
    """The bytes of one of the toy's replies; `last` says that the connection is closed."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/plain", *extra, f"Content-Length: {len(body.encode())}"]
    lines += ["Connection: close"] if last else []
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()
