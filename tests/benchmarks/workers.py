"""`python -m tests.benchmarks.workers`: how many requests a second a gateway answers as its workers grow, beside Envoy
with as many threads; with and without settings that ask the supervisor.

The load is wrk's, and the model server is an Envoy that answers with the same bytes always, since both must be faster
than all workers together. Generator, server and gateway have processors of their own, so this needs six and more.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.contest import envoy, wrk
from tests.benchmarks.contest.forms import V2_REST_DOUBLES
from tests.benchmarks.contest.generator import Load, Result
from tests.benchmarks.contest.process import Watched
from tests.benchmarks.contest.sides import Started, start_envoy
from tests.benchmarks.servers import Server, own_gateway
from tests.interop.processes import free_port

GENERATOR, SERVER = 3, 4
"""Processors of wrk, and of the model server; all others are those of the gateway."""
CONNECTIONS = 32
"""For each worker: the kernel gives connections to workers by chance, and many of them more evenly."""


def replies(vector: list[float]) -> dict[str, object]:
    """Of the model server, by path: a V2, a V1 and a UM-Bridge model that return the vector which is sent."""
    tensor = {"datatype": "FP64", "shape": [1, len(vector)]}
    described = {"name": "vector", "versions": ["1"], "platform": "none"}
    return {
        "/v2/health/ready": {},
        "/v2/models/vector": {
            **described,
            "inputs": [{"name": "input0", **tensor}],
            "outputs": [{"name": "output0", **tensor}],
        },
        "/v2/models/vector/infer": {"model_name": "vector", "outputs": [{"name": "output0", **tensor, "data": vector}]},
        "/v1/models/vector:predict": {"predictions": [vector]},
        "/Info": {"protocolVersion": 1.0, "models": ["vector"]},
        "/ModelInfo": {"support": {"Evaluate": True, "Gradient": False, "ApplyJacobian": False, "ApplyHessian": False}},
        "/InputSizes": {"inputSizes": [len(vector)]},
        "/OutputSizes": {"outputSizes": [len(vector)]},
        "/Evaluate": {"output": [vector]},
    }


GATEWAY = """
workers: {workers}
listeners: [{{name: http, bind: "{address}", protocols: [v2-rest]}}]
backends: {{models: {{protocol: {protocol}, endpoints: ["http://{server}"]{setting}}}}}
routes: [{{match: {{model: "*"}}, backend: models{policy}}}]
"""


@dataclass(frozen=True)
class Kind:
    """One way to be configured, which is measured with each number of workers."""

    name: str
    protocol: str = "v2-rest, flavor: plain"
    setting: str = ""
    """Of the backend."""
    policy: str = ""
    """Of the route."""


KINDS = (
    Kind("V2 REST proxied"),
    Kind("the same, max_in_flight: 10000", setting=", max_in_flight: 10000"),
    Kind("the same, rate_limit", policy=", policies: [{rate_limit: {requests: 10000000, seconds: 1}}]"),
    Kind("V2 REST to V1", "v1-rest, flavor: kserve"),
    Kind("V2 REST to UM-Bridge, the same limit", "umbridge", setting=", max_in_flight: 10000"),
)
ENVOY = "Envoy, V2 REST proxied"


@dataclass(frozen=True)
class Figures:
    """Of one kind with one number of workers: requests a second, CPU of all processes per request in microseconds,
    latencies in milliseconds, and the share of its processors that the model server was busy."""

    rate: float
    cpu: float
    p50: float
    p99: float
    server: float


class Processors:
    """The processors of this process, divided among generator, model server and gateway."""

    def __init__(self) -> None:
        every = sorted(os.sched_getaffinity(0))
        if len(every) < GENERATOR + SERVER + 1:
            raise SystemExit(f"{len(every)} processors; expected {GENERATOR + SERVER + 1} or more")
        self.every = every
        self.generator = every[-GENERATOR:]
        self.server = every[-GENERATOR - SERVER : -GENERATOR]
        self.gateway = every[: -GENERATOR - SERVER]


@contextmanager
def on(processors: Sequence[int]) -> Iterator[None]:
    """What is started in this context runs on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Bench:
    """The model server, and one gateway or Envoy after the other in front of it."""

    def __init__(self, folder: Path, load: tuple[int, int], stack: ExitStack) -> None:
        """`load` is how many numbers a request has, and the seconds of each figure."""
        vector = np.arange(load[0]) + 0.5
        self._folder = folder
        self._seconds = load[1]
        self._processors = Processors()
        self._request = folder / "request"
        self._request.write_bytes(V2_REST_DOUBLES.write("localhost", "vector", vector))
        with on(self._processors.server):
            self._server = self._envoy(envoy.fixed(port := free_port(), replies(vector.tolist())), port, SERVER, stack)

    def gateway(self, kind: Kind, workers: int) -> Figures:
        with ExitStack() as stack:
            with on(self._processors.gateway):
                folder, server = self._folder / f"gateway {free_port()}", self._server.address
                gateway = own_gateway(GATEWAY, folder, stack, workers=workers, server=server, **asdict(kind))
            return self._measure(gateway, workers)

    def envoy(self, workers: int) -> Figures:
        with ExitStack() as stack:
            port = free_port()
            with on(self._processors.gateway):
                config = envoy.config(envoy.PROXY, port, self._server.address, "")
                return self._measure(self._envoy(config, port, workers, stack), workers)

    def _envoy(self, config: str, port: int, threads: int, stack: ExitStack) -> Server:
        return start_envoy(Started(self._folder, stack), self._folder / f"envoy {port}", port, config, threads)

    def _measure(self, side: Server, workers: int) -> Figures:
        self._load(side, workers, 1)
        watched, server = Watched(side.pid), Watched(self._server.pid)
        before = watched.cpu(), server.cpu()
        found = self._load(side, workers, self._seconds)
        spent, busy = watched.cpu() - before[0], server.cpu() - before[1]
        p50, p99 = (found.latencies[each] / 1e3 for each in ("p50", "p99"))
        cpu = 1e6 * spent / found.answered
        return Figures(found.answered / found.seconds, cpu, p50, p99, busy / found.seconds / SERVER)

    def _load(self, side: Server, workers: int, seconds: int) -> Result:
        in_flight = max(CONNECTIONS * workers, GENERATOR)
        with on(self._processors.generator):
            return wrk.run("wrk", Load(side.address, [str(self._request)], in_flight, seconds), self._folder, GENERATOR)


HEADING = f"{'':38}{'workers':>8}{'a second':>10}{'by one':>8}{'CPU us':>8}{'p50 ms':>8}{'p99 ms':>8}{'server':>8}"


def shown(name: str, workers: int, found: Figures, one: Figures) -> str:
    times = found.rate / one.rate
    figures = f"{found.rate:10,.0f}{times:8.2f}{found.cpu:8.1f}{found.p50:8.1f}{found.p99:8.1f}{found.server:8.0%}"
    return f"{name:38}{workers:8}{figures}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.workers", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="default 1 2 4 8")
    parser.add_argument("--seconds", type=int, default=4, help="of load for each figure (default 4)")
    parser.add_argument("--numbers", type=int, default=10, help="in each request (default 10)")
    parser.add_argument("--only", default="", help="only rows whose name has this text")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, (options.numbers, options.seconds), stack)
        print(HEADING, flush=True)
        sides = {kind.name: lambda workers, kind=kind: bench.gateway(kind, workers) for kind in KINDS}
        for name, measure in {**sides, ENVOY: bench.envoy}.items():
            if options.only not in name:
                continue
            one: Figures | None = None
            for workers in options.workers:
                found = measure(workers)
                one = one or found
                print(shown(name, workers, found, one), flush=True)


if __name__ == "__main__":
    main()
