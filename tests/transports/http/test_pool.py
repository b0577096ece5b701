"""Which connection carries which exchange."""

import asyncio

import pytest

from gateway.core.errors import TransportError
from gateway.core.types import Message
from tests.transports.http.endpoint import GET, OK, Endpoint, connecting, post, read_request, serving
from tests.transports.http.endpoint import LOOPS as LOOPS

KEPT = [
    OK,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000),
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
]
NOT_KEPT = [
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    OK + b"x",
    OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000) + b"HTTP/1.1 200 OK\r\n\r\n",
]


@pytest.mark.parametrize("reply", KEPT)
async def test_a_connection_is_used_again(reply: bytes) -> None:
    endpoint = Endpoint([reply])
    async with serving(endpoint.handle) as port, connecting(port) as connector:
        for _ in range(7):
            await connector.exchange(post(b"{}"))
    assert (endpoint.connections, len(endpoint.requests)) == (1, 7)


@pytest.mark.parametrize("reply", NOT_KEPT)
async def test_a_connection_that_cannot_be_trusted_any_more_is_not_used_again(reply: bytes) -> None:
    endpoint = Endpoint([reply, OK])
    async with serving(endpoint.handle) as port, connecting(port) as connector:
        await connector.exchange(GET)
        assert (await connector.exchange(GET)).body == b"ok"
    assert endpoint.connections == 2


async def test_a_connection_per_call() -> None:
    endpoint = Endpoint([OK], close_after_reply=True)
    async with serving(endpoint.handle) as port, connecting(port, connection_per_call=True) as connector:
        for _ in range(3):
            await connector.exchange(GET)
    assert endpoint.connections == 3
    assert all(b"\r\nConnection: close\r\n" in head for head, _ in endpoint.requests)


async def test_the_connection_used_last_is_used_next() -> None:
    order: list[int] = []
    connections = 0
    gate = asyncio.Barrier(3)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        me = connections
        while True:
            head, _ = await read_request(reader)
            order.append(me)
            if b"/together" in head:
                await gate.wait()
            writer.write(OK)

    together = Message("GET", "/together")
    async with serving(handle) as port, connecting(port) as connector:
        await asyncio.gather(*(connector.exchange(together) for _ in range(3)))
        first_alone = len(order)
        for _ in range(5):
            await connector.exchange(GET)
    assert connections == 3
    assert len(set(order[first_alone:])) == 1


async def test_concurrent_exchanges_do_not_mix() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)

    async with serving(handle) as port, connecting(port) as connector:
        for _ in range(3):
            bodies = [b"%d" % number for number in range(50)]
            replies = await asyncio.gather(*(connector.exchange(post(body)) for body in bodies))
            assert [reply.body for reply in replies] == bodies


@pytest.mark.parametrize("afterwards", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_an_idle_connection_that_the_peer_ended_is_not_used(afterwards: bytes) -> None:
    """Also when the loop has not yet seen it: the exchange goes out once, on a new connection."""
    endpoint = Endpoint([OK])
    idle = asyncio.Event()
    done = asyncio.Event()

    async def end_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoint.requests.append(await read_request(reader))
        writer.write(OK)
        await idle.wait()
        writer.write(afterwards)
        writer.close()
        done.set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (end_first if not endpoint.requests else endpoint.handle)(reader, writer)

    async with serving(handle) as port, connecting(port) as connector:
        await connector.exchange(GET)
        idle.set()
        await done.wait()
        for _ in range(3):
            assert (await connector.exchange(GET)).body == b"ok"
    assert (endpoint.connections, len(endpoint.requests)) == (1, 4)


async def test_idle_connections_are_closed_after_a_while() -> None:
    ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        assert await reader.read() == b""
        ended.set()

    async with serving(handle) as port, connecting(port, idle_seconds=0.01) as connector:
        await connector.exchange(GET)
        await ended.wait()


async def test_closing_ends_idle_and_busy_connections() -> None:
    arrived = asyncio.Event()
    ends: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if b"/busy" in head:
            arrived.set()
        else:
            writer.write(OK)
        ends.append(await reader.read())

    async with serving(handle) as port, connecting(port) as connector:
        busy = asyncio.ensure_future(connector.exchange(Message("GET", "/busy")))
        await arrived.wait()
        await connector.exchange(GET)
        await connector.close()
        with pytest.raises(TransportError, match="the connection"):
            await busy
        with pytest.raises(TransportError, match="the connector is closed") as caught:
            await connector.exchange(GET)
        while len(ends) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert not caught.value.sent


async def test_closing_waits_for_the_last_connection_also_if_there_was_a_last_one_before() -> None:
    arrived = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if b"/busy" in head:
            arrived.set()
        else:
            writer.write(OK)
            writer.close()
        await reader.read()

    async with serving(handle) as port, connecting(port) as connector:
        await connector.exchange(GET)
        busy = asyncio.ensure_future(connector.exchange(Message("GET", "/busy")))
        await arrived.wait()
        await connector.close()
        assert busy.done()
        assert isinstance(busy.exception(), TransportError)
