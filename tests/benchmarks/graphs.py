"""Triton's own ensemble of two models beside a graph of the same two, and the same models through the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.contest.forms import V2_GRPC_DOUBLES
from tests.benchmarks.contest.measure import generator
from tests.benchmarks.measure import Turn
from tests.benchmarks.rows import GRPC_TO_GRPC, Row
from tests.benchmarks.servers import Server, own_gateway
from tests.benchmarks.wire import named
from tests.interop.processes import start_triton
from tests.interop.servers.triton_models.repository import Ensemble, Model, Port

TITLE = "what steps of graphs cost"

FIRST, SECOND = (
    Model(name, "identity", (Port("input0", "FP64", (-1, 10)),), (Port("output0", "FP64", (-1, 10)),))
    for name in ("first", "second")
)
CONFIG = """
listeners: [{{name: grpc, bind: "{address}", protocols: [v2-grpc]}}]
backends: {{triton: {{protocol: v2-grpc, endpoints: ["{triton}"]}}}}
routes: [{{match: {{model: "*"}}, backend: triton}}]
models:
  graph:
    inputs: {{input0: "FP64 [-1, 10]"}}
    steps: {{a: {{model: first, inputs: {{input0: $input0}}}}, b: {{model: second, inputs: {{input0: $a}}}}}}
    outputs: {{output0: $b}}
"""


@dataclass(frozen=True)
class BesideTriton:
    """CPU of the process that is called, without the processes in which Triton runs models of Python, and the median
    latency; both in microseconds."""

    row: str
    cpu: float
    p50: float

    def shown(self) -> str:
        return f"{self.row:44}{self.cpu:12.1f}{self.p50:12.0f}"


def heading() -> str:
    return f"{TITLE}\n{'':44}{'CPU us':>12}{'latency us':>12}"


def measure(folder: Path, rounds: int) -> Iterator[BesideTriton]:
    with ExitStack() as stack:
        triton = start_triton(folder / "triton", models=(FIRST, SECOND, Ensemble("ensemble", (FIRST, SECOND))))
        stack.callback(triton.stop)
        there = Server(triton.grpc, triton.process.pid)
        here = own_gateway(CONFIG, folder / "gateway", stack, triton=triton.grpc)
        load = stack.enter_context(generator())
        turns = {
            name: Turn(Row(GRPC_TO_GRPC, 10, 1), named(V2_GRPC_DOUBLES, model), server, folder, load)
            for name, model, server in (
                ("a model on Triton", "first", there),
                ("Triton's own ensemble of two", "ensemble", there),
                ("the model through the gateway", "first", here),
                ("the ensemble through the gateway", "ensemble", here),
                ("the gateway's graph of the same two", "graph", here),
            )
        }
        taken = [{name: turn.take() for name, turn in turns.items()} for _ in range(rounds)]
    for name in turns:
        yield BesideTriton(name, median(each[name].cpu for each in taken), median(each[name].p50 for each in taken))
