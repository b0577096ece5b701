"""A toy protocol of packets (magic, tag, size, and that many bytes), a listener and a connector for it, and raw
peers."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any

from gateway.core.address import Address
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.protocol import Framing, Limits, ListenerSettings, Protocol, StreamBinding
from gateway.core.requests import Request
from gateway.core.transport import Admit, Exchange, Exchanges
from gateway.transports.tcp.connector import TcpConnector
from gateway.transports.tcp.listener import TcpListener
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS

SMALL = Limits(message=100_000)

HEADER = Struct("!cLL")


def packet(text: str | bytes, tag: int = 0) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return HEADER.pack(b"T", tag, len(data)) + data


def size(header: Buffer) -> int:
    magic, _, length = HEADER.unpack(header)
    if magic != b"T":
        raise DecodeError(f"magic {magic!r}, expected b'T'")
    assert isinstance(length, int)
    return length


def tag_of(message: Message) -> int:
    return int(HEADER.unpack(message.parts[0])[1])


def retag(message: Message, tag: int, seconds: float | None) -> Message:
    return Message(parts=(packet(bytes(message.parts[1]), tag),))


ORDERED = Framing(HEADER.size, size, magic=b"T")
TAGGED = Framing(HEADER.size, size, tag_of, retag, magic=b"T")


def is_squeezed(message: Message) -> bool:
    return bytes(message.parts[1][:1]) == b"\0"


def inflate(message: Message, limits: Limits, take: Callable[[int], None]) -> Message:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(message.parts[1][1:], limits.message + 1)
    except zlib.error as error:
        raise DecodeError(str(error)) from error
    if len(inflated) > limits.message:
        raise refusal(Reason.TOO_LARGE, f"more than {limits.message} bytes")
    take(len(inflated))
    data = packet(inflated, tag_of(message))
    return Message(parts=(data[: HEADER.size], data[HEADER.size :]))


def squeezed(text: str | bytes, tag: int = 0) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return packet(b"\0" + zlib.compress(data), tag)


SQUEEZING = replace(TAGGED, is_compressed=is_squeezed, inflate=inflate)
"""A body that begins with NUL is compressed: zlib data follow."""
HEADED = replace(TAGGED, head=lambda header: min(4, size(header)))
"""The first four bytes of a body are its head; a message over the limit is cut down to it."""


def unused(*_: Any) -> Any:
    raise AssertionError("the transport calls no other codec function")


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    seen = bytes(message.parts[0]).decode("latin-1") if error.reason is Reason.INVALID_INPUT else ""
    return reply(f"{error.reason.value}: {error.message} [{seen}]")


def toy(framing: Framing) -> Protocol:
    return Protocol("toy", StreamBinding(framing), (), unused, unused, encode_error, unused, unused)


def reply(text: str | bytes, tag: int = 0) -> Message:
    return Message(parts=(packet(text, tag),))


def body_of(message: Message) -> str:
    return bytes(message.parts[1]).decode()


def say_back(message: Message, protocol: Protocol) -> Message:
    return reply(bytes(message.parts[1]).upper(), tag_of(message))


def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
    return protocol.encode_error(error, None, message)


class PausedExchange:
    """An exchange whose replies wait, each for the event in `resume` under its text."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[str] = asyncio.Queue()
        self.resume: dict[str, asyncio.Event] = {}
        self.cancelled = asyncio.Event()

    def __call__(self, message: Message, protocol: Protocol) -> "asyncio.Future[Message]":
        self.resume[body_of(message)] = asyncio.Event()
        self.requests.put_nowait(body_of(message))
        return asyncio.ensure_future(self._reply(message))

    async def _reply(self, message: Message) -> Message:
        try:
            await self.resume[body_of(message)].wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return reply(body_of(message).upper(), tag_of(message))


def exchanges(exchange: Exchange = say_back) -> Exchanges:
    return Exchanges(exchange, unused, refuse)


@asynccontextmanager
async def listening(
    exchange: Exchange = say_back,
    *,
    framing: Framing = ORDERED,
    credential: Callable[[Message], Headers] | None = None,
    admit: Admit | None = None,
    limits: Limits = SMALL,
    timeouts: Timeouts = Timeouts(),  # noqa: B008
    address: Address | None = None,
) -> AsyncIterator[TcpListener]:
    """A listener on a free port of the loopback, or at `address`. The test has GENEROUS seconds for it."""
    settings = ListenerSettings(limits=limits)
    protocol = replace(toy(framing), binding=StreamBinding(framing, credential=credential))
    functions = replace(exchanges(exchange), admit=admit)
    listener = TcpListener(settings, [(protocol, "")], functions, timeouts=timeouts)
    await listener.start(address or Address("127.0.0.1", scheme="tcp"))
    try:
        async with asyncio.timeout(GENEROUS):
            yield listener
    finally:
        await listener.drain(0)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(listener: TcpListener) -> AsyncIterator[Streams]:
    """A raw client."""
    scheme, _, where = listener.address.partition("://")
    if scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(where)
    else:
        host, _, port = where.partition(":")
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


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The tag and the text of the next packet."""
    _, tag, length = HEADER.unpack(await reader.readexactly(HEADER.size))
    return tag, (await reader.readexactly(length)).decode()


@asynccontextmanager
async def connecting(
    address: str, framing: Framing = ORDERED, *, per_call: bool = False, limits: Limits = SMALL, ip: str = ""
) -> AsyncIterator[TcpConnector]:
    connector = TcpConnector(address, framing=framing, connection_per_call=per_call, limits=limits, ip=ip)
    try:
        yield connector
    finally:
        await connector.close()
