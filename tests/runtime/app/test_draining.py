"""Draining an endpoint of a running gateway: by the admin port, and by `gateway drain`."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
from typer.testing import CliRunner, Result

from gateway.cli import application
from gateway.routing.endpoint import Drain
from gateway.runtime.app import Gateway
from tests.limits import until
from tests.paused_server import QUESTION, Held, held
from tests.runtime.app.test_gateway import at, gateway, running

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0", ready: any}
admin: {bind: "127.0.0.1:0"}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: [ENDPOINTS] MORE}
routes: [{match: {model: "*"}, backend: lab}]
"""


class Lab:
    """A gateway in front of two servers that hold their replies back."""

    def __init__(self, running: Gateway, servers: tuple[Held, Held], admin: httpx.AsyncClient) -> None:
        self.gateway = running
        self.servers = servers
        self.admin = admin
        self.url = str(admin.base_url).rstrip("/")

    def address(self, at: int) -> str:
        return f"127.0.0.1:{self.servers[at].port}"

    async def drain(self, at: int, **more: object) -> httpx.Response:
        return await self.admin.post("/drain", json={"backend": "lab", "endpoint": self.address(at), **more})

    async def drains(self) -> list[str | None]:
        endpoints = (await self.admin.get("/status")).json()["backends"]["lab"]["endpoints"]
        return [each["drain"] and each["drain"]["state"] for each in endpoints]

    async def until_drained(self) -> None:
        while "drained" not in await self.drains():
            pass

    async def command(self, *arguments: str) -> Result:
        return await command("lab", self.address(0), "--admin", self.url, *arguments)


async def command(*arguments: str) -> Result:
    """`gateway drain`, in another thread."""
    return await asyncio.to_thread(CliRunner().invoke, application, ("drain", *arguments))


def config(*ports: int, more: str = "") -> str:
    endpoints = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    return CONFIG.replace("ENDPOINTS", endpoints).replace("MORE", more)


async def infer(running: Gateway) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"http://127.0.0.1:{at(running)}/v2/models/m/infer", content=QUESTION)


@asynccontextmanager
async def lab(more: str = "") -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(held()) for _ in range(2)]
        started = await stack.enter_async_context(running(config(first.port, second.port, more=more)))
        url = f"http://{started.ports.all['admin'].address}"
        admin = await stack.enter_async_context(httpx.AsyncClient(base_url=url))
        yield Lab(started, (first, second), admin)


async def test_calls_end_before_an_endpoint_is_drained_and_new_ones_go_elsewhere() -> None:
    async with lab() as here:
        first, second = here.servers
        call = asyncio.ensure_future(infer(here.gateway))
        await first.arrived.wait()
        reply = (await here.drain(0)).json()
        assert (reply["address"], reply["drain"]["state"]) == (here.address(0), "draining")
        second.release.set()
        assert [(await infer(here.gateway)).status_code for _ in range(3)] == [200] * 3
        assert len(first.handling) == 1
        assert await here.drains() == ["draining", None]
        assert await metric(here) == {here.address(0): 1, here.address(1): 0}
        first.release.set()
        assert (await call).status_code == 200
        await here.until_drained()
        assert await metric(here) == {here.address(0): 2, here.address(1): 0}
        traffic = (await here.admin.get("/api/traffic")).json()["backends"]["lab"]["endpoints"]
        assert [each.get("drain") for each in traffic] == ["drained", None]
        undone = (await here.drain(0, undo=True)).json()
        assert undone["drain"] is None
        assert [(await infer(here.gateway)).status_code for _ in range(2)] == [200] * 2
        assert len(first.handling) == 2


async def metric(here: Lab) -> dict[str, int]:
    """`gateway_endpoint_drain` by address."""
    port = here.gateway.ports.all["health"].address
    async with httpx.AsyncClient(base_url=f"http://{port}") as health:
        page = (await health.get("/metrics")).text
    found = re.findall(r'^gateway_endpoint_drain\{backend="lab",endpoint="(\S+)"\} (\S+)$', page, re.M)
    return {address: int(float(value)) for address, value in found}


async def test_a_reload_keeps_it_and_a_server_that_is_removed_and_comes_back_serves() -> None:
    async with lab() as here:
        first, second = (each.port for each in here.servers)
        await here.drain(0)
        await here.gateway.reload(gateway(config(first, second, more=", max_in_flight: 3")).state.config)
        await here.until_drained()
        assert await here.drains() == ["drained", None]
        await here.gateway.reload(gateway(config(second)).state.config)
        await here.gateway.reload(gateway(config(first, second)).state.config)
        assert await here.drains() == [None, None]


def kept_drains() -> int:
    gc.collect()
    return sum(isinstance(each, Drain) for each in gc.get_objects())


async def test_nothing_is_kept_of_drains_whose_servers_have_left() -> None:
    before = kept_drains()
    async with lab() as here:
        first, second = (each.port for each in here.servers)
        for _ in range(3):
            await here.drain(0)
            await here.until_drained()
            await here.gateway.reload(gateway(config(second)).state.config)
            await here.gateway.reload(gateway(config(first, second)).state.config)
        await until(lambda: kept_drains() <= before, 0)


async def test_a_gateway_whose_only_endpoints_are_drained_is_not_ready() -> None:
    async with lab() as here:
        for at_ in (0, 1):
            await here.drain(at_)
        reply = await infer(here.gateway)
        assert (reply.status_code, "all endpoints are drained" in reply.text) == (503, True)
        async with httpx.AsyncClient(base_url=f"http://{here.gateway.ports.all['health'].address}") as health:
            assert (await health.get("/readyz")).status_code == 503


async def test_what_cannot_be_drained_is_refused() -> None:
    wrong: list[tuple[dict[str, object], int, str]] = [
        ({"backend": "lap"}, 404, "unknown backend 'lap'; expected 'lab'"),
        ({}, 404, "backend 'lab' has no endpoint 'a:1'; expected '127.0.0.1:"),
        ({"undo": True}, 404, "backend 'lab' has no endpoint 'a:1'"),
        ({"endpoint": None}, 422, "endpoint"),
        ({"wait": 3}, 422, "wait"),
        ({"seconds": -1}, 422, "seconds"),
    ]
    async with lab() as here:
        for body, status, told in wrong:
            reply = await here.admin.post("/drain", json={"backend": "lab", "endpoint": "a:1", **body})
            assert (reply.status_code, told in str(reply.json()["detail"])) == (status, True)
        assert await here.drains() == [None, None]


async def test_endpoints_of_servers_that_the_gateway_starts_are_not_drained() -> None:
    backend = "{protocol: umbridge, servers: {engine: process, command: [model]}}"
    text = re.sub(r"\{protocol: v2-rest, flavor.*\}", backend, CONFIG)
    async with (
        running(text) as started,
        httpx.AsyncClient(base_url=f"http://{started.ports.all['admin'].address}") as admin,
    ):
        reply = await admin.post("/drain", json={"backend": "lab", "endpoint": "a:1"})
    assert (reply.status_code, "starts its servers" in reply.json()["detail"]) == (409, True)


async def test_a_page_of_another_origin_cannot_drain() -> None:
    async with lab() as here:
        body = {"backend": "lab", "endpoint": here.address(0)}
        reply = await here.admin.post("/drain", json=body, headers={"Origin": "http://evil.example"})
        assert reply.status_code == 403
        assert await here.drains() == [None, None]


async def test_the_command_waits_for_the_end_of_calls_says_what_is_left_and_undoes() -> None:
    async with lab() as here:
        call = asyncio.ensure_future(infer(here.gateway))
        await here.servers[0].arrived.wait()
        late = await here.command("--wait", "0")
        assert late.exit_code == 4
        assert (
            "gets no new calls, but was not drained within 0 s: 1 calls and 0 sequences have not ended" in late.stderr
        )
        here.servers[0].release.set()
        await call
        drained = await here.command()
        assert (drained.exit_code, drained.stdout) == (0, f"endpoint {here.address(0)} of backend 'lab' is drained\n")
        undone = await here.command("--undo")
        told = f"endpoint {here.address(0)} of backend 'lab' gets calls again\n"
        assert (undone.exit_code, undone.stdout) == (0, told)
        assert await here.drains() == [None, None]


async def test_the_command_ends_when_the_drain_is_undone() -> None:
    async with lab() as here:
        call = asyncio.ensure_future(infer(here.gateway))
        await here.servers[0].arrived.wait()
        waiting = asyncio.ensure_future(here.command("--wait", "1000"))
        while "draining" not in await here.drains():
            pass
        await here.drain(0, undo=True)
        undone = await waiting
        what = f"endpoint {here.address(0)} of backend 'lab'"
        told = f"{what} is no longer drained: the drain was undone, or the endpoint was removed\n"
        assert (undone.exit_code, undone.stderr) == (1, told)
        here.servers[0].release.set()
        await call


async def test_the_command_tells_which_models_have_not_moved() -> None:
    async with lab() as here:
        call = asyncio.ensure_future(infer(here.gateway))
        await here.servers[0].arrived.wait()
        await here.drain(0)
        drain = here.gateway.state.assembly.backends["lab"].endpoints[0].drain
        assert drain is not None
        drain.is_moving, drain.failed_moves = True, ("m1: out of memory",)
        late = await here.command("--wait", "0")
        assert (late.exit_code, late.stdout) == (4, "not loaded on another server: m1: out of memory\n")
        assert late.stderr.endswith("within 0 s: the gateway is loading its models on other servers\n")
        here.servers[0].release.set()
        await call


async def test_the_command_tells_why_it_cannot() -> None:
    async with lab() as here:
        refused = await command("lab", "a:1", "--admin", here.url)
        assert (refused.exit_code, "has no endpoint 'a:1'" in refused.stderr) == (1, True)
        health = await command("lab", "a:1", "--admin", f"{here.url}/nowhere")
        assert (health.exit_code, "Not Found" in health.stderr) == (1, True)
    gone = await command("lab", "a:1", "--admin", here.url)
    assert (gone.exit_code, "Connection refused" in gone.stderr) == (3, True)
    wrong = await command("lab", "a:1", "--admin", "file:///etc/passwd")
    assert (wrong.exit_code, "expected a URL" in wrong.stderr) == (2, True)
