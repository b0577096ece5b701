"""Probes find servers that hang, die and come back, without any call of a client. The servers are processes of their
own: paused with SIGSTOP, killed with SIGKILL, started again at the same address."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from sys import executable

import pytest

from gateway.routing.endpoint import Endpoint
from gateway.runtime.app import Gateway
from tests.interop.processes import Process, free_port
from tests.limits import GENEROUS, until
from tests.paused_server import ask, get, port_of
from tests.running_gateway import reference, running_gateway
from tests.runtime.app.test_gateway import grpc_health
from tests.test_hung_servers import SIGNATURE, infer

PROTOCOLS = {
    "v1-rest": "flavor: kserve",
    "v2-rest": "flavor: plain",
    "v2-grpc": "",
    "graphpipe": "",
    "umbridge": "",
    "mip": "",
    "grps-rest": "",
    "grps-grpc": "",
    "grps-brpc": "",
}
HEALTH = "{interval: 0.05, timeout: 0.5, unhealthy: 2}"


class Servers:
    """A reference server of each protocol, all in one process."""

    def __init__(self, folder: Path, protocols: Iterable[str]) -> None:
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in protocols}
        self._folder = folder
        self.start()

    def start(self) -> None:
        text = 'listeners: [{name: unused, bind: "127.0.0.1:0", protocols: [v2-rest]}]\nreference:\n'
        for name, address in self.addresses.items():
            text += f'- {{protocol: {name}, bind: "{address}", models: [posterior]}}\n'
        (self._folder / "servers.yaml").write_text(text)
        command = [executable, "-m", "gateway", "serve", "--config", str(self._folder / "servers.yaml")]
        self._process = Process(command, self._folder)

    def wait(self) -> None:
        self._process.wait_until(lambda: "\nready" in self._process.stdout(), seconds=GENEROUS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)

    def stop(self) -> None:
        self._process.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("servers"), PROTOCOLS)
    try:
        started.wait()
        yield started
    finally:
        started.stop()


@asynccontextmanager
async def running(addresses: Mapping[str, str | list[str]]) -> AsyncIterator[Gateway]:
    """A gateway that probes servers of these protocols."""
    text = """
ready: all
listeners:
- {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
- {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
health: {bind: "127.0.0.1:0", ready: all}
backends:
"""
    for name, address in addresses.items():
        endpoints = json.dumps([address] if isinstance(address, str) else address)
        text += f"  {name}:\n    protocol: {name}\n    endpoints: {endpoints}\n    health: {HEALTH}\n"
        text += f"    {PROTOCOLS[name]}\n"
    text += "routes:\n"
    for name in addresses:
        text += f"  - match: {{model: {name}}}\n    backend: {name}\n    {SIGNATURE}\n"
        text += "    rewrite: {model: posterior}\n"
    async with running_gateway(text) as gateway:
        yield gateway


def states(gateway: Gateway) -> dict[str, str]:
    """Of the first endpoint of each backend."""
    return {name: each.endpoints[0].state for name, each in gateway.state.status().backends.items()}


async def until_all_are(gateway: Gateway, state: str) -> None:
    await until(lambda: set(states(gateway).values()) == {state})


async def test_a_server_that_hangs_is_down_and_up_again_without_any_call(servers: Servers) -> None:
    async with running(servers.addresses) as gateway:
        await until_all_are(gateway, "up")
        with servers.paused():
            await until_all_are(gateway, "down")
            for backend in gateway.state.status().backends.values():
                (endpoint,) = backend.endpoints
                assert endpoint.last_error
                assert endpoint.last_error.text == "probe: no answer within 0.5 s"
                assert endpoint.ejected_until is None
        await until_all_are(gateway, "up")
        assert {each.health.answers for each in gateway.state.assembly.endpoints.values()} == {0}  # there was no call


async def test_no_call_goes_to_a_server_that_probes_found_while_another_one_works(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = Endpoint.probe_failed

    def fail_if_paused(endpoint: Endpoint, why: str, unhealthy: int, *, refused: bool) -> None:
        if endpoint.address in servers.addresses.values():  # on a busy machine, others can be late twice
            fail(endpoint, why, unhealthy, refused=refused)

    monkeypatch.setattr(Endpoint, "probe_failed", fail_if_paused)
    async with AsyncExitStack() as stack:
        addresses = {}
        for name, address in servers.addresses.items():
            addresses[name] = [address, await stack.enter_async_context(reference(name, "posterior"))]
        gateway = await stack.enter_async_context(running(addresses))
        await until_all_are(gateway, "up")
        with servers.paused():
            await until_all_are(gateway, "down")
            for name in PROTOCOLS:
                assert [await infer(gateway, name) for _ in range(10)] == [200] * 10, name
                paused, works = gateway.state.assembly.backends[name].endpoints
                assert (paused.health.answers, works.health.state.value) == (0, "up")
        await until_all_are(gateway, "up")


async def ready(gateway: Gateway) -> tuple[bool, bool, bool]:
    """As told by V2's readiness, by `/readyz` and by gRPC's health service."""
    http, health = gateway.state.listeners["http"].address, gateway.ports.all["health"].address
    told = [await ask(port_of(http), get("/v2/health/ready")), await ask(port_of(health), get("/readyz"))]
    v2, readyz = (reply.startswith(b"HTTP/1.1 200 ") for reply in told)
    return v2, readyz, await grpc_health(gateway.state.listeners["grpc"].address) == b"\x08\x01"


@pytest.mark.long
async def test_a_server_that_was_killed_is_used_again_once_it_is_back(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.routing")
    async with running(servers.addresses) as gateway:
        while await ready(gateway) != (True, True, True):
            pass
        servers.kill()
        await until_all_are(gateway, "down")
        while await ready(gateway) != (False, False, False):
            pass
        servers.stop()
        servers.start()
        await until_all_are(gateway, "up")
        while await ready(gateway) != (True, True, True):
            pass
        for name in PROTOCOLS:
            assert await infer(gateway, name) == 200, name
    for name, address in servers.addresses.items():
        lines = [each.getMessage() for each in caplog.records if address in each.getMessage()]
        place = f"endpoint {address} of backend {name!r}"
        assert lines[0] == f"{place} is up: it answered a probe"
        down = lines.index(f"{place} is down: probe: connection refused")
        assert f"{place} is up again: it answered a probe" in lines[down:]


async def test_a_server_that_is_busy_with_a_call_is_late_and_not_down(servers: Servers) -> None:
    """While a paused server that is idle goes down, one of a kind that computes a call to its end does not if it has
    one, and its answer arrives."""
    busy = ("umbridge", "mip")
    async with running({name: servers.addresses[name] for name in (*busy, "v2-rest")}) as gateway:
        await until_all_are(gateway, "up")
        with servers.paused():
            calls = [asyncio.ensure_future(infer(gateway, name)) for name in busy]
            await until(lambda: all(gateway.state.status().backends[name].endpoints[0].in_flight for name in busy))
            await until(lambda: states(gateway)["v2-rest"] == "down")
            told = states(gateway)
        assert await asyncio.gather(*calls) == [200, 200]
        assert "down" not in (told["umbridge"], told["mip"])
