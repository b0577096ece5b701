"""The transport that protocols of connectors have behind TLS."""

import array
import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.transports import tls
from gateway.transports.tls import ClientTls, Secured
from tests.limits import GENEROUS
from tests.tls.certificates import Files

MIB = 2**20


class Plain(asyncio.Protocol):
    """A protocol that takes bytes, and keeps them."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = b""
        self.has_ended = asyncio.Event()
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, tls.TlsTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.has_ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(files: Files) -> AsyncIterator[tuple[Plain, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of a connector, and its server's end."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    # uvloop loses what a paused reader has not taken when the end comes, so the reader never pauses
    server = await asyncio.start_server(
        lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 0, ssl=context, limit=64 * MIB
    )
    trusting = ClientTls(files.trusting)
    try:
        async with asyncio.timeout(GENEROUS):
            port = server.sockets[0].getsockname()[1]
            plain = await tls.connect(Plain(), "127.0.0.1", port, Secured(trusting, "localhost"))
            reader, writer = await accepted.get()
            yield plain, reader, writer
            writer.close()
            plain.transport.abort()
            await plain.is_lost.wait()
    finally:
        server.close()


async def test_a_protocol_that_takes_bytes_gets_them_and_the_end(files: Files) -> None:
    async with connected(files) as (plain, _, writer):
        assert plain.transport.get_protocol() is plain
        plain.transport.pause_reading()
        assert not plain.transport.is_reading()
        writer.write(bytes(MIB) + b"end")
        plain.transport.resume_reading()
        assert plain.transport.is_reading()
        await writer.drain()
        writer.close()
        await plain.has_ended.wait()
        assert plain.received == bytes(MIB) + b"end"


async def test_buffers_of_every_kind_are_written_as_bytes(files: Files) -> None:
    numbers = memoryview(array.array("d", range(20_000)))
    async with connected(files) as (plain, reader, _):
        plain.transport.write(numbers[:1])
        plain.transport.write(b"")
        plain.transport.write(numbers)
        plain.transport.writelines([numbers[:1], b"", bytearray(b"end")])
        expected = bytes(8) + numbers.tobytes() + bytes(8) + b"end"
        assert await reader.readexactly(len(expected)) == expected


async def test_all_that_was_written_before_the_close_is_sent_and_nothing_after_it(files: Files) -> None:
    async with connected(files) as (plain, reader, _):
        assert not plain.transport.can_write_eof()
        plain.transport.write(bytes(16 * MIB))
        assert plain.transport.get_write_buffer_size() > MIB
        plain.transport.close()
        plain.transport.write(b"too late")
        received = await reader.read()
        assert (len(received), received.count(0)) == (16 * MIB, 16 * MIB)
        await plain.is_lost.wait()
        assert plain.transport.get_write_buffer_size() == 0
