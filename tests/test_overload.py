"""What clients of an overloaded gateway are told, in every transport, and what is served all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from gateway.runtime.app import Gateway
from gateway.transports.shedding import UP_LOOKS, Level, Shedding
from tests.attacks.clients import Brpc, Connection, Http, Mip, message, post, tensor
from tests.paused_server import ask, get, port_of
from tests.running_gateway import running_gateway
from tests.test_connection_ends import CHECK

CONFIG = """
limits: {shed: {lag: 0.1}}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: m}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
health: {bind: "127.0.0.1:0"}
"""
OVERLOADED = b"the gateway is overloaded; try again in 1 s"
SMALL = post("/v2/models/m/infer", b"{}")
LARGE_HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
ANY_SERVICE = b"\x0a\0"
"""A HealthCheckRequest that is not empty."""
MIP_PING = bytes.fromhex("0001000000000000")


def overload(gateway: Gateway, level: Level) -> Shedding:
    """Only the measurements are made up."""
    shedding = gateway.state.shedding
    assert isinstance(shedding, Shedding)
    shedding.stop()
    for _ in range(level * UP_LOOKS):
        shedding.look(lag=1, memory=0)
    assert shedding.level is level
    return shedding


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Gateway, dict[str, tuple[str, int]]]]:
    async with running_gateway(CONFIG) as gateway:
        listeners = {**gateway.state.listeners, **gateway.ports.all}
        yield gateway, {name: ("127.0.0.1", port_of(each.address)) for name, each in listeners.items()}


async def called(connection: Connection, request: bytes) -> bytes:
    return await asyncio.to_thread(connection.call, request)


async def test_new_connections_are_refused_first() -> None:
    async with running() as (gateway, addresses):
        with Http(addresses["http"]) as known:
            assert b" 200 " in await called(known, LIVE)
            overload(gateway, Level.CONNECTIONS)
            new = await ask(addresses["http"][1], b"")
            assert new.startswith(b"HTTP/1.1 503 ")
            assert OVERLOADED in new
            assert b" 400 " in await called(known, SMALL)
        assert gateway.state.status().listeners["http"].refused_connections == 1


async def test_then_large_requests_before_their_bodies_are_sent() -> None:
    async with running() as (gateway, addresses):
        with Http(addresses["http"]) as known, Http(addresses["http"]) as large:
            assert b" 200 " in await called(known, LIVE)
            assert b" 200 " in await called(large, LIVE)
            overload(gateway, Level.LARGE)
            reply = await called(large, LARGE_HEAD)
            assert reply.startswith(b"HTTP/1.1 503 ")
            assert OVERLOADED in reply
            assert b"\r\nConnection: close\r\n" in reply
            assert b" 400 " in await called(known, SMALL)


async def test_then_all_requests_but_those_without_a_body() -> None:
    async with running() as (gateway, addresses):
        with Http(addresses["http"]) as http, Mip(addresses["mip"]) as mip, Brpc(addresses["brpc"]) as brpc:
            for connection, request in ((http, LIVE), (mip, MIP_PING), (brpc, message("grps-brpc", "m", tensor(b"1")))):
                await called(connection, request)
            async with grpc.aio.insecure_channel("{}:{}".format(*addresses["grpc"])) as channel:
                check, infer = map(channel.unary_unary, (CHECK, "/inference.GRPCInferenceService/ModelInfer"))
                assert await check(ANY_SERVICE) == b"\x08\x01"
                shedding = overload(gateway, Level.ALL)

                for _ in range(2):  # the connection is kept
                    reply = await called(http, SMALL)
                    assert reply.startswith(b"HTTP/1.1 503 ")
                    assert OVERLOADED in reply
                assert b" 200 " in await called(http, LIVE)
                with pytest.raises(grpc.aio.AioRpcError, match=OVERLOADED.decode()) as refused:
                    await infer(message("v2-grpc", "m", tensor(b"1")))
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
                assert await check(ANY_SERVICE) == b"\x08\x01"
            assert OVERLOADED in await called(mip, message("mip", "m", tensor(b"1")))
            assert OVERLOADED not in await called(mip, MIP_PING)
            assert b"[E2004]" + OVERLOADED in await called(brpc, message("grps-brpc", "m", tensor(b"1")))
            shedding.stop()
            assert b" 400 " in await called(http, SMALL)
        status = gateway.state.status().shedding
        assert status is not None
        assert status.refused == 5
        assert status.since is not None


async def test_the_health_port_is_served_all_the_same() -> None:
    async with running() as (gateway, addresses):
        overload(gateway, Level.ALL)
        for path in ("/healthz", "/readyz"):
            assert (await ask(addresses["health"][1], get(path))).startswith(b"HTTP/1.1 200 ")


async def test_without_the_key_there_is_no_shedding() -> None:
    async with running_gateway(CONFIG.replace("limits: {shed: {lag: 0.1}}", "")) as gateway:
        assert gateway.state.status().shedding is None
