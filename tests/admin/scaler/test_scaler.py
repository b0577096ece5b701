"""KEDA's external scaler on a running gateway, asked by a client that is written from KEDA's contract."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from gateway.admin import scaler as port
from gateway.admin.scaler import ScalerServer
from gateway.core.address import Address
from gateway.runtime.app import Gateway
from gateway.transports.timeouts import Timeouts
from tests.admin.asking import model_client
from tests.admin.scaler.keda import SERVICE, Keda, keda, ref, refused
from tests.core.http2 import by_hand as http2
from tests.limits import GENEROUS, until
from tests.paused_server import QUESTION, held
from tests.running_gateway import config_of, running_gateway
from tests.servers.discovery.running import model_server
from tests.tls.certificates import Authority

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}]
scaler: {bind: "127.0.0.1:0"}
backends:
  lab:
    protocol: v2-rest
    flavor: plain
    max_in_flight: 2
    endpoints: ["http://127.0.0.1:PORT"]
  other: {protocol: v2-rest, endpoints: ["http://127.0.0.1:1"]}
routes: [{match: {model: m}, backend: lab}, {match: {model: "*"}, backend: other}]
"""
ONE = CONFIG.replace("PORT", "1")
FROM_ZERO = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
scaler: {bind: "127.0.0.1:0"}
backends:
  lab:
    protocol: umbridge
    discovery: {files: "FOLDER/url-*.txt", interval: 0.02}
    queue: {wait_for_endpoints: SECONDS}
routes: [{match: {model: "*"}, backend: lab}]
"""
EVALUATE = {"name": "posterior", "input": [[1.0, 2.0]], "config": {}}


def from_zero(folder: Path, seconds: str) -> str:
    return FROM_ZERO.replace("FOLDER", str(folder)).replace("SECONDS", seconds)


@asynccontextmanager
async def asked(text: str = ONE) -> AsyncIterator[tuple[Gateway, Keda, httpx.AsyncClient]]:
    """A gateway, KEDA, and a client of models."""
    async with (
        running_gateway(text) as gateway,
        keda(gateway.ports.all["scaler"].address) as client,
        model_client(gateway) as models,
    ):
        yield gateway, client, models


async def next_of(stream: Any) -> bool:
    async with asyncio.timeout(GENEROUS):
        return bool((await stream.read()).result)


def infer(models: httpx.AsyncClient) -> "asyncio.Task[httpx.Response]":
    return asyncio.ensure_future(models.post("/v2/models/m/infer", content=QUESTION))


async def test_it_tells_calls_in_flight_and_in_the_queue_and_pushes_when_the_first_comes_and_when_it_is_idle() -> None:
    async with held() as server, asked(CONFIG.replace("PORT", str(server.port))) as (gateway, client, models):
        stream = client.watch(backend="lab", idle="1")
        assert not await next_of(stream)
        assert not await client.is_active(backend="lab")
        assert await client.value(backend="lab") == 0
        calls = [infer(models) for _ in range(5)]
        assert await next_of(stream)
        await until(lambda: len(gateway.state.assembly.backends["lab"].queue) == 3)
        assert await client.is_active(backend="lab")
        assert [await client.value(name, backend="lab") for name in ("calls", "queue")] == [5, 3]
        assert (await client.value(backend="other"), await client.is_active(backend="other")) == (0, False)
        server.release.set()
        assert {each.status_code for each in await asyncio.gather(*calls)} == {200}
        assert await client.value(backend="lab") == 0
        assert await client.is_active(backend="lab"), "it is active for `idle` seconds after the last call"
        assert not await next_of(stream)
        assert not await client.is_active(backend="lab", idle="1")


async def test_the_target_is_what_the_trigger_says_or_max_in_flight() -> None:
    async with asked() as (_, client, _):
        assert await client.spec(backend="lab") == [("calls", 2, 2.0)]
        assert await client.spec(backend="lab", target="2.5", metric="queue") == [("queue", 3, 2.5)]
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "metadata.target", "max_in_flight"):
            await client.spec(backend="other")


@pytest.mark.parametrize(
    ("metadata", "texts"),
    [
        ({}, ("metadata.backend", "missing")),
        ({"backend": "lab", "tagret": "4"}, ("'tagret'", "did you mean 'target'")),
        ({"backend": "lab", "target": "many"}, ("metadata.target", "'many'", "a number from")),
        ({"backend": "lab", "target": "nan"}, ("metadata.target",)),
        ({"backend": "lab", "target": "-1"}, ("metadata.target",)),
        ({"backend": "lab", "idle": "0"}, ("metadata.idle", "from 1 to")),
        ({"backend": "lab", "metric": "load"}, ("metadata.metric", "'load'", "queue (waiting)")),
    ],
)
async def test_wrong_metadata_are_refused_with_what_would_be_right(metadata: dict[str, str], texts: Any) -> None:
    async with asked() as (_, client, _):
        for call in (client.is_active, client.spec, client.value):
            with refused(grpc.StatusCode.INVALID_ARGUMENT, *texts):
                await call(**metadata)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, *texts):
            await client.watch(**metadata).read()


async def test_an_unknown_backend_is_not_found_and_a_similar_one_is_named() -> None:
    async with asked() as (_, client, _):
        with refused(grpc.StatusCode.NOT_FOUND, "'labb'", "'lab'"):
            await client.is_active(backend="labb")
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "unknown metric 'cpu'; expected calls or queue"):
            await client.value("cpu", backend="lab")
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "limits.message"):
            await client.is_active(backend="lab", more="x" * 100_000)


async def test_calls_from_zero_wait_for_the_first_server_and_keda_sees_them(tmp_path: Path) -> None:
    """KEDA's part is played by the test: when the stream says active it starts a server."""
    async with asked(from_zero(tmp_path, "20")) as (gateway, client, models):
        stream = client.watch(backend="lab")
        assert not await next_of(stream)
        calls = [asyncio.ensure_future(models.post("/Evaluate", json=EVALUATE)) for _ in range(10)]
        assert await next_of(stream)
        await until(lambda: gateway.state.assembly.backends["lab"].waiting == 10)
        # They pass unread: each waits for itself, and none for the model's metadata.
        assert len(gateway.state.assembly.backends["lab"].queue) == 10
        assert [await client.value(name, backend="lab") for name in ("calls", "queue")] == [10, 10]
        server = await model_server("umbridge")
        (tmp_path / "url-1.txt").write_text(f"http://{server.address}\n")
        answers = await asyncio.gather(*calls)
        assert [each.status_code for each in answers] == [200] * 10
        assert len({each.text for each in answers}) == 1
        assert await client.value(backend="lab") == 0
        await server.drain(0)


async def test_calls_that_wait_for_the_first_server_get_it_after_a_reload_too(tmp_path: Path) -> None:
    async with asked(from_zero(tmp_path, "20")) as (gateway, client, models):
        call = asyncio.ensure_future(models.post("/Evaluate", json=EVALUATE))
        await until(lambda: gateway.state.assembly.backends["lab"].waiting == 1)
        for seconds in ("21", "22"):
            await gateway.reload(config_of(from_zero(tmp_path, seconds)))
        assert (gateway.state.assembly.backends["lab"].waiting, await client.value("queue", backend="lab")) == (1, 1)
        assert await client.value(backend="lab") == 1
        server = await model_server("umbridge")
        (tmp_path / "url-1.txt").write_text(f"http://{server.address}\n")
        assert (await call).status_code == 200
        assert await client.value(backend="lab") == 0
        await server.drain(0)


async def test_calls_fail_when_no_server_comes_in_time(tmp_path: Path) -> None:
    async with asked(from_zero(tmp_path, "0.1")) as (gateway, client, models):
        reply = await models.post("/Evaluate", json=EVALUATE)
        assert reply.status_code == 503
        assert "waited 0.1 s for one (queue.wait_for_endpoints)" in reply.text
        assert (len(gateway.state.assembly.backends["lab"].queue), await client.value(backend="lab")) == (0, 0)


async def test_a_stream_ends_when_a_reload_removes_its_backend_and_others_go_on() -> None:
    async with asked() as (gateway, client, models):
        gone, stays = client.watch(backend="other"), client.watch(backend="lab")
        assert (await next_of(gone), await next_of(stays)) == (False, False)
        lines = [line for line in ONE.splitlines() if "  other:" not in line]
        less = "\n".join(lines).replace(', {match: {model: "*"}, backend: other}', "")
        await gateway.reload(config_of(less))
        with refused(grpc.StatusCode.NOT_FOUND, "'other'"):
            await gone.read()
        call = infer(models)
        assert await next_of(stays)
        await call


async def test_a_hundred_streams_hear_of_one_call_and_clients_that_vanish_leave_nothing() -> None:
    """Also one that reads nothing: nobody waits for it."""
    async with asked() as (gateway, client, models):
        address = gateway.ports.all["scaler"].address
        activity = gateway.state.assembly.activities["lab"]
        async with keda(address) as second:
            streams = [second.watch(backend="lab") for _ in range(100)]
            assert [await next_of(each) for each in streams] == [False] * 100
            await until(lambda: len(activity._waiters) == 100)
            before = len(asyncio.all_tasks())
            for each in streams[:40]:
                each.cancel()
            await until(lambda: len(activity._waiters) == 60)
            await infer(models)
            assert [await next_of(each) for each in streams[40:]] == [True] * 60
            assert not activity._waiters
        await until(lambda: len(asyncio.all_tasks()) <= before - 100)
        assert await client.is_active(backend="lab")


async def test_a_reader_whose_window_is_shut_holds_up_nobody_and_then_hears_of_the_present_alone() -> None:
    async with asked() as (gateway, client, models):
        before = len(asyncio.all_tasks())
        host, _, port = gateway.ports.all["scaler"].address.rpartition(":")
        stalled = http2.Peer(*await asyncio.open_connection(host, int(port)))
        shut = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=0)
        asking = http2.request(f"{SERVICE}/StreamIsActive".encode(), ref(backend="lab", idle="1").SerializeToString())
        stalled.send(shut, asking.removeprefix(http2.PREFACE + http2.settings()))
        await stalled.next(http2.HEADERS)
        brisk = client.watch(backend="lab", idle="1")
        assert not await next_of(brisk)
        for _ in range(2):
            await infer(models)
            assert [await next_of(brisk), await next_of(brisk)] == [True, False]
        inactive, active = b"\0\0\0\0\0", b"\0\0\0\0\x02\x08\x01"
        stalled.send(http2.window_update(1, 1000))
        assert await stalled.next(http2.DATA) == (http2.DATA, 0, 1, inactive)
        await infer(models)
        assert await stalled.next(http2.DATA) == (http2.DATA, 0, 1, active)
        stalled.send(http2.settings(INITIAL_WINDOW_SIZE=0), http2.window_update(1, 1))  # then it leaves, shut again
        stalled.writer.close()
        brisk.cancel()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert not gateway.state.assembly.activities["lab"]._waiters


async def test_the_end_of_the_gateway_ends_streams() -> None:
    async with (
        running_gateway(ONE) as gateway,
        keda(gateway.ports.all["scaler"].address) as client,
    ):
        stream = client.watch(backend="lab")
        assert not await next_of(stream)
        await gateway.drain(0)
        with refused(grpc.StatusCode.UNAVAILABLE):
            await stream.read()


async def test_a_flood_of_nonsense_is_refused_and_keda_is_still_answered() -> None:
    async with asked() as (gateway, client, _):
        async with grpc.aio.insecure_channel(gateway.ports.all["scaler"].address) as channel:
            junk = channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
            nowhere = channel.unary_unary("/externalscaler.ExternalScaler/StreamMetricSpec")
            replies = [junk(os.urandom(200), timeout=GENEROUS) for _ in range(500)]
            codes = {await each.code() for each in replies}
            assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
            with refused(grpc.StatusCode.UNIMPLEMENTED):
                await nowhere(ref(backend="lab").SerializeToString(), timeout=GENEROUS)
        assert not await client.is_active(backend="lab")


async def test_over_tls_only_clients_with_a_certificate_of_the_ca_are_answered(tmp_path: Path) -> None:
    authority = Authority()
    files, own = authority.issue(tmp_path, "localhost"), authority.issue(tmp_path, "keda", stem="keda")
    own_tls = f'scaler: {{bind: "0.0.0.0:0", tls: {files.asking("required")}}}'
    text = ONE.replace('scaler: {bind: "127.0.0.1:0"}', own_tls)
    ca, certificate, key = map(Path.read_bytes, (own.ca, own.certificate, own.key))
    async with running_gateway(text) as gateway:
        address = f"localhost:{gateway.ports.all['scaler'].address.rpartition(':')[2]}"
        async with keda(address, grpc.ssl_channel_credentials(ca, key, certificate)) as client:
            assert not await client.is_active(backend="lab")
        async with keda(address, grpc.ssl_channel_credentials(ca)) as client:
            with refused(grpc.StatusCode.UNAVAILABLE):
                await client.is_active(backend="lab")


async def test_a_connection_without_a_byte_is_closed_as_soon_as_at_other_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port, "PORT_TIMEOUTS", Timeouts(first_byte=0.05, head=0.05))
    scaler = ScalerServer({}, {})
    await scaler.start(Address("127.0.0.1", 0))
    async with asyncio.timeout(GENEROUS):
        reader, writer = await asyncio.open_connection(*scaler.address.split(":"))
        await reader.read()
        writer.close()
    await scaler.stop()
