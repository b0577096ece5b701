"""One row measured: gateway, adapter and server take turns under the same load, so that what else the machine does
meets all of them alike; of the rounds, the medians."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.contest.forms import Form
from tests.benchmarks.contest.generator import Load
from tests.benchmarks.contest.measure import Generator, check, generator, requests
from tests.benchmarks.contest.process import Watched
from tests.benchmarks.rows import UMBRIDGE_TO_GRPC, UMBRIDGE_TO_V2, V2_TO_UMBRIDGE, Row
from tests.benchmarks.servers import Server, Servers, running

SECONDS = 0.5
"""Of a turn. In shorter ones, single microseconds of a request are lost in what a turn costs beside its requests."""
WARM_UP = 20
"""Requests before each turn, which make connections, fill caches, and let interpreters specialise their code."""
AIM = 0.5
"""The gateway's CPU by the adapter's, for 10 doubles."""
ADAPTED = (UMBRIDGE_TO_V2, V2_TO_UMBRIDGE, UMBRIDGE_TO_GRPC)
COLUMNS = ("", "CPU us", "p50 us", "p99 us")


@dataclass(frozen=True)
class Cost:
    """Microseconds: of CPU per request, all threads of the process, user and system; and of latency."""

    cpu: float
    p50: float
    p99: float


@dataclass(frozen=True)
class Measured:
    row: Row
    gateway: Cost
    adapter: Cost | None
    direct: Cost
    """The load straight on the server, in the server's protocol; its CPU is the server's own."""
    ratio: Cost | None
    """Gateway by adapter, the medians of the rounds' ratios; None, as `adapter`, where there is none."""

    def shown(self) -> str:
        costs = {"gateway": self.gateway, "adapter": self.adapter, "direct": self.direct}
        rows = [COLUMNS, *((name, *_cells(cost, ",.0f")) for name, cost in costs.items() if cost)]
        if self.ratio:
            rows.append(("gateway/adapter", *_cells(self.ratio, ".2f")))
        lines = [f"  {name:16}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows]
        return "\n".join([f"\n{self.row.name}", *lines])


def _cells(cost: Cost, form: str) -> Iterator[str]:
    return (format(number, form) for number in asdict(cost).values())


def heading(rounds: int) -> str:
    """What the numbers are, and of which machine."""
    return f"""\
Python {platform.python_version()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; medians of {rounds} \
rounds, taken in turns.
CPU: user and system time of one process per request, all its threads. Latency: as the client sees it.
Adapters: {", ".join(f"{way.adapter} ({way.name})" for way in ADAPTED)}. \
The aim of gateway/adapter is {AIM:.2f} for the CPU of 10 doubles.
Servers: the gateway's own reference servers, in processes of their own: the fastest there are here.
Direct: the same vectors straight to the server, in its own protocol; the CPU is the server's.
The gateway sends an UM-Bridge server one call at a time, the others wait; the adapter sends all at once."""


def all_of(rows: Sequence[Row], rounds: int, folder: Path) -> Iterator[Measured]:
    with running(folder) as servers, generator() as load:
        for row in rows:
            yield measure(row, rounds, servers, folder, load)


def measure(row: Row, rounds: int, servers: Servers, folder: Path, load: Generator) -> Measured:
    """Measure one row.

    Raises:
        WrongReplyError: a reply is not the vector that was sent.
    """
    way = row.way
    turns = {"gateway": Turn(row, way.client, servers.gateways[way], folder, load)}
    if way in servers.adapters:
        turns["adapter"] = Turn(row, way.client, servers.adapters[way], folder, load)
    turns["direct"] = Turn(row, way.server, servers.backends[way], folder, load)
    taken = [{name: turn.take() for name, turn in turns.items()} for _ in range(rounds)]
    gateway, direct = ([each[name] for each in taken] for name in ("gateway", "direct"))
    if "adapter" not in turns:
        return Measured(row, _median(gateway), None, _median(direct), None)
    adapter = [each["adapter"] for each in taken]
    ratios = [_ratio(ours, theirs) for ours, theirs in zip(gateway, adapter, strict=True)]
    return Measured(row, _median(gateway), _median(adapter), _median(direct), _median(ratios))


class Turn:
    """One of those that take turns: its load and its process.

    Raises:
        WrongReplyError: a reply is not the vector that was sent.
    """

    def __init__(self, row: Row, form: Form, server: Server, folder: Path, generator: Generator) -> None:
        files = requests(folder, form, server.address, row.doubles)
        self._load = Load(
            server.address, files, row.in_flight, SECONDS, form.method, form.framed, not row.keep_alive,
            warm_up=WARM_UP,
        )  # fmt: skip
        self._watched = Watched(server.pid)
        self._generator = generator
        check(self._load, form, row.doubles, folder, generator)

    def take(self) -> Cost:
        self._generator.prepare(self._load)
        before = self._watched.cpu()
        result = self._generator.go()
        spent = self._watched.cpu() - before
        return Cost(1e6 * spent / result.answered, result.latencies["p50"], result.latencies["p99"])


def _ratio(ours: Cost, theirs: Cost) -> Cost:
    return Cost(ours.cpu / theirs.cpu, ours.p50 / theirs.p50, ours.p99 / theirs.p99)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        median(each.cpu for each in costs), median(each.p50 for each in costs), median(each.p99 for each in costs)
    )
