"""What the policy `cache` costs, measured around it alone, in this process: the CPU time of a call that is answered
from memory, and of one that is not known, less what the model behind it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Handler
from gateway.policies.cache import Settings, wrap
from gateway.policies.context import PolicyContext

TITLE = "what a cache costs, microseconds of CPU per call"
SIZES = (10, 1_000)
"""Doubles of a request and of its answer."""
CALLS = 2000


@dataclass(frozen=True)
class Cached:
    """Medians of some rounds, in microseconds: of a call from memory, and what a call that is not known costs more than
    without the policy."""

    doubles: int
    hit: float
    miss: float

    @property
    def row(self) -> str:
        return f"{self.doubles:,} doubles"

    def shown(self) -> str:
        return f"{self.row:44}{self.hit:12.1f}{self.miss:12.1f}"


def heading() -> str:
    return f"{TITLE}\n{'':44}{'hit':>12}{'miss':>12}"


def measure(_: object, rounds: int) -> Iterator[Cached]:
    """Each of SIZES."""
    for doubles in SIZES:
        found = [asyncio.run(_round(doubles)) for _ in range(rounds + 1)][1:]  # the first one warms up
        yield Cached(doubles, *map(median, zip(*found, strict=True)))


async def _round(doubles: int) -> tuple[float, float]:
    response = Response((tensor("y", np.arange(float(doubles))),), "m")

    async def model(request: Request) -> Answer:
        return response

    cached = wrap(model, Settings(), PolicyContext("backend 'b'", safe=True))
    requests = [
        Request(Operation.INFER, "m", inputs=(tensor("x", np.arange(float(doubles)) + at),)) for at in range(CALLS)
    ]
    without, miss = await _seconds(model, requests), await _seconds(cached, requests)
    hit = await _seconds(cached, requests)
    return 1e6 * hit / CALLS, 1e6 * (miss - without) / CALLS


async def _seconds(handler: Handler, requests: list[Request]) -> float:
    began = time.process_time()
    for each in requests:
        await handler(each)
    return time.process_time() - began
