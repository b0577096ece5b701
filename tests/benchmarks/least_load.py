"""Unequal calls on unequal servers: how long they take where calls go to the server with the fewest in flight, and
where they go to the one that says it is least busy.

Three servers with two instances each, of which one is three times slower; nine of ten calls take 30 ms, the tenth
300 ms. Nobody tells the gateway either. Calls come at random times (a Poisson process) at a share of what the servers
can do, the same calls for both strategies, in turns; then from CLIENTS clients, each with one call at a time.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from tests.attacks.clients import post
from tests.benchmarks.servers import own_gateway
from tests.benchmarks.unequal_servers import INSTANCES, SECONDS
from tests.interop.processes import Process, free_port

TITLE = "unequal calls on unequal servers"
STRATEGIES = ("least_in_flight", "least_load")
SLOWNESS = (1, 1, 3)
HEAVY = 0.1
"""The share of the heavy calls."""
LOADS = (0.4, 0.6, 0.8)
"""The share of what the servers can do at most."""
CLIENTS = 24
ROUND, WARM_UP = 10.0, 3.0
"""Seconds."""
CAPACITY = sum(INSTANCES / each for each in SLOWNESS) / ((1 - HEAVY) * SECONDS["light"] + HEAVY * SECONDS["heavy"])
MOST_ROUNDS = 3
SERVER = Path(__file__).with_name("unequal_servers.py")

CONFIG = """
listeners: [{{name: in, bind: "{address}", protocols: [v2-rest]}}]
backends:
  lab: {{protocol: v2-rest, flavor: triton, endpoints: [{endpoints}], balance: {balance}}}
routes: [{{match: {{}}, backend: lab}}]
"""
BODY = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'


@dataclass(frozen=True)
class Taken:
    """The milliseconds of the calls of one row, and how many were answered in a second."""

    row: str
    median: float
    slowest: float
    mean: float
    answered: float

    def shown(self) -> str:
        return f"{self.row:50}{self.median:10.1f}{self.slowest:10.1f}{self.mean:10.1f}{self.answered:10.1f}"


def heading() -> str:
    return f"{TITLE}, ms\n{'':50}{'p50':>10}{'p99':>10}{'mean':>10}{'calls/s':>10}"


def measure(folder: Path, rounds: int) -> Iterator[Taken]:
    """Each load with each strategy."""
    rounds = min(rounds, MOST_ROUNDS)
    with ExitStack() as stack:
        gateways = _started(folder, stack)
        for load in LOADS:
            found: dict[str, list[float]] = {each: [] for each in STRATEGIES}
            for seed in range(rounds):
                for strategy in STRATEGIES:
                    found[strategy] += asyncio.run(_arriving(gateways[strategy], load, seed))
            for strategy, seconds in found.items():
                rate = len(seconds) / (ROUND * rounds)
                yield _taken(f"{strategy}, at {load:.0%} of the capacity", seconds, rate)
        for strategy in STRATEGIES:
            seconds = [each for _ in range(rounds) for each in asyncio.run(_asking(gateways[strategy]))]
            yield _taken(f"{strategy}, {CLIENTS} clients", seconds, len(seconds) / (ROUND * rounds))


def _taken(row: str, seconds: list[float], rate: float) -> Taken:
    shares = quantiles(seconds, n=100)
    return Taken(row, 1e3 * shares[49], 1e3 * shares[98], 1e3 * sum(seconds) / len(seconds), rate)


def _started(folder: Path, stack: ExitStack) -> dict[str, str]:
    """A gateway for each strategy, in front of the same servers."""
    ports = [(each, free_port(), free_port()) for each in SLOWNESS]
    servers = Process([sys.executable, str(SERVER), *(":".join(map(str, each)) for each in ports)], folder / "servers")
    stack.callback(servers.stop)
    servers.wait_until(lambda: "ready" in servers.stdout(), 30)
    found = {}
    for balance in STRATEGIES:
        page = ', load_url: "http://127.0.0.1:{}/metrics"' if balance == "least_load" else ""
        endpoints = ", ".join(f'{{address: "127.0.0.1:{port}"{page.format(pages)}}}' for _, port, pages in ports)
        found[balance] = own_gateway(CONFIG, folder / balance, stack, endpoints=endpoints, balance=balance).address
    return found


class _Caller:
    """Sends calls, each on a connection that is free."""

    def __init__(self, address: str) -> None:
        self._host, self._port = address.split(":")
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self, model: str) -> float:
        """How many seconds one call took."""
        began = asyncio.get_running_loop().time()
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        writer.write(post(f"/v2/models/{model}/infer", BODY))
        reply = await reader.readuntil(b"\r\n\r\n")
        assert reply.startswith(b"HTTP/1.1 200 "), reply
        size = next(line for line in reply.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(size.partition(b":")[2]))
        self._free.append((reader, writer))
        return asyncio.get_running_loop().time() - began

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


async def _arriving(address: str, load: float, seed: int) -> list[float]:
    """The seconds of calls that come at random times; those of the beginning are left out."""
    chance, loop, caller = random.Random(seed), asyncio.get_running_loop(), _Caller(address)
    at = begun = loop.time()
    running, counted = list[asyncio.Task[float]](), list[asyncio.Task[float]]()
    while at < begun + WARM_UP + ROUND:
        at += chance.expovariate(load * CAPACITY)
        await asyncio.sleep(max(at - loop.time(), 0.0))
        call = loop.create_task(caller.call(_model(chance)))
        (counted if at > begun + WARM_UP else running).append(call)
    await asyncio.gather(*running)
    found = await asyncio.gather(*counted)
    caller.close()
    return found


async def _asking(address: str) -> list[float]:
    """The seconds of the calls of clients that send one when the last one is answered."""
    loop, caller, found = asyncio.get_running_loop(), _Caller(address), list[float]()
    begun = loop.time()

    async def ask(seed: int) -> None:
        chance = random.Random(seed)
        while loop.time() < begun + WARM_UP + ROUND:
            seconds = await caller.call(_model(chance))
            if begun + WARM_UP < loop.time() < begun + WARM_UP + ROUND:
                found.append(seconds)

    await asyncio.gather(*map(ask, range(CLIENTS)))
    caller.close()
    return found


def _model(chance: random.Random) -> str:
    return "heavy" if chance.random() < HEAVY else "light"
