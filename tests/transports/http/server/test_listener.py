import asyncio
import socket
from contextlib import suppress

import pytest

from gateway.core.address import Address
from gateway.core.messages import Message
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.transports.http.server.listener import HttpListener
from gateway.transports.timeouts import Timeouts
from tests.descriptors import listening_ports
from tests.limits import until
from tests.paused_server import port_of
from tests.transports.http.server.toy_listener import (
    HELLO,
    SAID,
    SAID_LAST,
    TOY,
    PausedExchange,
    connected,
    exchanges,
    listening,
    read_reply,
    say_back,
    send_whole,
    text_reply,
)

BRIEF = Timeouts(grace=0.01)
PATIENT = Timeouts(grace=1000)


async def begun(listener: HttpListener) -> "asyncio.Task[int]":
    """A drain that has closed the listener's sockets."""
    assert listener._server is not None
    server, draining = listener._server, asyncio.ensure_future(listener.drain(1000))
    await until(lambda: not server.is_serving(), 0)
    return draining


async def test_draining_closes_idle_connections_and_lets_requests_in_flight_finish() -> None:
    paused = PausedExchange()
    async with (
        listening(paused, timeouts=BRIEF) as listener,
        connected(listener) as (idle, _),
        connected(listener) as (busy, writer),
    ):
        await send_whole(writer, HELLO)
        await paused.requests.get()
        draining = asyncio.ensure_future(listener.drain(20))
        assert await idle.read() == b""
        assert not draining.done()
        paused.resume.set()
        assert await busy.read() == SAID_LAST
        writer.close()
        assert await draining == 0


async def test_a_request_that_arrives_on_an_idle_connection_while_draining_is_answered_and_the_last() -> None:
    async with listening(timeouts=PATIENT) as listener:
        async with connected(listener) as (kept, first), connected(listener) as (fresh, second):
            await send_whole(first, HELLO)
            assert await read_reply(kept) == SAID
            draining = await begun(listener)
            for reader, writer in ((kept, first), (fresh, second)):
                await send_whole(writer, HELLO)
                assert await reader.read() == SAID_LAST
        assert await draining == 0


async def test_a_connection_that_waits_to_be_accepted_is_served() -> None:
    """To its client the connection is established, and it has sent its request."""
    async with listening(timeouts=PATIENT) as listener:
        host, _, port = listener.address.partition(":")
        with socket.create_connection((host, int(port))) as client:  # the loop has no turn before the drain has
            client.sendall(HELLO)
            client.setblocking(False)
            draining = asyncio.ensure_future(listener.drain(1000))
            said = b""
            while data := await asyncio.get_running_loop().sock_recv(client, 10_000):
                said += data
        assert said == SAID_LAST
        assert await draining == 0


async def test_once_the_end_is_announced_replies_say_so_and_new_connections_are_served() -> None:
    paused = PausedExchange()
    async with (
        listening(paused) as listener,
        connected(listener) as (idle, first),
        connected(listener) as (busy, second),
    ):
        await send_whole(second, HELLO)
        await paused.requests.get()
        listener.announce_end()
        paused.resume.set()
        assert await busy.read() == SAID_LAST
        await send_whole(first, HELLO)
        assert await idle.read() == SAID_LAST
        async with connected(listener) as (late, third):
            await send_whole(third, HELLO)
            assert await late.read() == SAID_LAST


async def test_a_connection_whose_reply_did_not_say_close_is_kept_for_the_next_request() -> None:
    """The first reply is so long that its client is still reading it when the drain begins."""

    def long(message: Message, protocol: Protocol) -> Message:
        return text_reply("x" * 32 * 2**20 if not message.query else "short")

    async with listening(long, timeouts=PATIENT) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        head = await reader.readuntil(b"\r\n\r\n")
        draining = await begun(listener)
        assert b"Connection: close" not in head
        await reader.readexactly(32 * 2**20)
        await send_whole(writer, HELLO.replace(b"/hello", b"/hello?more"))
        assert (await reader.read()).endswith(b"Connection: close\r\n\r\nshort")
        writer.close()
        assert await draining == 0


async def test_draining_lets_a_request_that_is_arriving_finish() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO + HELLO[:20])
        assert await read_reply(reader) == SAID
        draining = asyncio.ensure_future(listener.drain(20))
        await asyncio.sleep(0)  # it runs up to its first wait
        await send_whole(writer, HELLO[20:])
        assert await reader.read() == SAID_LAST
        writer.close()
        await draining


async def test_draining_is_bounded() -> None:
    paused = PausedExchange()
    async with listening(paused) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        await paused.requests.get()
        assert await listener.drain(0.01) == 1
        await paused.cancelled.wait()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_drain_counts_partly_received_requests_as_unanswered_and_answered_ones_not() -> None:
    async with listening(timeouts=PATIENT) as listener, connected(listener), connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        assert await read_reply(reader) == SAID
        async with connected(listener) as (other, second):
            await send_whole(second, HELLO + HELLO[:20])
            assert await read_reply(other) == SAID
            assert await listener.drain(0) == 1


async def test_a_drain_may_be_cut_short_by_another() -> None:
    paused = PausedExchange()
    async with listening(paused) as listener, connected(listener) as (_, writer):
        await send_whole(writer, HELLO)
        await paused.requests.get()
        first = await begun(listener)
        first.cancel()
        assert await listener.drain(0) == 1


async def test_a_draining_listener_accepts_no_connection() -> None:
    async with listening() as listener:
        assert port_of(listener.address) in listening_ports()
        await listener.drain(0)
        assert port_of(listener.address) not in listening_ports()


async def test_connections_are_probed_so_that_a_vanished_host_is_noticed() -> None:
    async with listening() as listener:
        assert listener._server is not None
        for sock in listener._server.sockets:
            # accepted sockets inherit both
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_a_taken_address_is_an_os_error() -> None:
    async with listening() as listener:
        taken = Address("127.0.0.1", int(listener.address.rpartition(":")[2]))
        with pytest.raises(OSError, match="address already in use"):
            await HttpListener(ListenerSettings(), [(TOY, "")], exchanges(say_back)).start(taken)
