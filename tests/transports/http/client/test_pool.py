"""Which connection carries which exchange."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest

from gateway.core.errors import TransportError
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.transports.http.client import connection, pool
from gateway.transports.http.client.connection import HttpClientConnection
from gateway.transports.http.client.connector import HttpConnector
from gateway.transports.sockets import Unconfirmed, keep_probing
from gateway.transports.timeouts import HttpEndpointTimeouts
from tests.limits import until
from tests.transports.http.client.endpoint import (
    GET,
    OK,
    OK_HEAD,
    Endpoint,
    answering,
    connector_to,
    echo,
    post,
    read_request,
    serving,
)
from tests.transports.raw_server import Handle

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
    async with answering(reply) as (endpoint, connector):
        for _ in range(7):
            await connector.exchange(post(b"{}"))
    assert (endpoint.connections, len(endpoint.requests)) == (1, 7)


@pytest.mark.parametrize("reply", NOT_KEPT)
async def test_a_connection_that_cannot_be_trusted_any_more_is_not_used_again(reply: bytes) -> None:
    async with answering(reply, OK) as (endpoint, connector):
        await connector.exchange(GET)
        assert (await connector.exchange(GET)).body == b"ok"
    assert endpoint.connections == 2


@pytest.mark.parametrize("reply", NOT_KEPT)
async def test_a_head_that_was_seen_before_does_not_make_a_connection_trusted(reply: bytes) -> None:
    async with answering(OK, reply, OK) as (endpoint, connector):
        await connector.exchange(GET)
        await connector.exchange(GET)
        assert endpoint.connections == 1
        assert (await connector.exchange(GET)).body == b"ok"
        assert endpoint.connections == 2


async def test_replies_with_one_head_keep_their_own_bodies() -> None:
    async with connector_to(echo) as connector:
        assert await calls(connector, 20, 50) == (1000, 0)


async def test_a_connection_per_call() -> None:
    async with answering(OK, close_after_reply=True, connection_per_call=True) as (endpoint, connector):
        for _ in range(3):
            await connector.exchange(GET)
    assert endpoint.connections == 3
    assert all(b"\r\nConnection: close\r\n" in head for head, _ in endpoint.requests)


async def test_the_connection_used_last_is_used_next() -> None:
    order: list[asyncio.StreamWriter] = []
    gate = asyncio.Barrier(3)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            order.append(writer)
            if b"/together" in head:
                await gate.wait()
            writer.write(OK)

    together = Message("GET", "/together")
    async with connector_to(handle) as connector:
        await asyncio.gather(*(connector.exchange(together) for _ in range(3)))
        for _ in range(5):
            await connector.exchange(GET)
    assert len(set(order)) == 3
    assert len(set(order[3:])) == 1


async def test_concurrent_exchanges_do_not_mix() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            for byte in OK_HEAD % len(body) + body:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)

    async with connector_to(handle) as connector:
        for _ in range(3):
            bodies = [b"%d" % number for number in range(50)]
            replies = await asyncio.gather(*(connector.exchange(post(body)) for body in bodies))
            assert [reply.body for reply in replies] == bodies


@pytest.mark.parametrize("afterwards", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_an_idle_connection_that_the_peer_ended_is_not_used(afterwards: bytes) -> None:
    """Not even if the loop has not noticed the end yet: the request is sent once, on a new connection."""
    endpoint = Endpoint([OK])
    idle, done = asyncio.Event(), asyncio.Event()

    async def end_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endpoint.requests.append(await read_request(reader))
        writer.write(OK)
        await idle.wait()
        writer.write(afterwards)
        writer.close()
        done.set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (end_first if not endpoint.requests else endpoint.handle)(reader, writer)

    async with connector_to(handle) as connector:
        await connector.exchange(GET)
        idle.set()
        await done.wait()
        for _ in range(3):
            assert (await connector.exchange(GET)).body == b"ok"
    assert (endpoint.connections, len(endpoint.requests)) == (1, 4)


async def test_idle_connections_are_closed_after_a_while() -> None:
    async with answering(OK, timeouts=HttpEndpointTimeouts(idle=0.01)) as (endpoint, connector):
        await connector.exchange(GET)
        await until(lambda: endpoint.ended, 0)


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

    async with connector_to(handle) as connector:
        busy = asyncio.ensure_future(connector.exchange(Message("GET", "/busy")))
        await arrived.wait()
        await connector.exchange(GET)
        await connector.close()
        with pytest.raises(TransportError, match="the connection"):
            await busy
        with pytest.raises(TransportError, match="the gateway has closed the connector") as caught:
            await connector.exchange(GET)
        await until(lambda: len(ends) >= 2, 0)
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

    async with connector_to(handle) as connector:
        await connector.exchange(GET)
        busy = asyncio.ensure_future(connector.exchange(Message("GET", "/busy")))
        await arrived.wait()
        await connector.close()
        assert busy.done()
        assert isinstance(busy.exception(), TransportError)


def repeating(write: Callable[[asyncio.StreamWriter, bytes, int], Awaitable[None]]) -> Handle:
    """Replies with each request's body, and sends some replies twice: `write` is told how many requests there were."""
    numbers = count(1)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await read_request(reader)
            await write(writer, OK_HEAD % len(body) + body, next(numbers))

    return handle


async def in_one_piece(writer: asyncio.StreamWriter, reply: bytes, number: int) -> None:
    writer.write(reply * (2 if number % 50 == 0 else 1))


async def with_the_next(writer: asyncio.StreamWriter, reply: bytes, number: int) -> None:
    """The second reply comes later, while the connection is idle or carries another exchange."""
    writer.write(reply)
    await asyncio.sleep(0.001)
    writer.write(reply)


async def calls(
    connector: HttpConnector, callers: int, each: int, until: asyncio.Event | None = None
) -> tuple[int, int]:
    """How many calls got their own reply, and how many got another's; no call begins after `until`."""
    are_own: list[bool] = []

    async def call(caller: int) -> None:
        for number in range(each):
            if until is not None and until.is_set():
                return
            body = b"%d of %d" % (number, caller)
            with suppress(TransportError):
                are_own.append((await connector.exchange(post(body))).body == body)

    await asyncio.gather(*map(call, range(callers)))
    return are_own.count(True), are_own.count(False)


async def test_a_second_reply_after_the_first_reaches_no_exchange() -> None:
    async with connector_to(repeating(in_one_piece)) as connector:
        assert await calls(connector, 20, 50) == (1000, 0)


async def test_an_endpoint_that_answers_twice_is_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reply that comes after the next request was sent cannot be told from that one's own. As soon as one is
    seen that answers no request, no connection is used again: no later exchange gets another's reply."""
    found = asyncio.Event()
    distrust = pool.HttpPool.distrust

    def find(endpoint: pool.HttpPool) -> None:
        found.set()
        distrust(endpoint)

    monkeypatch.setattr(pool.HttpPool, "distrust", find)
    async with connector_to(repeating(with_the_next)) as connector:
        await calls(connector, 20, 10, until=found)
        await found.wait()
        assert await calls(connector, 20, 50) == (1000, 0)


async def test_a_reply_that_the_loop_has_not_read_reaches_no_exchange() -> None:
    """It comes while the connection is idle; the next request goes out in the same turn of the loop."""
    unasked = OK_HEAD % 4 + b"evil"
    servers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers.append(writer)
        await echo(reader, writer)

    async with connector_to(handle) as connector:
        assert (await connector.exchange(post(b"0"))).body == b"0"
        sock = servers[0].get_extra_info("socket")
        assert os.write(sock.fileno(), unasked) == len(unasked)
        for number in range(1, 4):
            assert (await connector.exchange(post(b"%d" % number))).body == b"%d" % number


async def test_after_unrequested_bytes_the_endpoint_gets_a_connection_per_call_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with answering(OK + OK, OK) as (endpoint, connector):
        for _ in range(3):
            await connector.exchange(GET)
        assert endpoint.connections == 3
        assert [b"\r\nConnection: close\r\n" in head for head, _ in endpoint.requests] == [False, True, True]
    monkeypatch.setattr(pool, "DISTRUST_SECONDS", 0.0)
    async with answering(OK + OK, OK) as (endpoint, connector):
        for _ in range(4):
            await connector.exchange(GET)
        assert endpoint.connections == 2


class Patient(HttpConnector):
    """Sends its request once the endpoint has spoken."""

    spoken: asyncio.Event

    async def _open(self, loop: asyncio.AbstractEventLoop, connection: HttpClientConnection) -> None:
        await super()._open(loop, connection)
        await self.spoken.wait()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (OK_HEAD % 4 + b"evil", "it sent something on the new connection"),
        (b"\0\0\x06\4\0\0\0\0\0\0\3\0\0\0\x64", r"an HTTP/2 \(gRPC\) server"),
    ],
)
async def test_a_new_connection_on_which_the_endpoint_speaks_first_is_not_used(said: bytes, text: str) -> None:
    requests: list[bytes] = []
    spoken = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        spoken.set()
        requests.append(await reader.read())

    async with serving(handle) as port:
        connector = Patient(f"127.0.0.1:{port}", connection_per_call=False, limits=Limits())
        connector.spoken = spoken
        with pytest.raises(TransportError, match=text) as caught:
            await connector.exchange(GET)
        await connector.close()
    assert not caught.value.sent
    # HTTP/1.1 is what it should speak: that is no news.
    assert ("it seems to be" in caught.value.message) == (not said.startswith(b"HTTP/1.1"))
    assert requests in ([], [b""])


async def test_a_later_reply_that_was_sent_before_its_request_had_arrived_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over loopback requests arrive at once, so the kernel's answer is put into its place."""
    async with answering(OK) as (endpoint, connector):
        for _ in range(3):
            await connector.exchange(GET)
        monkeypatch.setattr(Unconfirmed, "count", lambda _: len(endpoint.requests[0][0]))
        with pytest.raises(TransportError, match="it belongs to another request"):
            await connector.exchange(GET)
        assert (await connector.exchange(GET)).body == b"ok"  # the first reply on a connection answers no other request
        assert endpoint.connections == 2


async def test_the_kernel_tells_how_many_bytes_have_not_arrived() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        unconfirmed = Unconfirmed(client.fileno())
        assert unconfirmed.count() == 0
        client.setblocking(False)
        with suppress(BlockingIOError):
            while True:  # nobody reads: at last the rest waits on this side
                client.send(bytes(2**20))
        assert unconfirmed.count() > 0 or sys.platform != "linux"


async def test_a_call_that_takes_a_while_has_its_peer_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that vanished must be noticed although nothing is sent to it for hours."""
    probed: list[int] = []
    answer = asyncio.Event()

    def probe(sock: socket.socket) -> None:
        keep_probing(sock)
        probed.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        answer.set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await answer.wait()
        writer.write(OK)

    monkeypatch.setattr(pool, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(connection, "keep_probing", probe)
    async with connector_to(handle, connection_per_call=True) as connector:
        assert (await connector.exchange(GET)).body == b"ok"
    assert probed == [1]


async def test_a_kept_connection_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[int] = []
    was_probed = asyncio.Event()

    def probe(sock: socket.socket) -> None:
        probed.append(sock.fileno())
        was_probed.set()

    monkeypatch.setattr(pool, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(connection, "keep_probing", probe)
    async with answering(OK) as (endpoint, connector):
        await connector.exchange(GET)
        await was_probed.wait()
        was_probed.clear()
        await asyncio.gather(connector.exchange(GET), connector.exchange(GET))  # one of them opens a second one
        await was_probed.wait()
    assert len(set(probed)) == len(probed) == endpoint.connections == 2


async def test_an_error_with_one_connection_keeps_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, probed = asyncio.Event(), list[socket.socket]()

    def probe(sock: socket.socket) -> None:
        probed.append(sock)
        if len(probed) == 1:
            raise ValueError("the fault")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        closed.append(writer)
        if len(closed) == 5:
            ended.set()

    closed: list[asyncio.StreamWriter] = []
    monkeypatch.setattr(pool, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(connection, "keep_probing", probe)
    async with connector_to(handle, connection_per_call=True) as connector:
        await asyncio.gather(*(connector.exchange(GET) for _ in range(5)))
        await ended.wait()


async def test_the_end_of_the_last_connection_is_told() -> None:
    """Of two connections the end of the second; of one that the endpoint closes, and one that the client leaves."""
    told, both = list[int](), asyncio.Barrier(2)
    gone, arrived = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        told.append(len(connector._pool._connections))
        gone.set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await both.wait()
        writer.write(OK)

    async with connector_to(handle) as connector:
        connector.on_disconnect(tell)
        await asyncio.gather(connector.exchange(GET), connector.exchange(GET))
        await gone.wait()
        assert told == [0]
        arrived.clear()
        gone.clear()
        abandoned = asyncio.ensure_future(connector.exchange(GET))
        await arrived.wait()
        abandoned.cancel()
        await gone.wait()
        assert told == [0, 0]
