"""What a request costs as the configuration and the number of connections grow: the CPU of a gateway with 1,000 routes,
200 backends or 10,000 idle connections by that of one with a single route, in turns; the same of nginx and Envoy with
routes and backends; and the memory of an idle connection."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.attacks.clients import post
from tests.attacks.probe import BODY
from tests.benchmarks.contest.generator import Load
from tests.benchmarks.contest.measure import Generator, generator
from tests.benchmarks.contest.process import Watched
from tests.benchmarks.contest.sides import MissingError, Started
from tests.benchmarks.growth.holder import held
from tests.benchmarks.growth.proxies import PROXIES, Start, path
from tests.benchmarks.servers import Server
from tests.interop.processes import Process, clean_environment, free_port, start_gateway
from tests.peers.build import ROOT

ROUTES, BACKENDS, IDLE, MANY = 1000, 200, 10_000, 256
COST_AIM = 1.05
"""Times the CPU of a request to the gateway with one route."""
MEMORY_AIM = 10
"""KiB of resident memory for each idle connection."""
SECONDS, IN_FLIGHT = 0.4, 16

HEAD = """
limits: {{connections: 15000}}
listeners: [{{name: http, bind: "{address}", protocols: [v2-rest]}}]
"""


@dataclass(frozen=True)
class Cost:
    """Microseconds of CPU per request, the medians; and the median of the pairs' ratios."""

    row: str
    one: float
    grown: float
    ratio: float

    def shown(self) -> str:
        return f"{self.row:60}{self.one:10.1f}{self.grown:10.1f}{self.ratio:8.3f}"


@dataclass(frozen=True)
class Missing:
    """A row of a program that is not installed; `install` is the line that installs it."""

    row: str
    install: str

    def shown(self) -> str:
        return f"{self.row:60}  missing: {self.install}"


@dataclass(frozen=True)
class Idle:
    row: str
    each: float
    """KiB."""

    def shown(self) -> str:
        return f"{self.row:60}{'':10}{self.each:10.1f}{self.each / MEMORY_AIM:8.2f}"


def heading(rounds: int) -> str:
    title = f"CPU per request, us; {rounds} pairs; aim {COST_AIM}"
    return f"{title:60}{'one':>10}{'grown':>10}{'ratio':>8}"


def memory_heading() -> str:
    title = f"memory of an idle connection, {IDLE:,} of them"
    return f"{title:60}{'':10}{'KiB each':>10}{f'by {MEMORY_AIM}':>8}"


def configuration(address: str, server: str, routes: int, backends: int) -> str:
    """`routes`, each for a model of its own, to `backends` in turns: all are the server at that port, each by an
    address of its own."""
    lines = [HEAD.format(address=address), "backends:"]
    for at, endpoint in enumerate(endpoints(server, backends)):
        lines.append(f'  b{at}: {{protocol: v2-rest, flavor: plain, endpoints: ["{endpoint}"]}}')
    lines.append("routes:")
    for at in range(routes):
        lines.append(f"  - {{match: {{model: m{at}}}, backend: b{at % backends}, rewrite: {{model: identity}}}}")
    return "\n".join(lines) + "\n"


def endpoints(server: str, backends: int) -> list[str]:
    """Addresses of the server, as many as there are backends."""
    port = server.rpartition(":")[2]
    return [f"127.0.{at // 250}.{at % 250 + 1}:{port}" for at in range(backends)]


def wide_server(folder: Path, stack: ExitStack) -> str:
    """A model server at every address of loopback; the one that is returned is the first."""
    port = free_port()
    bind = f"0.0.0.0:{port}"
    command = [sys.executable, "-m", "gateway", "reference", "--protocol", "v2-rest", "--bind", bind]
    process = Process([*command, "--model", "identity"], folder, clean_environment(PYTHONPATH=str(ROOT)))
    stack.callback(process.stop)
    process.wait_until(lambda: "\nready" in process.stdout(), 60)
    return f"127.0.0.1:{port}"


class Bench:
    """The gateways and the model server behind them, started when they are first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        folder.mkdir(parents=True, exist_ok=True)
        self._server = wide_server(folder / "reference", stack)
        self._load: Generator = stack.enter_context(generator())

    def gateway(self, name: str, routes: int = 1, backends: int = 1) -> Server:
        address = f"127.0.0.1:{free_port()}"
        gateway = start_gateway(configuration(address, self._server, routes, backends), self._folder / name)
        self._stack.callback(gateway.stop)
        return Server(address, gateway.process.pid)

    def proxy(self, name: str, start: Start, routes: int = 1, backends: int = 1) -> Server:
        """Raises:
        MissingError: it is not installed.
        """
        return start(Started(self._folder, self._stack), name, routes, endpoints(self._server, backends))

    def requests(self, models: range) -> list[str]:
        files = []
        for at in models:
            file = self._folder / f"request{at}"
            file.write_bytes(post(path(at), BODY))
            files.append(str(file))
        return files

    def cost(self, server: Server, requests: list[str], in_flight: int, seconds: float) -> float:
        """Microseconds of CPU per request."""
        self._load.prepare(Load(server.address, requests, in_flight, seconds, warm_up=max(200, len(requests))))
        watched = Watched(server.pid)
        before = watched.cpu()
        result = self._load.go()
        return 1e6 * (watched.cpu() - before) / result.answered

    def pairs(
        self, row: str, one: tuple[Server, list[str]], grown: tuple[Server, list[str]], rounds: int, in_flight: int
    ) -> Cost:
        found = []
        for at in range(rounds):
            first = self.cost(*one, in_flight, SECONDS) if at % 2 else None
            other = self.cost(*grown, in_flight, SECONDS)
            found.append((first or self.cost(*one, in_flight, SECONDS), other))
        ones, growns = zip(*found, strict=True)
        return Cost(row, median(ones), median(growns), median(b / a for a, b in found))


def measure(folder: Path, rounds: int) -> Iterator[Cost | Missing]:
    """Raises AssertionError if the gateway closes idle connections."""
    with ExitStack() as stack:
        bench = Bench(folder, stack)
        first = bench.requests(range(1))
        one = bench.gateway("one"), first
        again = bench.gateway("again"), first
        yield bench.pairs("the same again, which shows the noise", one, again, rounds, IN_FLIGHT)
        routes = bench.gateway("routes", ROUTES)
        last = bench.requests(range(ROUTES - 1, ROUTES))
        yield bench.pairs(f"{ROUTES:,} routes, the last one", one, (routes, last), rounds, IN_FLIGHT)
        all_routes = bench.requests(range(ROUTES))
        yield bench.pairs(f"{ROUTES:,} routes, all in turns", one, (routes, all_routes), rounds, IN_FLIGHT)
        backends = bench.gateway("backends", ROUTES, BACKENDS)
        row = f"{ROUTES:,} routes to {BACKENDS} backends, the last one"
        yield bench.pairs(row, one, (backends, last), rounds, IN_FLIGHT)
        row = f"{ROUTES:,} routes to {BACKENDS} backends, all in turns"
        yield bench.pairs(row, one, (backends, all_routes), rounds, IN_FLIGHT)
        for name, start in PROXIES.items():
            yield from proxied(bench, name, start, rounds)
        with held(again[0].address, IDLE):
            yield bench.pairs(f"{IDLE:,} idle connections", one, again, rounds, IN_FLIGHT)
        spread = bench.gateway("spread", ROUTES, BACKENDS)
        row = f"{MANY} in flight, all of it and {IDLE:,} idle connections"
        with held(spread.address, IDLE):
            yield bench.pairs(row, one, (spread, last), rounds, MANY)


def proxied(bench: Bench, name: str, start: Start, rounds: int) -> Iterator[Cost | Missing]:
    """The rows of all routes in turns, of another proxy."""
    rows = {
        f"{name}, {ROUTES:,} routes, all in turns": 1,
        f"{name}, {ROUTES:,} routes to {BACKENDS} backends, all in turns": BACKENDS,
    }
    try:
        one = bench.proxy(f"{name}-1", start), bench.requests(range(1))
    except MissingError as error:
        yield from (Missing(row, str(error)) for row in rows)
        return
    all_routes = bench.requests(range(ROUTES))
    for row, backends in rows.items():
        grown = bench.proxy(f"{name}-{ROUTES}-{backends}", start, ROUTES, backends)
        yield bench.pairs(row, one, (grown, all_routes), rounds, IN_FLIGHT)


def measure_idle(folder: Path) -> Iterator[Idle]:
    """Raises AssertionError if the gateway closes idle connections."""
    with ExitStack() as stack:
        bench = Bench(folder, stack)
        [request] = bench.requests(range(1))
        for row, file in (("new", None), ("after a request", Path(request))):
            gateway = bench.gateway(row.replace(" ", "-"))
            bench.cost(gateway, [request], MANY, SECONDS)
            before = resident(gateway.pid)
            with held(gateway.address, IDLE, file):
                yield Idle(row, (resident(gateway.pid) - before) / IDLE / 2**10)


def resident(pid: int) -> int:
    """Bytes of memory that a process has now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
