"""Connections that end after a number of requests or an age: no request is lost by it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from gateway.core.tasks import spawn
from gateway.transports.listener_connections import ListenerConnections
from tests.attacks.clients import Brpc, Connection, Mip, message, tensor
from tests.core.http2 import by_hand as http2
from tests.paused_server import held, port_of, read_message
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: here, bind: "127.0.0.1:0", protocols: [PROTOCOL], model: m, limits: LIMITS}]
"""
SERVED = """
backends: {b: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes: [{match: {model: m}, backend: b}]
"""
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


@asynccontextmanager
async def serving(protocol: str, limits: str, more: str = "") -> AsyncIterator[int]:
    """The port of a gateway's listener."""
    text = CONFIG.replace("PROTOCOL", protocol).replace("LIMITS", limits) + more
    async with running_gateway(text) as gateway:
        yield port_of(gateway.state.listeners["here"].address)


@asynccontextmanager
async def channel_to(limits: str) -> AsyncIterator[grpc.aio.Channel]:
    async with serving("v2-grpc", limits) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clients of all connections that were accepted."""
    found: list[str] = []
    admit = ListenerConnections.admit

    def counted(self: ListenerConnections, connection: object, peer: str = "") -> object:
        found.append(peer)
        return admit(self, connection, peer)  # type: ignore[arg-type]

    monkeypatch.setattr(ListenerConnections, "admit", counted)
    return found


async def test_the_reply_to_the_last_request_over_http_announces_the_close() -> None:
    async with serving("v2-rest", "{requests_per_connection: 3}") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(3 * LIVE)
        closes = [b"Connection: close" in (await read_message(reader))[0] for _ in range(3)]
        assert closes == [False, False, True]
        assert await reader.read() == b""
        writer.close()


async def test_the_first_reply_after_the_age_announces_the_close() -> None:
    async with serving("v2-rest", "{connection_age: 0.5}") as port:
        begun, replies = asyncio.get_running_loop().time(), 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(LIVE)
            replies += 1
            if b"Connection: close" in (await read_message(reader))[0]:
                break
        assert asyncio.get_running_loop().time() - begun > 0.4
        assert replies > 1
        assert await reader.read() == b""
        writer.close()


async def test_grpc_clients_go_on_without_an_error(admitted: list[str]) -> None:
    async with channel_to("{requests_per_connection: 20}") as channel:
        check = channel.unary_unary(CHECK)
        for _ in range(20):
            assert await asyncio.gather(*(check(b"") for _ in range(10))) == [b"\x08\x01"] * 10
    assert len(admitted) > 5


async def test_an_old_grpc_connection_is_replaced_while_calls_go_on(admitted: list[str]) -> None:
    async with channel_to("{connection_age: 0.05}") as channel:
        check = channel.unary_unary(CHECK)
        while len(admitted) < 5:
            assert await check(b"") == b"\x08\x01"


async def test_an_idle_grpc_connection_is_asked_to_leave_and_closed() -> None:
    async with serving("v2-grpc", "{connection_age: 0.01}") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(http2.PREFACE + http2.settings())
        kinds = []
        while not reader.at_eof():
            try:
                start = await reader.readexactly(9)
            except asyncio.IncompleteReadError:
                break
            payload = await reader.readexactly(int.from_bytes(start[:3], "big"))
            if start[3] == http2.GOAWAY:
                kinds.append((int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")))
            if start[3] == http2.PING:
                writer.write(http2.frame(http2.PING, http2.ACK, 0, payload))
        assert kinds[:2] == [(2**31 - 1, 0), (0, 0)]
        assert all(code == 0 for _, code in kinds)
        writer.close()


async def test_a_stream_in_flight_goes_on_after_the_age() -> None:
    async with channel_to("{requests_per_connection: 1}") as channel:
        watching = channel.unary_stream(WATCH)(b"")
        assert await watching.read() == b"\x08\x01"
        for _ in range(20):
            assert await channel.unary_unary(CHECK)(b"") == b"\x08\x01"
        assert not watching.done()
        watching.cancel()


async def test_a_call_that_does_not_end_within_the_grace_is_ended() -> None:
    async with channel_to("{connection_age: 0.05, connection_grace: 0.05}") as channel:
        watching = channel.unary_stream(WATCH)(b"")
        with pytest.raises(grpc.aio.AioRpcError, match=r"did not end within limits\.connection_grace") as ended:
            _ = [each async for each in watching]
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def called(connection: Connection, request: bytes) -> bytes:
    return await asyncio.to_thread(connection.call, request)


async def test_a_mip_connection_closes_after_its_last_reply() -> None:
    request = message("mip", "m", tensor(b"1"))
    async with serving("mip", "{requests_per_connection: 2}") as port:
        with Mip(("127.0.0.1", port)) as connection:
            for _ in range(2):
                assert b"not-found" in await called(connection, request)
            assert await asyncio.to_thread(connection.socket.recv, 1) == b""


async def test_an_old_mip_connection_closes_after_the_reply_in_flight() -> None:
    async with (
        held() as model,
        serving("mip", "{connection_age: 0.05}", SERVED.replace("PORT", str(model.port))) as port,
    ):
        with Mip(("127.0.0.1", port)) as connection:
            calling = spawn(called(connection, message("mip", "m", tensor(b"1"))))
            await model.arrived.wait()
            await asyncio.sleep(0.06)  # its age
            model.release.set()
            assert len(await calling) >= 8
            assert await asyncio.to_thread(connection.socket.recv, 1) == b""


async def test_brpc_connections_are_kept() -> None:
    request = message("grps-brpc", "m", tensor(b"1"))
    async with serving("grps-brpc", "{requests_per_connection: 1, connection_age: 0.001}") as port:
        with Brpc(("127.0.0.1", port)) as connection:
            for _ in range(3):
                reply = await called(connection, request)
                assert reply.startswith(b"PRPC")
                assert b"stopping" not in reply
