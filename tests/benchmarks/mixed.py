"""Calls of two lengths on four servers that the gateway starts, and what a call costs if each has a server of its own.

The mixed load is 248 calls of one model of UM-Bridge, 24 of 1 s and 224 of 20 ms in a random order, from 64 clients:
four servers need 7.12 s at least. A client sends its next call when it has the answer to its last one.

The column `ideal` is the time of ideal servers that take the calls as they come, and need no time between two calls.
"""

from __future__ import annotations

import heapq
import http.client
import json
import random
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import local
from time import perf_counter

from tests.benchmarks.servers import own_address, own_gateway
from tests.interop.processes import Process, answers, eventually, free_port
from tests.servers.clusters import hyperqueue_cluster

TITLE = "mixed load on servers that the gateway starts"
OVERHEAD_TITLE = "mixed load: what a call costs beside its model"
SERVERS, CLIENTS = 4, 64
LONG, SHORT = (24, 1.0), (224, 0.02)
"""How many calls, and seconds of each."""
LEAST = (LONG[0] * LONG[1] + SHORT[0] * SHORT[1]) / SERVERS
ROUNDS = 3
CALLS = 20
"""One after the other, for each figure of the overhead."""
SERVER = Path(__file__).with_name("sleeping_server.py")

CONFIG = """
listeners: [{{name: http, bind: "{address}", protocols: [umbridge]}}]
admin: {{bind: "{admin}"}}
backends:
  lab:
    protocol: umbridge
    servers: {{{engine}, command: ["{python}", "{server}", "{{port}}"], state: "{state}", max: {most}, {keys}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""


@dataclass(frozen=True)
class Mixed:
    """The seconds of the load in some rounds, and the median of ideal servers."""

    engine: str
    seconds: tuple[float, ...]
    ideal: float

    def shown(self) -> str:
        figures = f"{median(self.seconds):10.2f}{max(self.seconds):10.2f}{self.ideal:10.2f}{LEAST:10.2f}"
        return f"{self.engine:20}{figures}"


@dataclass(frozen=True)
class Overhead:
    """Milliseconds of a call whose model takes no time, one call after the other: the median."""

    way: str
    milliseconds: float

    def shown(self) -> str:
        return f"{self.way:44}{self.milliseconds:12.1f}"


def heading() -> str:
    return f"{TITLE}, s\n{'':20}{'median':>10}{'longest':>10}{'ideal':>10}{'at least':>10}"


def overhead_heading() -> str:
    return f"{OVERHEAD_TITLE}, ms\n{'':44}{'median':>12}"


def measure(folder: Path, rounds: int) -> Iterator[Mixed]:
    """The load on each engine, with one order of calls after the other."""
    loads = [_load(seed) for seed in range(min(rounds, ROUNDS))]
    for name, engine in _engines():
        with engine as keys, _gateway(folder / name, keys, SERVERS, f"min: {SERVERS}") as address:
            seconds = tuple(_run(address, load) for load in loads)
            yield Mixed(name, seconds, median(map(ideal, loads)))


def overheads(folder: Path) -> Iterator[Overhead]:
    """A server without a gateway, one that is kept, and one for each call."""
    port = free_port()
    server = Process([sys.executable, str(SERVER), str(port)], folder / "server")
    try:
        server.wait_until(lambda: answers(f"http://127.0.0.1:{port}/Info"), 30)
        yield _overhead("a server without a gateway", f"127.0.0.1:{port}")
    finally:
        server.stop()
    for name, engine in _engines():
        with engine as keys:
            for way, kept in (("a server that is kept", "min: 1"), ("one job for each call", "calls_per_server: 1")):
                with _gateway(folder / name / way.replace(" ", "-"), keys, 1, kept) as address:
                    yield _overhead(f"{name}, {way}", address)


def _overhead(way: str, address: str) -> Overhead:
    clients = _Clients(address)
    body = _body(0.0)
    clients.evaluate(body)
    return Overhead(way, 1e3 * median(clients.evaluate(body) for _ in range(CALLS)))


def ideal(load: Sequence[float]) -> float:
    """How long ideal servers take for the calls of `load`, by their seconds. There are more clients than servers: as
    long as there are calls, one waits for each server that gets free."""
    free_at = [0.0] * SERVERS
    for seconds in load:
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)


def _body(seconds: float) -> bytes:
    """The body of an Evaluate that takes so long."""
    return json.dumps({"name": "sleeping", "input": [[seconds]], "config": {}}).encode()


def _load(seed: int) -> list[float]:
    calls = [LONG[1]] * LONG[0] + [SHORT[1]] * SHORT[0]
    random.Random(seed).shuffle(calls)
    return calls


def _engines() -> Iterator[tuple[str, AbstractContextManager[str]]]:
    yield "process", nullcontext("engine: process")
    yield "hyperqueue", _hyperqueue()


@contextmanager
def _hyperqueue() -> Iterator[str]:
    with hyperqueue_cluster(SERVERS) as directory:
        yield f'engine: hyperqueue, directory: "{directory}"'


@contextmanager
def _gateway(folder: Path, engine: str, most: int, keys: str) -> Iterator[str]:
    """The address of a gateway whose servers are there, as many as are kept."""
    admin, kept = own_address(), most if "min" in keys else 0

    def serve() -> bool:
        with urllib.request.urlopen(f"http://{admin}/status", timeout=10) as reply:
            servers = json.load(reply)["backends"]["lab"]["servers"]
        return len([each for each in servers if each["state"] == "serving"]) >= kept

    with ExitStack() as stack:
        gateway = own_gateway(
            CONFIG, folder / "gateway", stack, admin=admin, engine=engine, python=sys.executable, server=SERVER,
            state=folder / "state", most=most, keys=keys,
        )  # fmt: skip
        assert eventually(serve, 60), f"{kept} servers were expected"
        yield gateway.address


class _Clients:
    """Callers with a connection for each thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._own = local()

    def evaluate(self, body: bytes) -> float:
        """How long one Evaluate took."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(self._address, timeout=60)
        connection = self._own.connection
        began = perf_counter()
        connection.request("POST", "/Evaluate", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        took = perf_counter() - began
        assert reply.status == 200, answer
        return took


def _run(address: str, load: Sequence[float]) -> float:
    """How long the load took."""
    clients = _Clients(address)
    with ThreadPoolExecutor(CLIENTS) as pool:
        began = perf_counter()
        list(pool.map(clients.evaluate, map(_body, load)))
        return perf_counter() - began
