"""Servers with different models behind several workers: all of them know which server has which model."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from tests.limits import GENEROUS, until
from tests.peers.fleet_client import CallFailed, Rest
from tests.peers.fleet_models import FleetModels
from tests.peers.fleet_server import serve
from tests.runtime.workers.served import Served, ended, get, serving

pytestmark = pytest.mark.long

CONFIG = """
workers: 3
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest], allow_control: true}]
admin: {bind: "127.0.0.1:0"}
backends:
  fleet: {protocol: v2-rest, endpoints: ENDPOINTS, safe: true, placement: {PLACEMENT, interval: 0.2}}
routes: [{match: {model: "*"}, backend: fleet}]
"""
MODELS = [f"m{number}" for number in range(6)]
CLIENTS, KILLS = 8, 3


@pytest.fixture(autouse=True)
async def threads() -> None:
    """Clients wait in threads, more of them than the loop has by itself."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))


@asynccontextmanager
async def fleet(folder: Path, placement: str, *models: FleetModels) -> AsyncIterator[Served]:
    """A gateway of three workers before servers with these models."""
    with ExitStack() as stack:
        endpoints = [stack.enter_context(serve(each)).http for each in models]
        text = CONFIG.replace("ENDPOINTS", str(endpoints)).replace("PLACEMENT", placement)
        async with serving(text, folder) as gateway:
            yield gateway


def preloaded(*names: str) -> FleetModels:
    models = FleetModels(MODELS)
    models.preload(*names)
    return models


def ask(port: int, model: str) -> None:
    """A request on a connection of its own, which any worker may get; the model itself has to answer it.

    Raises CallFailed for an error.
    """
    client = Rest(f"127.0.0.1:{port}")
    try:
        assert client.infer(model, [1.0]) == (model, [1.0])
    finally:
        client.close()


def states(port: int) -> dict[str, str]:
    """The state of each model in the list of any worker."""
    client = Rest(f"127.0.0.1:{port}")
    try:
        return {each["name"]: each.get("state", "") for each in client.index()}
    finally:
        client.close()


async def until_all_say(port: int, model: str, state: str) -> None:
    """Wait until each of many new connections is told this state of a model."""
    async with asyncio.timeout(GENEROUS):
        while {(await asyncio.to_thread(states, port)).get(model) for _ in range(8)} != {state}:
            pass


async def test_requests_of_all_workers_go_to_holders_only(tmp_path: Path) -> None:
    one, other = preloaded("m0", "m1"), preloaded("m1", "m2")
    async with fleet(tmp_path, "loading: never", one, other) as gateway:
        port = gateway.ports["listener http"]
        await asyncio.gather(*(asyncio.to_thread(ask, port, model) for model in ("m0", "m1", "m2") * 12))
        assert [dict(each.missed) for each in (one, other)] == [{}, {}]
        assert (one.calls["m0"], other.calls["m2"], one.calls["m1"] + other.calls["m1"]) == (12, 12, 12)
        with pytest.raises(CallFailed, match="model 'm5' is on no server"):
            await asyncio.to_thread(ask, port, "m5")
        found = await asyncio.to_thread(states, port)
        assert [name for name, state in found.items() if state == "READY"] == ["m0", "m1", "m2"]


async def test_a_model_that_a_server_has_lost_is_asked_for_elsewhere_by_all_workers(tmp_path: Path) -> None:
    one, other = preloaded("m0"), preloaded("m0")
    async with fleet(tmp_path, "loading: never", one, other) as gateway:
        one.forget("m0")
        for _ in range(12):
            await asyncio.to_thread(ask, gateway.ports["listener http"], "m0")
        assert one.missed["m0"] <= 1  # one worker was told, and then all knew
        assert other.calls["m0"] == 12


async def test_what_a_client_of_one_worker_loads_and_unloads_is_known_to_all(tmp_path: Path) -> None:
    async with fleet(tmp_path, "loading: never", FleetModels(MODELS)) as gateway:
        port = gateway.ports["listener http"]
        await until_all_say(port, "m3", "UNAVAILABLE")
        client = Rest(f"127.0.0.1:{port}")
        await asyncio.to_thread(client.load, "m3")
        await until_all_say(port, "m3", "READY")
        await asyncio.gather(*(asyncio.to_thread(ask, port, "m3") for _ in range(12)))
        await asyncio.to_thread(client.unload, "m3")
        await until_all_say(port, "m3", "UNAVAILABLE")
        client.close()


async def test_models_are_loaded_once_and_change_places_while_workers_are_killed(tmp_path: Path) -> None:
    """What a killed worker had in flight is not counted for ever: else its models could never make room."""
    servers = [FleetModels(MODELS, most=2) for _ in range(2)]
    async with fleet(tmp_path, "loading: on_demand, max_models: 2", *servers) as gateway:
        port = gateway.ports["listener http"]
        await asyncio.gather(*(asyncio.to_thread(ask, port, "m0") for _ in range(CLIENTS)))
        assert sum(each.loads["m0"] for each in servers) == 1
        is_over = asyncio.Event()
        answered = [0]
        errors: list[CallFailed] = []

        async def calling(number: int) -> None:
            randomly = random.Random(number)
            while not is_over.is_set():
                try:
                    await asyncio.to_thread(ask, port, randomly.choice(MODELS))
                    answered[0] += 1
                except CallFailed as error:
                    errors.append(error)

        calls = [asyncio.ensure_future(calling(number)) for number in range(CLIENTS)]
        for number in range(KILLS):
            await until(lambda target=answered[0] + 16: answered[0] >= target)  # type: ignore[misc]
            killed = set(random.Random(number).sample(sorted(gateway.workers), 2))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            await ended(killed)
            await gateway.until_workers(3)
        is_over.set()
        await asyncio.gather(*calls)
        await until_accepts(port)  # all three may have been killed, two of them while they started
        assert [each for each in errors if each.status] == []  # nothing but connections that broke off
        for model in MODELS * 2:
            await asyncio.to_thread(ask, port, model)
        assert max(each.highest for each in servers) <= 2
        status = orjson.loads((await get(gateway.ports["admin"], "/status"))[1])["backends"]["fleet"]
        assert status["waiting"] == 0
        assert [each["in_flight"] for each in status["endpoints"]] == [0, 0]


async def until_accepts(port: int) -> None:
    """Wait until a worker listens."""
    async with asyncio.timeout(GENEROUS):
        while True:
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.01)
