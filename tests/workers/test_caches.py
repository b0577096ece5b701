"""Each worker has a cache of its own: all of them are emptied together, and counted together."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import orjson

from tests.workers.served import Served, get, post, serving
from tests.workers.test_shared_state import Server

CONFIG = """
workers: 2
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
backends:
  lab:
    {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"], safe: true, policies: [{cache: {}}],
     health: {probe: none, ejection: {failures: 1, seconds: 0.01, most: 1.0}}}
routes: [{match: {model: "*"}, backend: lab}]
"""
MANY = 60
"""Connections of which the kernel gives some to each of two workers."""


@asynccontextmanager
async def serving_one(folder: Path) -> AsyncIterator[tuple[Served, Server]]:
    """A gateway of two workers before a server."""
    async with AsyncExitStack() as stack:
        server = Server()
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        stack.push_async_callback(server.close)
        stack.callback(listening.close)
        port = listening.sockets[0].getsockname()[1]
        yield await stack.enter_async_context(serving(CONFIG.replace("PORT", str(port)), folder)), server


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
        calls = 'gateway_cache_calls_total{outcome="%s",place="backends.lab"}'
        assert await counted(gateway, calls % "miss") == 2
        assert await counted(gateway, calls % "hit") == MANY - 2
        assert await counted(gateway, 'gateway_cache_answers{place="backends.lab"}') == 2


async def test_a_recovery_that_one_worker_notices_empties_the_caches_of_all(tmp_path: Path) -> None:
    async with serving_one(tmp_path) as (gateway, server):
        await ask_both(gateway, 1)
        server.is_broken = True
        assert await infer(gateway, 2) != 200  # the worker that asks finds the endpoint down
        server.is_broken = False
        while await infer(gateway, 3) != 200:  # and one of them that it is up again
            pass
        before = server.calls
        await ask_both(gateway, 1)
        assert server.calls == before + 2
