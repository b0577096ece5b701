"""The slots of a backend hold for all workers together."""

import asyncio
import os
import signal
from pathlib import Path

import orjson
import pytest

from gateway.core.tasks import spawn
from tests.interop import processes
from tests.interop.processes import free_port
from tests.runtime.workers.counted import Counted, counted
from tests.runtime.workers.served import Served, ended, post, serving

pytestmark = pytest.mark.long

CONFIG = """
workers: 4
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest]}]
reference: [{protocol: umbridge, bind: "127.0.0.1:REFERENCE", models: [double]}]
backends:
  lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:BACKEND"]}
routes: [{match: {model: "*"}, backend: lab}]
"""
CLIENTS = 64
EACH = 4


def config(backend: int, reference: int = 0) -> str:
    return CONFIG.replace("BACKEND", str(backend)).replace("REFERENCE", str(reference))


async def client(port: int, number: int) -> None:
    for call in range(EACH):
        body = orjson.dumps({"name": "double", "input": [[float(number), float(call), 1.0]], "config": {}})
        status, reply = await post(port, "/Evaluate", body)
        assert (status, orjson.loads(reply)) == (200, {"output": [[2.0 * number, 2.0 * call, 2.0]]}), reply


async def check_all_are_answered_one_by_one(gateway: Served, server: Counted) -> None:
    await asyncio.gather(*(client(gateway.ports["listener http"], number) for number in range(CLIENTS)))
    assert server.calls == CLIENTS * EACH
    assert server.most == 1


async def test_a_reference_server_never_has_two_calls_of_four_workers_and_64_clients(tmp_path: Path) -> None:
    reference = free_port()
    async with counted(reference) as server, serving(config(server.port, reference), tmp_path) as gateway:
        assert len(gateway.workers) == 4
        await check_all_are_answered_one_by_one(gateway, server)


@pytest.mark.real
async def test_a_real_umbridge_server_never_has_two_calls_of_four_workers_and_64_clients(tmp_path: Path) -> None:
    real = await asyncio.to_thread(processes.start_umbridge, tmp_path / "umbridge")
    try:
        port = int(real.url.rpartition(":")[2])
        async with counted(port) as server, serving(config(server.port), tmp_path) as gateway:
            await check_all_are_answered_one_by_one(gateway, server)
    finally:
        await asyncio.to_thread(real.stop)


async def test_the_slot_of_a_killed_worker_comes_back_and_only_its_connections_fail(tmp_path: Path) -> None:
    reference = free_port()
    async with counted(reference) as server, serving(config(server.port, reference), tmp_path) as gateway:
        port = gateway.ports["listener http"]
        await client(port, 1)
        before = gateway.workers
        server.holding.clear()
        server.arrived.clear()
        calls = [spawn(client(port, number)) for number in range(CLIENTS)]
        await server.arrived.wait()
        # Whichever worker holds the slot, killing all but one of them ends its call.
        _, *killed = sorted(before)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        server.holding.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        failed = [each for each in found if each is not None]
        assert all(isinstance(each, ConnectionError | asyncio.IncompleteReadError) for each in failed), failed
        assert 0 < len(failed) < CLIENTS
        await gateway.until_workers(4)
        assert not set(killed) & gateway.workers
        await asyncio.gather(*(client(port, number) for number in range(CLIENTS)))


async def test_no_call_is_lost_while_reloads_exchange_backends_and_endpoints(tmp_path: Path) -> None:
    """The workers change later than the supervisor, which owns the slots."""
    reference = free_port()
    async with counted(reference) as one, counted(reference) as two:
        first = config(one.port, reference).replace("workers: 4", "workers: 2\nadmin: {bind: '127.0.0.1:0'}")
        both = f'endpoints: ["http://127.0.0.1:{one.port}", "http://127.0.0.1:{two.port}"]'
        second = first.replace(f'endpoints: ["http://127.0.0.1:{one.port}"]', both)
        texts = (second, second.replace("lab", "other"), first)
        async with serving(first, tmp_path) as gateway:
            ended = asyncio.Event()

            async def calling(number: int) -> None:
                while not ended.is_set():
                    await client(gateway.ports["listener http"], number)

            calls = [spawn(calling(number)) for number in range(16)]
            for text in texts * 3:
                (tmp_path / "gateway.yaml").write_text(text)
                assert (await post(gateway.ports["admin"], "/reload", b""))[0] == 200
            ended.set()
            await asyncio.gather(*calls)
        assert one.most == two.most == 1


async def test_workers_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    """The owner of all slots is gone: as in a gateway of one process, nothing is served until it is started again."""
    async with counted(free_port()) as server, serving(config(server.port, free_port()), tmp_path) as gateway:
        workers, port = gateway.workers, gateway.ports["listener http"]
        gateway.process.kill()
        await ended(workers)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await post(port, "/Evaluate", b"{}")
