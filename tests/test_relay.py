"""The relay of the tests does what it says: each fault, as the client sees it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.relay import GARBAGE, PASS, Relay, Then, Way, relaying


@asynccontextmanager
async def echo() -> AsyncIterator[Relay]:
    """A Relay to a server that sends back what it gets."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with relaying(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as relay:
        yield relay
    server.close()


async def connect(relay: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = relay.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("way", [PASS, Way(delay=0.001, piece=2)])
async def test_bytes_pass_in_both_directions(way: Way) -> None:
    async with echo() as relay:
        relay.requests = relay.replies = way
        reader, writer = await connect(relay)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello"
        assert relay.connections[0].requests == relay.connections[0].replies == b"hello"
        await relay.connections[0].left.wait()
        assert not relay.connections[0].is_reset
        writer.close()


@pytest.mark.parametrize(
    ("then", "seen"), [(Then.CLOSE, b"he"), (Then.HALF_CLOSE, b"he"), (Then.GARBAGE, b"he" + GARBAGE)]
)
async def test_replies_end_as_told(then: Then, seen: bytes) -> None:
    async with echo() as relay:
        relay.replies = Way(after=2, then=then)
        reader, writer = await connect(relay)
        writer.write(b"hello")
        assert await reader.readexactly(len(seen)) == seen
        if then is Then.GARBAGE:
            writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_a_reset_is_one_and_the_address_can_refuse_and_accept_again() -> None:
    async with echo() as relay:
        relay.requests = Way(then=Then.RESET)
        reader, writer = await connect(relay)
        writer.write(b"hello")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        relay.requests = PASS
        await relay.refuse()
        with pytest.raises(ConnectionRefusedError):
            await connect(relay)
        await relay.accept()
        reader, writer = await connect(relay)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()


async def test_swallowed_bytes_arrive_nowhere_and_a_way_can_be_mended() -> None:
    async with echo() as relay:
        relay.requests = Way(after=1, then=Then.SWALLOW)
        reader, writer = await connect(relay)
        writer.write(b"hello")
        assert await reader.readexactly(1) == b"h"
        await relay.received(b"hello")
        relay.requests = PASS
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        writer.close()


async def test_a_client_that_resets_is_seen() -> None:
    async with echo() as relay:
        _, writer = await connect(relay)
        writer.write(b"x")
        connection = await relay.received(b"x")
        relay.requests = Way(then=Then.SWALLOW)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await connection.left.wait()
        assert connection.is_reset
