"""What the settings of production cost per request: two gateways before the same servers, one with them, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

from tests.benchmarks.measure import Generator, Turn, generator
from tests.benchmarks.rows import REST_TO_GRPC, UMBRIDGE_TO_V2, Row
from tests.benchmarks.servers import Server, own_address, reference_server
from tests.interop.processes import start_gateway

TITLE = "what timeout, retry, health and limits cost"
AIM = "at most 5% or 3 us, whichever is more"

REQUESTS = 2000
"""Those of one turn. With fewer, single microseconds of a request are lost in what a turn costs beside its requests."""

ROWS = (
    Row(UMBRIDGE_TO_V2, 10, 1, REQUESTS),
    Row(UMBRIDGE_TO_V2, 10, 16, REQUESTS),
    Row(REST_TO_GRPC, 10, 1, REQUESTS),
    Row(REST_TO_GRPC, 10, 16, REQUESTS),
)

_PROTECTED = """
    safe: true
    health: {}
    policies: [{timeout: {seconds: 30}}, {retry: {}}, {concurrency_limit: {calls: 1000}}]
"""
"""The settings of a backend whose cost is measured."""

_CONFIG = """
listeners:
  - {{name: to_rest, bind: "{to_rest}", protocols: [umbridge]}}
  - {{name: to_grpc, bind: "{to_grpc}", protocols: [v2-rest]}}
backends:
  rest:
    protocol: v2-rest
    endpoints: ["{rest}"]
{settings}
  grpc:
    protocol: v2-grpc
    endpoints: ["{grpc}"]
{settings}
routes:
  - {{match: {{listener: to_rest, model: "*"}}, backend: rest}}
  - {{match: {{listener: to_grpc, model: "*"}}, backend: grpc}}
"""


@dataclass(frozen=True)
class Protection:
    """Microseconds of CPU per request, without and with the settings; the medians of some rounds, and the median of
    the rounds' ratios."""

    row: str
    plain: float
    protected: float
    ratio: float

    def shown(self) -> str:
        more = self.protected - self.plain
        return f"{self.row:44}{self.plain:12.0f}{self.protected:12.0f}{more:+12.1f}{self.ratio:12.3f}"


STARTS = 6
"""How often the gateways are started. Where the memory of a process lies makes each of its requests some microseconds
cheaper or dearer for as long as it runs."""

Measure: TypeAlias = Callable[[Path, int, Generator], Iterator[Protection]]
"""Measures gateways that it starts, in a folder, in so many rounds."""


def over_starts(measure: Measure, rounds: int) -> Iterator[Protection]:
    """The medians of several starts, each with a third of the rounds; of what is more, that of each start."""
    found = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder, generator() as load:
            found.append(list(measure(Path(folder), (rounds + 2) // 3, load)))
    for of_row in zip(*found, strict=True):
        plain, more = median(each.plain for each in of_row), median(each.protected - each.plain for each in of_row)
        yield Protection(of_row[0].row, plain, plain + more, median(each.ratio for each in of_row))


def heading(title: str = TITLE, aim: str = AIM) -> str:
    return f"{title}; aim: {aim}\n{'':44}{'without us':>12}{'with us':>12}{'more us':>12}{'ratio':>12}"


def measure(folder: Path, rounds: int, load: Generator) -> Iterator[Protection]:
    """Each of ROWS."""
    with _gateways(folder) as gateways:
        yield from compared(gateways, rounds, load)


def compared(
    gateways: tuple[dict[str, Server], dict[str, Server]], rounds: int, load: Generator
) -> Iterator[Protection]:
    """What each of ROWS costs in the first gateway and in the second, which has more to do."""
    for row in ROWS:
        turns = [Turn(row, row.way.client, each[row.way.name]) for each in gateways]
        for turn in turns:
            turn.warm_up(load)
        found = [[turn.take(load).cpu for turn in turns] for _ in range(rounds)]
        plain, protected = map(median, zip(*found, strict=True))
        yield Protection(row.name, plain, protected, median(ours / bare for bare, ours in found))


@contextmanager
def _gateways(folder: Path) -> Iterator[tuple[dict[str, Server], dict[str, Server]]]:
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        yield (
            start("plain", "", servers, folder, stack),
            start("protected", _PROTECTED.strip("\n"), servers, folder, stack),
        )


def start(
    name: str, settings: str, servers: dict[str, str], folder: Path, stack: ExitStack, more: str = ""
) -> dict[str, Server]:
    """A gateway with these `settings` of its backends and `more` keys at the top: where each way is served."""
    faces = {"to_rest": own_address(), "to_grpc": own_address()}
    gateway = start_gateway(_CONFIG.format(settings=settings, **servers, **faces) + more, folder / name)
    stack.callback(gateway.stop)
    return {
        UMBRIDGE_TO_V2.name: Server(faces["to_rest"], gateway.process.pid),
        REST_TO_GRPC.name: Server(faces["to_grpc"], gateway.process.pid),
    }
