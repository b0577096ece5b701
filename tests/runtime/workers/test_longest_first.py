"""The order in which a real UM-Bridge server gets the calls that have waited, by one process and by two workers."""

import asyncio
import json
from pathlib import Path

import orjson
import pytest

from gateway.core.tasks import spawn
from tests.interop import processes
from tests.limits import GENEROUS
from tests.runtime.workers.counted import counted
from tests.runtime.workers.served import get, post, serving

CONFIG = """
workers: WORKERS
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
admin: {bind: "127.0.0.1:0"}
backends:
  lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:BACKEND"], queue: {order: ORDER}}
routes: [{match: {model: "*"}, backend: lab}]
"""
COARSE, FINE = {"seconds": 0.0}, {"seconds": 0.3}
ASKED = [COARSE, COARSE, FINE, COARSE, FINE]


@pytest.mark.interop
@pytest.mark.parametrize(
    ("order", "workers", "expected"),
    [
        ("fair", 1, ASKED),
        ("longest_first", 1, [FINE, FINE, COARSE, COARSE, COARSE]),
        ("longest_first", 2, [FINE, FINE, COARSE, COARSE, COARSE]),
    ],
)
async def test_a_real_server_gets_the_longest_calls_first(
    order: str, workers: int, expected: list[object], tmp_path: Path
) -> None:
    real = await asyncio.to_thread(processes.start_umbridge, tmp_path / "umbridge")
    text = CONFIG.replace("WORKERS", str(workers)).replace("ORDER", order)
    try:
        port = int(real.url.rpartition(":")[2])
        async with (
            asyncio.timeout(GENEROUS),
            counted(port) as server,
            serving(text.replace("BACKEND", str(server.port)), tmp_path) as gateway,
        ):

            async def evaluate(config: object) -> None:
                body = orjson.dumps({"name": "slow", "input": [[2.0]], "config": config})
                status, reply = await post(gateway.ports["listener http"], "/Evaluate", body)
                assert (status, orjson.loads(reply)) == (200, {"output": [[4.0]]}), reply

            async def until_waiting(number: int) -> None:
                waiting = -1
                while waiting != number:
                    _, status = await get(gateway.ports["admin"], "/status")
                    waiting = json.loads(status)["backends"]["lab"]["waiting"]

            await evaluate(COARSE)
            await evaluate(FINE)
            server.holding.clear()
            server.arrived.clear()
            calls = [spawn(evaluate({"seconds": 0.001}))]
            await server.arrived.wait()
            before = len(server.bodies)
            for number, config in enumerate(ASKED, 1):
                calls.append(spawn(evaluate(config)))
                await until_waiting(number)
            server.holding.set()
            await asyncio.gather(*calls)
            assert [orjson.loads(body)["config"] for body in server.bodies[before:]] == expected
            assert server.most == 1
    finally:
        await asyncio.to_thread(real.stop)
