"""What many idle and slow connections cost a fast client: its p99 with them by its p99 without, at the gateway and at
nginx before the same model server, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.attacked import reference
from tests.attacks.clients import post
from tests.attacks.probe import BODY
from tests.benchmarks.contest.generator import Load
from tests.benchmarks.contest.measure import Generator, generator
from tests.benchmarks.contest.nginx import nginx_config
from tests.benchmarks.contest.sides import MissingError, Started, start_nginx
from tests.benchmarks.growth.costs import Missing
from tests.benchmarks.growth.holder import held
from tests.benchmarks.servers import own_address, own_gateway

IDLE, SLOW = 5000, 500
TITLE = f"p99 of a fast client beside {IDLE:,} idle and {SLOW} slow connections"
AIM = 1.2
"""The gateway's ratio by nginx's."""
SECONDS = 1.0

GATEWAY = """
listeners: [{{name: http, bind: "{address}", protocols: [v2-rest]}}]
backends: {{works: {{protocol: v2-rest, flavor: plain, endpoints: ["{server}"]}}}}
routes: [{{match: {{model: "*"}}, backend: works}}]
"""


@dataclass(frozen=True)
class Moved:
    """A fast client's p99 in microseconds, alone and beside the crowd; of the rounds the best, since the machine is not
    alone."""

    name: str
    alone: float
    beside: float

    def shown(self) -> str:
        return f"{self.name:72}{self.alone:12.0f}{self.beside:10.0f}{self.beside / self.alone:8.2f}"


def heading() -> str:
    return f"{TITLE}, us{'':8}{'alone':>10}{'beside':>10}{'ratio':>8}; aim: at most {AIM} times nginx's ratio"


def measure(folder: Path, rounds: int) -> Iterator[Moved | Missing]:
    """Raises AssertionError if a server closes connections of the crowd."""
    with ExitStack() as stack:
        server = stack.enter_context(reference(folder / "server", "v2-rest"))
        addresses = {"gateway": own_gateway(GATEWAY, folder / "gateway", stack, server=server).address}
        nginx, missing = own_address(), None
        to_works = {"works": server}, {"/": "proxy_pass http://works"}
        config = nginx_config(folder / "nginx", f"{nginx} backlog=2048", *to_works, connections=2 * (IDLE + SLOW))
        try:
            addresses["nginx"] = start_nginx(Started(folder, stack), folder / "nginx", nginx, config).address
        except MissingError as error:
            missing = Missing("nginx", str(error))
        load = stack.enter_context(generator())
        request = folder / "request"
        request.write_bytes(post("/v2/models/identity/infer", BODY))
        found = [{name: _once(load, address, request) for name, address in addresses.items()} for _ in range(rounds)]
        for name in addresses:
            yield Moved(name, *map(min, zip(*(each[name] for each in found), strict=True)))
        if missing:
            yield missing


def _once(load: Generator, address: str, request: Path) -> tuple[float, float]:
    alone = _p99(load, address, request)
    with held(address, IDLE + SLOW, slow=SLOW):
        return alone, _p99(load, address, request)


def _p99(load: Generator, address: str, request: Path) -> float:
    load.prepare(Load(address, [str(request)], in_flight=1, seconds=SECONDS, warm_up=1000))
    return load.go().latencies["p99"]
