"""Each worker has a cache of its own: all are emptied together, and counted together. So is what workers gather."""

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from tests.runtime.workers.served import Served, ended, get, post, serving
from tests.runtime.workers.test_shared_state import Server, listening

pytestmark = pytest.mark.long

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
backends:
  lab:
    {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"], safe: true,
     policies: [{gather: {models: ["*"]}}, {cache: {}}],
     health: {probe: none, ejection: {failures: 1, seconds: 0.01, max_ejected_share: 1.0}}}
routes: [{match: {model: "*"}, backend: lab}]
"""
MANY = 60
"""Connections of which the kernel gives some to each of two workers."""


@asynccontextmanager
async def serving_one(folder: Path) -> AsyncIterator[tuple[Served, Server]]:
    """A gateway of two workers before a server."""
    async with listening() as server, serving(CONFIG.replace("PORT", str(server.port)), folder) as gateway:
        yield gateway, server


async def infer(gateway: Served, number: int) -> int:
    question = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [number]}]}
    return (await post(gateway.ports["listener http"], "/v2/models/m/infer", orjson.dumps(question)))[0]


async def ask_both(gateway: Served, number: int) -> None:
    """Have both workers asked for the same, one request after the other."""
    assert [await infer(gateway, number) for _ in range(MANY)] == [200] * MANY


async def counted(gateway: Served, name: str) -> float:
    """The value of a metric of the cache."""
    page = (await get(gateway.ports["health"], "/metrics"))[1].decode()
    return sum(map(float, re.findall(rf"^{re.escape(name)} (\S+)$", page, re.M)))


async def test_the_caches_of_all_workers_are_counted_together(tmp_path: Path) -> None:
    async with serving_one(tmp_path) as (gateway, server):
        await ask_both(gateway, 1)
        assert server.calls == 2
        calls = 'gateway_cache_calls_total{outcome="%s",owner="backends.lab"}'
        assert await counted(gateway, calls % "miss") == 2
        assert await counted(gateway, calls % "hit") == MANY - 2
        assert await counted(gateway, 'gateway_cache_answers{owner="backends.lab"}') == 2
        alone = 'gateway_gather_requests_total{backend="lab",outcome="alone"}'
        assert await counted(gateway, alone) == MANY
        killed = min(gateway.workers)
        os.kill(killed, signal.SIGKILL)
        await ended({killed})
        while await counted(gateway, 'gateway_cache_answers{owner="backends.lab"}') != 1:
            pass  # the supervisor has not seen yet that the worker has gone
        assert await counted(gateway, calls % "hit") == MANY - 2
        assert await counted(gateway, alone) == MANY


async def test_a_recovery_that_one_worker_notices_empties_the_caches_of_all(tmp_path: Path) -> None:
    async with serving_one(tmp_path) as (gateway, server):
        await ask_both(gateway, 1)
        server.is_broken = True
        # Each worker finds the endpoint down itself, if the other's message has not told it before.
        assert 200 not in [await infer(gateway, 2) for _ in range(MANY)]
        server.is_broken = False
        while await infer(gateway, 3) != 200:  # one of them finds it up again
            pass
        before = server.calls
        while server.calls < before + 2:  # the other learns of it in a message: what it has in its cache makes no call
            await infer(gateway, 1)


async def test_the_caches_of_all_workers_are_cleared_by_the_status_api(tmp_path: Path) -> None:
    async with serving_one(tmp_path) as (gateway, server):
        for body in (b"", b'{"place": "backends.lab"}'):
            await ask_both(gateway, 1)
            before = server.calls
            assert await clear(gateway, body) == (200, {"places": ["backends.lab"]})
            await ask_both(gateway, 1)
            assert server.calls == before + 2
        status, reply = await clear(gateway, b'{"place": "backends.none"}')
        assert status == 404
        assert "unknown place of a policy `cache`: 'backends.none'" in str(reply["detail"])
        assert (await get(gateway.ports["admin"], "/cache/clear"))[0] == 405
        before = server.calls
        await ask_both(gateway, 1)
        assert server.calls == before


async def clear(gateway: Served, body: bytes) -> tuple[int, dict[str, object]]:
    """Status and JSON of the reply to `POST /cache/clear`."""
    status, reply = await post(gateway.ports["admin"], "/cache/clear", body, "application/json" if body else "")
    return status, orjson.loads(reply)
