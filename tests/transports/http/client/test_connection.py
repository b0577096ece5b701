"""One exchange on one connection, on asyncio's own loop and on uvloop."""

import asyncio
import socket
from contextlib import suppress

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.messages import Message
from gateway.core.tasks import spawn
from gateway.transports.http.client.connection import SCRATCH_BYTES
from gateway.transports.http.client.reply import ReplyReader
from tests.limits import settle, until
from tests.traced import traced
from tests.transports.http.client.endpoint import (
    GET,
    OK,
    OK_HEAD,
    answering,
    connecting,
    connector_to,
    echo,
    post,
    read_request,
)
from tests.transports.raw_server import reset_connection

MIB = 2**20


async def test_a_request_and_its_reply() -> None:
    async with answering(b"HTTP/1.1 201 Created\r\nX-Y: z\r\nContent-Length: 2\r\n\r\nok") as (endpoint, connector):
        reply = await connector.exchange(post(b"ab", b"", memoryview(b"cd")))
    assert (reply.status, reply.headers.get("x-y"), reply.parts) == (201, "z", (b"ok",))
    [(head, body)] = endpoint.requests
    start, host, *rest = head.split(b"\r\n")
    assert (start, host.rpartition(b":")[0]) == (b"POST /v2/models/m/infer HTTP/1.1", b"Host: 127.0.0.1")
    assert (rest, body) == ([b"content-type: application/json", b"Content-Length: 4", b"", b""], b"abcd")


@pytest.mark.parametrize("framing", ["sized", "chunked", "until close"])
async def test_large_bodies_both_ways(framing: str) -> None:
    body = bytes(range(256)) * (16 * MIB // 256)
    heads = {
        "sized": b"Content-Length: %d\r\n\r\n" % len(body),
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body),
        "until close": b"Connection: close\r\n\r\n",
    }
    tail = b"\r\n0\r\n\r\n" if framing == "chunked" else b""
    sent = b"HTTP/1.1 200 OK\r\n" + heads[framing] + body + tail
    async with answering(sent, close_after_reply=framing == "until close") as (endpoint, connector):
        reply = await connector.exchange(post(b"{}", memoryview(body)))
        assert reply.body == body
        assert endpoint.requests[0][1] == b"{}" + body


async def test_between_two_reads_of_small_chunks_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    read, turn, turns = ReplyReader.read, 0, []

    def noted(reply: ReplyReader, data: memoryview) -> Message | None:
        turns.append(turn)
        return read(reply, data)

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(ReplyReader, "read", noted)
    chunks = b"1\r\nx\r\n" * 100_000
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with answering(reply, OK) as (endpoint, connector):
        beside = spawn(others())
        assert (await connector.exchange(GET)).body == b"x" * 100_000
        beside.cancel()
        assert (await connector.exchange(GET)).body == b"ok"
    assert endpoint.connections == 1
    assert len(turns) > len(chunks) / SCRATCH_BYTES
    assert len(set(turns[:-1])) == len(turns[:-1])


async def test_a_large_request_is_not_copied() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.split(b"Content-Length: ")[1])
        while left:
            left -= len(await reader.read(min(left, 64 * 1024)))
        writer.write(OK)

    body = memoryview(bytes(32 * MIB))
    async with connector_to(handle) as connector:
        with traced() as memory:
            assert (await connector.exchange(post(body, body))).body == b"ok"
    assert memory.peak < 4 * MIB


async def test_a_large_reply_is_allocated_once() -> None:
    piece = bytes(MIB)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK_HEAD % (32 * MIB))
        for _ in range(32):
            writer.write(piece)
            await writer.drain()

    async with connector_to(handle) as connector:
        with traced() as memory:
            assert len((await connector.exchange(GET)).body) == 32 * MIB
    assert memory.peak < 36 * MIB  # its first MiB is received into a buffer of its own


EARLY = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"


@pytest.mark.parametrize("closes", [True, False])
async def test_a_reply_that_comes_before_the_request_is_written_is_delivered(closes: bool) -> None:
    """The connection is in the middle of a request, and is never used again."""
    ended = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await reader.readuntil(b"\r\n\r\n")
        writer.write(EARLY)
        if not closes:
            with suppress(ConnectionError):
                while await reader.read(MIB):
                    pass
        ended += 1

    async with connector_to(handle) as connector:
        for _ in range(3):
            reply = await connector.exchange(post(memoryview(bytes(64 * MIB))))
            assert (reply.status, reply.body) == (413, b"big")
        await until(lambda: ended >= 3, 0)


async def test_a_peer_that_closes_too_early() -> None:
    async with answering(OK[:-1], close_after_reply=True) as (endpoint, connector):
        with pytest.raises(TransportError) as caught:
            await connector.exchange(GET)
    error = caught.value
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, True)
    assert error.message == "closed the connection in the middle of its reply, after 1 of 2 bytes of the body"
    assert endpoint.connections == 1


@pytest.mark.parametrize("data", [b"", OK[:-1], b"HTTP/1.1 200 OK\r\n\r\ncut"])
async def test_a_peer_that_resets(data: bytes) -> None:
    received = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)
        await received.wait()
        reset_connection(writer)

    async with connector_to(handle) as connector:
        exchange = asyncio.ensure_future(connector.exchange(GET))
        asyncio.get_running_loop().call_soon(received.set)
        with pytest.raises(TransportError, match=r"^reset the connection") as caught:
            await exchange
    assert (caught.value.status, caught.value.sent) == (Status.UNAVAILABLE, True)


async def test_a_malformed_reply_ends_its_connection() -> None:
    async with answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", OK) as (endpoint, connector):
        with pytest.raises(TransportError, match=r"reply is not HTTP/1\.1"):
            await connector.exchange(GET)
        assert (await connector.exchange(GET)).body == b"ok"
        assert endpoint.connections == 2


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", OK[:-1]])
async def test_cancelling_closes_the_connection_so_that_the_peer_sees_it(begun: bytes) -> None:
    async with answering(begun) as (endpoint, connector):
        exchange = asyncio.ensure_future(connector.exchange(GET))
        await until(lambda: endpoint.requests, 0)
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        await until(lambda: endpoint.ended, 0)


async def test_cancelling_while_a_large_body_is_written_closes_the_connection() -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        try:
            while await reader.read(MIB):
                pass
        finally:
            ended.set()

    async with connector_to(handle) as connector:
        exchange = asyncio.ensure_future(connector.exchange(post(memoryview(bytes(64 * MIB)))))
        await arrived.wait()
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        await ended.wait()


@pytest.mark.parametrize("turns", range(40))
async def test_cancelling_at_any_moment_leaves_other_exchanges_alone(turns: int) -> None:
    """One moment matters: the reply has freed the connection, another exchange has taken it, and only then the
    cancelled task runs."""

    async with connector_to(echo) as connector:
        await connector.exchange(post(b"0"))
        first = asyncio.ensure_future(connector.exchange(post(b"1")))
        await settle(turns)
        first.cancel()
        assert (await connector.exchange(post(b"2"))).body == b"2"
        await asyncio.gather(first, return_exceptions=True)
        assert (await connector.exchange(post(b"3"))).body == b"3"


async def test_a_reply_that_comes_while_its_exchange_is_cancelled() -> None:
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with connecting(server.getsockname()[1]) as connector:
            exchange = asyncio.ensure_future(connector.exchange(GET))
            peer, _ = await loop.sock_accept(server)
            await loop.sock_recv(peer, 1000)
            peer.send(OK)
            exchange.cancel()
            with pytest.raises(asyncio.CancelledError):
                await exchange
            peer.close()
    assert complaints == []


async def test_a_peer_that_does_not_close_after_its_last_reply_is_not_waited_for() -> None:
    async with answering(OK, connection_per_call=True) as (endpoint, connector):
        assert (await connector.exchange(GET)).body == b"ok"
        await until(lambda: endpoint.ended, 0)
