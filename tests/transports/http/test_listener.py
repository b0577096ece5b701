import asyncio
import socket
from contextlib import suppress

import pytest

from gateway.core.address import Address
from gateway.core.protocol import ListenerSettings
from gateway.transports.http.listener import HttpListener
from tests.transports.http.test_connection import HELLO, SAID, SAID_LAST, Held, within_bound
from tests.transports.http.toy import LOOPS as LOOPS
from tests.transports.http.toy import TOY, connected, exchanges, listening, read_all, read_reply, say_back, send_whole


async def test_draining_closes_what_is_idle_and_lets_what_is_in_flight_finish() -> None:
    held = Held()
    async with listening(held) as listener, connected(listener) as (idle, _), connected(listener) as (busy, writer):
        await send_whole(writer, HELLO)
        await held.asked.get()
        draining = asyncio.ensure_future(listener.drain(20))
        assert await read_all(idle) == b""
        assert not draining.done()
        held.go.set()
        assert await read_all(busy) == SAID_LAST
        writer.close()
        await within_bound(draining)


async def test_draining_lets_a_request_that_is_arriving_finish() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO + HELLO[:20])
        assert await read_reply(reader) == SAID
        draining = asyncio.ensure_future(listener.drain(20))
        await asyncio.sleep(0)  # it runs up to its first wait
        await send_whole(writer, HELLO[20:])
        assert await read_all(reader) == SAID_LAST
        writer.close()
        await within_bound(draining)


async def test_draining_is_bounded() -> None:
    held = Held()
    async with listening(held) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        await held.asked.get()
        await within_bound(listener.drain(0.01))
        await within_bound(held.cancelled.wait())
        with suppress(ConnectionResetError):
            assert await read_all(reader) == b""


async def test_a_draining_listener_accepts_nobody() -> None:
    async with listening() as listener:
        host, _, port = listener.address.partition(":")
        await listener.drain(0)
        client = socket.socket()
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
        except ConnectionRefusedError:
            return
        finally:
            client.close()
        raise AssertionError("the connection was accepted")


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
