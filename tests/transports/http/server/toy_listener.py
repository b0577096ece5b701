"""A listener of a toy protocol whose replies repeat what the listener understood, and raw clients."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

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
    Reason.OVERLOADED: 503,
    Reason.TIMEOUT: 504,
    Reason.VERSION_NOT_SUPPORTED: 505,
}
SMALL = Limits(message=1000, headers=500)
TOO_LARGE = f"413 {HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase}"
"""The status line; Python 3.13 changed the phrase."""


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


ROWS = [(TOY, ""), (OTHER, ""), (STREAMER, "")]


def text_reply(text: str, status: int = 200) -> Message:
    return Message(status=status, headers=Headers(((b"Content-Type", b"text/plain"),)), parts=(text.encode(),))


def say_back(message: Message, protocol: Protocol) -> Message:
    """A reply that repeats everything of `message` that a codec would look at, and its body."""
    query = f"?{message.query}" if message.query else ""
    names = "".join(f" {name}={text}" for name, text in message.captures.items())
    said = f"{message.method} {message.path}{query}{names} [{bytes(message.body).decode('latin-1')}]"
    return text_reply(said)


def echo(message: Message, protocol: Protocol) -> Message:
    return Message(status=200, parts=message.parts)


class PausedExchange:
    """An exchange whose replies wait for `resume`."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Message] = asyncio.Queue()
        self.resume = asyncio.Event()
        self.cancelled = asyncio.Event()

    def __call__(self, message: Message, protocol: Protocol) -> Awaitable[Message]:
        self.requests.put_nowait(message)
        return self._reply(message, protocol)

    async def _reply(self, message: Message, protocol: Protocol) -> Message:
        try:
            await self.resume.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return say_back(message, protocol)


class Source:
    """A backend's stream that yields a message when the test puts one in, and sets an event when it is closed."""

    def __init__(self) -> None:
        self.next: asyncio.Queue[Message | None] = asyncio.Queue()
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        try:
            self.asked.set()
            while (message := await self.next.get()) is not None:
                yield message
        finally:
            self.closed.set()

    def say(self, *said: str | None) -> None:
        for text in said:
            self.next.put_nowait(None if text is None else text_reply(text))


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
    timeouts: Timeouts = Timeouts(),  # noqa: B008
    seconds: float | None = GENEROUS,
) -> AsyncIterator[HttpListener]:
    """A listener on a free port of the loopback. The test has so many `seconds` for it."""
    listener = HttpListener(ListenerSettings(limits=limits), ROWS, exchanges(exchange, stream), timeouts=timeouts)
    await listener.start(Address("127.0.0.1"))
    try:
        async with asyncio.timeout(seconds):
            yield listener
    finally:
        await listener.drain(0)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(listener: HttpListener) -> AsyncIterator[Streams]:
    """A raw client."""
    host, _, port = listener.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def client(exchange: Exchange = say_back, **settings: Any) -> AsyncIterator[Streams]:
    """A raw client of a listener with these settings."""
    async with listening(exchange, **settings) as listener, connected(listener) as streams:
        yield streams


async def send_whole(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def send_byte_by_byte(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send each byte in a segment of its own. The listener, on the same loop, has read it before the next is sent."""
    for at in range(len(data)):
        writer.write(data[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)


async def replies_to(sent: bytes, exchange: Exchange = say_back, **settings: Any) -> bytes:
    """All that a client gets that sends this, until the listener closes."""
    async with client(exchange, **settings) as (reader, writer):
        await send_whole(writer, sent)
        return await reader.read()


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """One reply with a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *headers, "", ""]).encode("latin-1")


def post(body: bytes, *headers: str, path: str = "/echo") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def reply(status: str, body: str, *extra: str, last: bool = False) -> bytes:
    """The bytes of one of the toy's replies; `last` says that the connection is closed."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: text/plain", *extra, f"Content-Length: {len(body.encode())}"]
    lines += ["Connection: close"] if last else []
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def ok(body: str) -> bytes:
    return reply("200 OK", body)


HELLO = get("/hello")
LAST = get("/hello", "Connection: close")
SAID = ok("GET /hello []")
SAID_LAST = reply("200 OK", "GET /hello []", last=True)
