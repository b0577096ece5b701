"""64 clients at once -> gateway with `gather` -> a Python server, for some seconds: rows fail, clients leave, deadlines
pass, and each client gets its own answer or its own error."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from sys import executable

import numpy as np
from numpy.typing import NDArray

from gateway.client import AsyncClient, Outputs
from gateway.client.errors import ServerError, Timeout
from tests.interop.processes import Process
from tests.limits import until
from tests.paused_server import port_of
from tests.running_gateway import running_gateway
from tests.test_hung_servers import address

MODEL = """
import asyncio

from gateway.reference import signature


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
async def double(x):
    await asyncio.sleep(0.003)
    if (x < 0).any():
        raise ValueError("a number below 0")
    return 2 * x
"""
CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}
backends:
  lab:
    protocol: v2-rest
    endpoints: ["{address}"]
    flavor: plain
    safe: true
    policies: [{{timeout: {{seconds: 20}}}}, {{gather: {{rows: 32, models: [double]}}}}]
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""
CLIENTS, SECONDS = 64, 4.0
KINDS = ("answered", "failed", "left", "late")
EXPECTED = {"stays": {"answered"}, "fails": {"failed"}, "leaves": {"left", "answered"}, "is late": {"late", "answered"}}


async def client(url: str, number: int, deadline: float, ended: Counter[str]) -> None:
    """Call until then, and until each of KINDS was seen; every seventh client sends rows that fail."""
    chance, loop = random.Random(number), asyncio.get_running_loop()
    async with AsyncClient(url) as connected:
        call = 0
        while loop.time() < deadline or not all(ended[each] for each in KINDS):
            call += 1
            rows = 1 if url.startswith("umbridge") else chance.randint(1, 3)
            x = np.full((rows, 2), 1e6 * number + call)
            x[:, 1] += 0.25
            what = chance.choices(("stays", "fails", "leaves", "is late"), (80, 5 * (number % 7 == 0), 10, 10))[0]
            if what == "fails":
                x[-1, 1] = -1.0
            seconds = chance.uniform(0.0005, 0.01) if what == "is late" else 20.0
            asked = asyncio.ensure_future(connected.infer("double", x, timeout=seconds))
            if what == "leaves":
                loop.call_later(chance.uniform(0, 0.01), asked.cancel)
            found = await outcome(asked, 2 * x)
            assert found in EXPECTED[what], (what, found)
            ended[found] += 1


async def outcome(asked: asyncio.Future[Outputs], expected: NDArray[np.float64]) -> str:
    """What became of a call."""
    try:
        [y] = (await asked).values()
    except asyncio.CancelledError:
        return "left"
    except Timeout:
        return "late"
    except ServerError as error:
        return "failed" if "a number below 0" in str(error) else str(error)
    return "answered" if y.tolist() == expected.tolist() else f"an answer that is not its own: {y}"


async def test_each_client_gets_its_own_answer_while_rows_fail_clients_leave_and_deadlines_pass(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(MODEL)
    command = [executable, "-m", "gateway", "reference", "--protocol", "v2-rest", "--bind", "127.0.0.1:0"]
    server = Process([*command, "--model", "doubling:double"], tmp_path)
    try:
        text = CONFIG.format(address=await asyncio.to_thread(address, server))
        async with running_gateway(text) as gateway:
            http, grpc = (port_of(gateway.state.listeners[each].address) for each in ("http", "grpc"))
            urls = [f"umbridge://127.0.0.1:{http}", f"v2-rest://127.0.0.1:{http}", f"v2-grpc://127.0.0.1:{grpc}"]
            ended: Counter[str] = Counter()
            deadline = asyncio.get_running_loop().time() + SECONDS
            async with asyncio.TaskGroup() as clients:
                for number in range(CLIENTS):
                    clients.create_task(client(urls[number % 3], number, deadline, ended))
            [(_, _, counts)] = gateway.state.policy_states
            assert int(str(counts["joined"])) > ended["answered"] / 4
            assert counts["unsplittable"] == 0
            async with AsyncClient(urls[1]) as last:
                assert (await last.infer("double", [[1.0, 2.0]]))["y"].tolist() == [[2.0, 4.0]]
            await until(lambda: not gateway.state.status().backends["lab"].endpoints[0].in_flight)
    finally:
        server.stop()
