"""Calls of two lengths on four servers that the gateway starts, and what a call costs if each has a server of its own.

The mixed load is 248 calls of UM-Bridge, 24 of 1 s and 224 of 20 ms in a random order, from 16 or 64 clients at once:
four servers need 7.12 s at least. Nobody knows in advance how long a call takes. If all are calls of one model, servers
that are never idle while a call waits need the time `in order`: some of them wait for the last long call. If the long
calls are those of a model of their own, the fair queue gives both models their turns, so that the last long call starts
earlier: the more calls wait, the earlier.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import local
from time import perf_counter

from tests.interop.processes import Process, answers, eventually, free_port, start_gateway
from tests.servers.clusters import hyperqueue_cluster

TITLE = "mixed load on servers that the gateway starts"
OVERHEAD_TITLE = "mixed load: what a call costs beside its model"
AIM = 7.4
"""Seconds."""
SERVERS = 4
LONG, SHORT = (24, 1.0), (224, 0.02)
"""How many calls, and seconds of each."""
LEAST = (LONG[0] * LONG[1] + SHORT[0] * SHORT[1]) / SERVERS
ROUNDS = 3
CALLS = 20
"""One after the other, for each figure of the overhead."""
ONE, TWO = ("fast", "fast"), ("slow", "fast")
WAYS = {
    "one model, 16 clients": (ONE, 16),
    "two models, 16 clients": (TWO, 16),
    "two models, 64 clients": (TWO, 64),
}
"""The models of the long calls and of the short ones, and how many clients there are."""
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
    """Medians of some rounds, in seconds: of the load, and of ideal servers that take its calls in their order."""

    way: str
    seconds: float
    in_order: float

    def shown(self) -> str:
        return f"{self.way:44}{self.seconds:12.2f}{self.in_order:12.2f}{LEAST:12.2f}"


@dataclass(frozen=True)
class Overhead:
    """Milliseconds of a call whose model takes no time, one call after the other: the median."""

    way: str
    milliseconds: float

    def shown(self) -> str:
        return f"{self.way:44}{self.milliseconds:12.1f}"


def heading() -> str:
    return f"{TITLE}, s; aim {AIM}\n{'':44}{'seconds':>12}{'in order':>12}{'at least':>12}"


def overhead_heading() -> str:
    return f"{OVERHEAD_TITLE}, ms\n{'':44}{'median':>12}"


def measure(folder: Path, rounds: int) -> Iterator[Mixed]:
    """Each of WAYS on each engine."""
    for name, engine in _engines():
        with engine as keys, _gateway(folder / name, keys, SERVERS, f"min: {SERVERS}") as address:
            for way, (models, clients) in WAYS.items():
                orders = [_order(seed) for seed in range(min(rounds, ROUNDS))]
                seconds = [_run(address, order, models, clients) for order in orders]
                yield Mixed(f"{name}, {way}", median(seconds), median(map(in_order, orders)))


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
    clients.evaluate("fast", 0.0)
    return Overhead(way, 1e3 * median(clients.evaluate("fast", 0.0) for _ in range(CALLS)))


def in_order(seconds: Sequence[float]) -> float:
    """How long servers take that start each call, in this order, as soon as one of them is free."""
    free = [0.0] * SERVERS
    for each in seconds:
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def _order(seed: int) -> list[float]:
    calls = [LONG[1]] * LONG[0] + [SHORT[1]] * SHORT[0]
    random.Random(seed).shuffle(calls)
    return calls


def _engines() -> Iterator[tuple[str, AbstractContextManager[str]]]:
    yield "process", _process()
    yield "hyperqueue", _hyperqueue()


@contextmanager
def _process() -> Iterator[str]:
    yield "engine: process"


@contextmanager
def _hyperqueue() -> Iterator[str]:
    with hyperqueue_cluster(SERVERS) as directory:
        yield f'engine: hyperqueue, directory: "{directory}"'


@contextmanager
def _gateway(folder: Path, engine: str, most: int, keys: str) -> Iterator[str]:
    """The address of a gateway whose servers are there, as many as are kept."""
    address, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    text = CONFIG.format(
        address=address, admin=admin, engine=engine, python=sys.executable, server=SERVER, state=folder / "state",
        most=most, keys=keys,
    )  # fmt: skip
    kept = most if "min" in keys else 0

    def serve() -> bool:
        with urllib.request.urlopen(f"http://{admin}/status", timeout=10) as reply:
            servers = json.load(reply)["backends"]["lab"]["servers"]
        return len([each for each in servers if each["state"] == "serving"]) >= kept

    with ExitStack() as stack:
        stack.callback(start_gateway(text, folder / "gateway").stop)
        assert eventually(serve, 60), f"{kept} servers were expected"
        yield address


class _Clients:
    """Callers with a connection for each thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._own = local()

    def evaluate(self, model: str, seconds: float) -> float:
        """How long one Evaluate took."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(self._address, timeout=60)
        connection = self._own.connection
        body = json.dumps({"name": model, "input": [[seconds]], "config": {}})
        began = perf_counter()
        connection.request("POST", "/Evaluate", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        took = perf_counter() - began
        assert reply.status == 200, answer
        return took


def _run(address: str, order: Sequence[float], models: tuple[str, str], threads: int) -> float:
    """How long the load took."""
    clients = _Clients(address)
    with ThreadPoolExecutor(threads) as pool:
        began = perf_counter()
        list(pool.map(lambda each: clients.evaluate(models[each < LONG[1]], each), order))
        return perf_counter() - began
