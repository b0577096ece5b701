"""What the steps of a graph cost: the CPU of a chain of two steps beside that of one call and of the exchange with the
client alone, and how long a diamond of steps takes that each take 50 ms."""

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
from tests.interop.processes import start_gateway

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


def heading() -> str:
    return f"{TITLE}: CPU us, and by that of a call; {AIM}"


_KINDS = {
    "vector_10": "a call, V2 gRPC -> V2 gRPC",
    "exchange": "a graph without steps: the client's exchange",
    "single": "a graph of one step",
    "chain": "a chain of two steps",
    "pair": "two steps at once, and their mean",
}


def measure(rounds: int) -> Iterator[Steps | Diamond]:
    """The rows, each measured in turns with the others."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        grpc = reference_server("v2-grpc", folder, stack, [*VECTORS, SLOW])
        address = own_address()
        gateway = start_gateway(_CONFIG.format(address=address, grpc=grpc.address), folder / "gateway")
        stack.callback(gateway.stop)
        load = stack.enter_context(generator())
        yield from _costs(Server(address, gateway.process.pid), load, rounds)
        yield Diamond(asyncio.run(_milliseconds(address, rounds)))


def _costs(gateway: Server, load: Generator, rounds: int) -> Iterator[Steps]:
    row = Row(GRPC_TO_GRPC, 10, 1, REQUESTS)
    turns = {model: Turn(row, named(V2_GRPC, model), gateway) for model in _KINDS}
    for turn in turns.values():
        turn.warm_up(load)
    taken = [{model: turn.take(load).cpu for model, turn in turns.items()} for _ in range(rounds)]
    for model, kind in _KINDS.items():
        ratios = [each[model] / each["vector_10"] for each in taken]
        yield Steps(kind, median(each[model] for each in taken), median(ratios))


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
