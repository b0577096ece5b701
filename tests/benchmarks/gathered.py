"""Evaluations per second of 64 UM-Bridge clients before the real Triton, without `gather` and with it, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.attacks.clients import post
from tests.benchmarks.contest.generator import Load
from tests.benchmarks.contest.measure import generator
from tests.benchmarks.servers import own_gateway
from tests.interop.processes import start_triton

CLIENTS, SECONDS = 64, 2.0
TITLE = f"evaluations per second of {CLIENTS} UM-Bridge clients before Triton, with gather"
WAYS = {
    "without gather": "",
    "gather, wait 0": "{gather: {rows: 64, wait: 0}}",
    "gather, wait 0.002": "{gather: {rows: 64, wait: 0.002}}",
    "gather, wait 0.02": "{gather: {rows: 64, wait: 0.02}}",
}
REQUEST = post("/Evaluate", b'{"name": "posterior", "input": [[0.5, -0.5]]}', "Content-Type: application/json")
CONFIG = """
listeners: [{{name: all, bind: "{address}", protocols: [umbridge]}}]
backends: {{triton: {{protocol: v2-grpc, endpoints: ["{triton}"], safe: true, policies: [{policies}]}}}}
routes: [{{match: {{model: "*"}}, backend: triton}}]
"""


@dataclass(frozen=True)
class Gathered:
    """The medians of some rounds: requests per second, and the p50 and p99 of their latencies in milliseconds."""

    way: str
    rate: float
    p50: float
    p99: float

    def shown(self) -> str:
        return f"{self.way:44}{self.rate:12.0f}{self.p50:12.1f}{self.p99:12.1f}"


def heading() -> str:
    return f"{TITLE}\n{'':44}{'per second':>12}{'p50 ms':>12}{'p99 ms':>12}"


def measure(folder: Path, rounds: int) -> Iterator[Gathered]:
    """Each of WAYS."""
    with ExitStack() as stack:
        triton = start_triton(folder / "triton")
        stack.callback(triton.stop)
        addresses = {
            way: own_gateway(CONFIG, folder / way, stack, triton=triton.grpc, policies=policies).address
            for way, policies in WAYS.items()
        }
        load = stack.enter_context(generator())
        request = folder / "request"
        request.write_bytes(REQUEST)
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, address in addresses.items():
                load.prepare(Load(address, [str(request)], CLIENTS, SECONDS, warm_up=1000))
                result = load.go()
                p50, p99 = (result.latencies[each] / 1000 for each in ("p50", "p99"))
                found[way].append((result.answered / result.seconds, p50, p99))
        for way, rows in found.items():
            yield Gathered(way, *map(median, zip(*rows, strict=True)))
