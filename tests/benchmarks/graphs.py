"""What the steps of a graph cost: the CPU of a chain of two steps beside that of one call and of the exchange with the
client alone; how long a diamond of steps takes that each take 50 ms; and Triton's own ensemble of two models beside a
graph of the same two."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from gateway.client import AsyncClient
from tests.benchmarks.measure import Generator, Turn, generator
from tests.benchmarks.rows import GRPC_TO_GRPC, Row
from tests.benchmarks.servers import VECTORS, Server, own_address, reference_server
from tests.benchmarks.wire import V2_GRPC, named
from tests.interop.processes import start_gateway, start_triton
from tests.interop.servers.triton_models.repository import Ensemble, Model, Port

TITLE = "what steps of graphs cost"
AIM = "a chain of two steps: at most 1.9 of a single call; four steps of 50 ms in two stages: at most 105 ms"
REQUESTS = 2000
SLOW = "tests.benchmarks.models:slow"

_CONFIG = """
listeners: [{{name: grpc, bind: "{address}", protocols: [v2-grpc]}}]
backends: {{grpc: {{protocol: v2-grpc, endpoints: ["{grpc}"]}}}}
routes: [{{match: {{model: "*"}}, backend: grpc}}]
models:
  exchange: {{inputs: {{input0: "FP64 [-1, 10]"}}, outputs: {{output0: $input0}}}}
  single:
    inputs: {{input0: "FP64 [-1, 10]"}}
    steps: {{a: {{model: vector_10, inputs: {{input0: $input0}}}}}}
    outputs: {{output0: $a}}
  chain:
    inputs: {{input0: "FP64 [-1, 10]"}}
    steps:
      a: {{model: vector_10, inputs: {{input0: $input0}}}}
      b: {{model: vector_10, inputs: {{input0: $a}}}}
    outputs: {{output0: $b}}
  pair:
    inputs: {{input0: "FP64 [-1, 10]"}}
    steps:
      a: {{model: vector_10, inputs: {{input0: $input0}}}}
      b: {{model: vector_10, inputs: {{input0: $input0}}}}
    outputs: {{output0: {{mean: [$a, $b]}}}}
  diamond:
    inputs: {{x: "FP64 [-1, 1]"}}
    steps:
      a: {{model: slow, inputs: {{x: $x}}}}
      b: {{model: slow, inputs: {{x: $x}}}}
      c: {{model: slow, inputs: {{x: $x}}}}
      end: {{model: slow, inputs: {{x: {{mean: [$a, $b, $c]}}}}}}
    outputs: {{y: $end}}
"""


@dataclass(frozen=True)
class Steps:
    """The CPU of one kind of request in microseconds, and by that of a call of the same model without a graph."""

    row: str
    cpu: float
    ratio: float

    def shown(self) -> str:
        return f"{self.row:44}{self.cpu:12.1f}{self.ratio:12.2f}"


@dataclass(frozen=True)
class Diamond:
    """How long a diamond of four steps of 50 ms takes at best, in milliseconds."""

    milliseconds: float
    row: str = "a diamond of four steps of 50 ms"

    def shown(self) -> str:
        return f"{self.row:44}{self.milliseconds:9.1f} ms"


@dataclass(frozen=True)
class BesideTriton:
    """One kind of request for models on Triton: CPU of the process that is called, without the processes in which
    Triton runs models of Python, and the median latency; both in microseconds."""

    row: str
    cpu: float
    p50: float

    def shown(self) -> str:
        return f"{self.row:44}{self.cpu:12.1f}{self.p50:12.0f} us latency"


def heading() -> str:
    return f"{TITLE}: CPU us, and by that of a call; {AIM}"


_KINDS = {
    "vector_10": "a call, V2 gRPC -> V2 gRPC",
    "exchange": "a graph without steps: the client's exchange",
    "single": "a graph of one step",
    "chain": "a chain of two steps",
    "pair": "two steps at once, and their mean",
}


def measure(rounds: int) -> Iterator[Steps | Diamond | BesideTriton]:
    """The rows, each measured in turns with the others of its kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        grpc = reference_server("v2-grpc", folder, stack, [*VECTORS, SLOW])
        address = own_address()
        gateway = start_gateway(_CONFIG.format(address=address, grpc=grpc.address), folder / "gateway")
        stack.callback(gateway.stop)
        load = stack.enter_context(generator())
        yield from _costs(Server(address, gateway.process.pid), load, rounds)
        yield Diamond(asyncio.run(_milliseconds(address, rounds)))
        yield from _beside_triton(folder, load, rounds)


def _costs(gateway: Server, load: Generator, rounds: int) -> Iterator[Steps]:
    row = Row(GRPC_TO_GRPC, 10, 1, REQUESTS)
    turns = {model: Turn(row, named(V2_GRPC, model), gateway) for model in _KINDS}
    for turn in turns.values():
        turn.warm_up(load)
    taken = [{model: turn.take(load).cpu for model, turn in turns.items()} for _ in range(rounds)]
    for model, kind in _KINDS.items():
        ratios = [each[model] / each["vector_10"] for each in taken]
        yield Steps(kind, median(each[model] for each in taken), median(ratios))


_FIRST, _SECOND = (
    Model(name, "identity", (Port("input0", "FP64", (-1, 10)),), (Port("output0", "FP64", (-1, 10)),))
    for name in ("first", "second")
)
_BESIDE_TRITON = """
listeners: [{{name: grpc, bind: "{address}", protocols: [v2-grpc]}}]
backends: {{triton: {{protocol: v2-grpc, endpoints: ["{triton}"]}}}}
routes: [{{match: {{model: "*"}}, backend: triton}}]
models:
  graph:
    inputs: {{input0: "FP64 [-1, 10]"}}
    steps: {{a: {{model: first, inputs: {{input0: $input0}}}}, b: {{model: second, inputs: {{input0: $a}}}}}}
    outputs: {{output0: $b}}
"""


def _beside_triton(folder: Path, load: Generator, rounds: int) -> Iterator[BesideTriton]:
    with ExitStack() as stack:
        triton = start_triton(folder / "triton", models=(_FIRST, _SECOND, Ensemble("ensemble", (_FIRST, _SECOND))))
        stack.callback(triton.stop)
        address = own_address()
        gateway = start_gateway(_BESIDE_TRITON.format(address=address, triton=triton.grpc), folder / "beside")
        stack.callback(gateway.stop)
        there, here = Server(triton.grpc, triton.process.pid), Server(address, gateway.process.pid)
        row = Row(GRPC_TO_GRPC, 10, 1, REQUESTS // 4)
        turns = {
            "a model on Triton": Turn(row, named(V2_GRPC, "first"), there),
            "Triton's own ensemble of two": Turn(row, named(V2_GRPC, "ensemble"), there),
            "the model through the gateway": Turn(row, named(V2_GRPC, "first"), here),
            "the ensemble through the gateway": Turn(row, named(V2_GRPC, "ensemble"), here),
            "the gateway's graph of the same two": Turn(row, named(V2_GRPC, "graph"), here),
        }
        for turn in turns.values():
            turn.warm_up(load)
        taken = [{name: turn.take(load) for name, turn in turns.items()} for _ in range(rounds)]
    for name in turns:
        yield BesideTriton(name, median(each[name].cpu for each in taken), median(each[name].p50 for each in taken))


async def _milliseconds(address: str, rounds: int) -> float:
    async with AsyncClient(address, protocol="v2-grpc") as client:
        x = np.zeros((1, 1))
        await client.infer("diamond", x)
        found = []
        for _ in range(4 * rounds):
            began = time.monotonic()
            await client.infer("diamond", x)
            found.append(time.monotonic() - began)
    return 1e3 * min(found)
