"""One contest measured: the sides take turns, round after round, so that what else the machine does meets all of them
alike. Of the rounds, the medians; a ratio is the median of the rounds' ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.contest import wrk
from tests.benchmarks.contest.contests import Contest
from tests.benchmarks.contest.generator import Load, Result
from tests.benchmarks.contest.process import Watched
from tests.benchmarks.contest.sides import AnyForm, Gateway, MissingError, Side, Started
from tests.benchmarks.servers import Server
from tests.interop.processes import ProcessError
from tests.peers.build import ROOT

POOL_BYTES = 2**24
"""Of large payloads fewer are sent in turns, but two."""
WRK_SIZE, WRK_IN_FLIGHT = 1_000, 16
"""Of larger loads the requests that wrk leaves without a reply at its end, whose CPU is spent, are not few."""
SHARE = 0.5
"""The rate of the latencies, by what the slowest side of the contest can answer."""
LATENCIES = {"p50": 1, "p99": 100, "p99.9": 1000}
"""The percentiles that are shown, and of how many requests at least: one of 100 is slower than the p99."""


class WrongReplyError(Exception):
    """What is measured does not do its work."""


FAILURES = (WrongReplyError, wrk.WrkError, ProcessError)


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    rounds: int
    seconds: float
    """Of each turn without a pause."""
    latencies: Plan | None = None
    """The turns in which latencies at a rate, and stalls, are measured; None if they are not."""
    use_wrk: bool = True

    def __str__(self) -> str:
        return f"{self.rounds} of {self.seconds:g} s"


@dataclass
class Figures:
    """Of one side: the medians of the rounds."""

    cpu: float = 0.0
    """Microseconds of CPU per request, all threads and children of the process."""
    per_second: float = 0.0
    rate: float = 0.0
    """Of the latencies: requests that are due per second; the same for all sides."""
    latencies: dict[str, float] = field(default_factory=dict)
    """Microseconds since a request was due; without those of LATENCIES for which a turn had too few requests."""
    peak: int = 0
    """Bytes of resident memory, the most in any round."""
    waiting: float = 0.0
    """Microseconds: the median latency of calls without a pause, in which each waits for the one before."""
    ratio: float | None = None
    """The CPU of the first side by the CPU of this one, the median of the rounds' ratios; None if the first failed."""
    waiting_ratio: float | None = None
    """The same of `waiting`."""
    stall: float | None = None
    """Seconds: the longest that the gateway's loop was kept from its turn by the gateway's work."""
    generator_busy: float = 0.0
    """The largest share of a core that the load generator took while latencies were measured."""
    missing: str = ""
    """Why there are no figures: `missing: ` and what installs the program, or `failed: ` and how."""


class Generator:
    """The load generator's process."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def prepare(self, load: Load) -> None:
        """Connect and warm up.

        Raises:
            WrongReplyError: a reply was not right.
        """
        self._write(json.dumps(asdict(load)))
        self._read()

    def go(self) -> Result:
        """Send the load that was prepared.

        Raises:
            WrongReplyError: a reply was not right.
        """
        self._write("go")
        return Result(**self._read())

    def leave(self) -> None:
        """Do not send the load that was prepared."""
        self._write("")

    def _write(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def _read(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        document = json.loads(line) if line else {"error": "the load generator ended"}
        if document != "ready" and "error" in document:
            raise WrongReplyError(document["error"])
        return document


@contextmanager
def generator() -> Iterator[Generator]:
    """The load generator, started; it ends with the context."""
    command = [sys.executable, "-m", "tests.benchmarks.contest.generator"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield Generator(child)
        child.communicate()


class Turn:
    """One side of a contest that works: its load, and its process."""

    def __init__(self, side: Side, server: Server, load: Load, watched: Watched, folder: Path, program: str | None):
        self.side = side
        self.server = server
        self._load = load
        self._watched = watched
        self._folder = folder
        self._wrk = None if load.method else program
        self.cpu: list[float] = []
        self.per_second: list[float] = []
        self.waiting: list[float] = []
        self.latencies: list[Mapping[str, float]] = []
        self.peak = 0
        self.busy = 0.0

    def flat_out(self, generator: Generator) -> None:
        """A turn in which each connection sends the next request when it has the reply."""
        self._watched.forget_peak()
        if self._wrk:
            before = self._watched.cpu()
            result = wrk.run(self._wrk, self._load, self._folder)
        else:
            generator.prepare(self._load)
            before = self._watched.cpu()
            result = generator.go()
        self.cpu.append(1e6 * (self._watched.cpu() - before) / result.answered)
        self.per_second.append(result.answered / result.seconds)
        self.waiting.append(result.latencies["p50"])
        self.peak = max(self.peak, self._watched.peak())

    def at_rate(self, generator: Generator, rate: float, seconds: float) -> None:
        """A turn in which requests are due at random times of that rate."""
        generator.prepare(replace(self._load, rate=rate, seconds=seconds))
        result = generator.go()
        enough = (name for name, requests in LATENCIES.items() if result.answered >= requests)
        self.latencies.append({name: result.latencies[name] for name in enough})
        self.busy = max(self.busy, result.busy)


def measure(contest: Contest, plan: Plan, started: Started, load: Generator) -> dict[str, Figures]:
    """The figures of each side by its name.

    A side that is there but does not give back the numbers that it was sent, or fails under the load, has no figures.
    """
    figures: dict[str, Figures] = {}
    turns: list[Turn] = []
    for side in contest.sides:
        try:
            turns.append(_turn(contest, side, plan, started, load))
        except MissingError as error:
            figures[side.name] = Figures(missing=f"missing: {error}")
        except FAILURES as error:
            figures[side.name] = _failed(error)

    def take(rounds: int, action: Callable[[Turn], None]) -> None:
        """Every side's turn in every round; a side that fails has no more turns."""
        for number in range(rounds):
            for turn in _rotated(turns, number):
                try:
                    action(turn)
                except FAILURES as error:
                    figures[turn.side.name] = _failed(error)
                    turns.remove(turn)

    take(plan.rounds, lambda turn: turn.flat_out(load))
    rate, latencies = 0.0, plan.latencies
    if latencies is not None and turns:
        rate, seconds = SHARE * min(median(turn.per_second) for turn in turns), latencies.seconds
        take(latencies.rounds, lambda turn: turn.at_rate(load, rate, seconds))
    for turn in turns:
        first = turns[0] if turns[0].side is contest.sides[0] else None
        figures[turn.side.name] = _figures(turn, first, rate)
    gateway = contest.sides[0]
    if latencies is not None and isinstance(gateway.start, Gateway) and not figures[gateway.name].missing:
        figures[gateway.name].stall = _stall(contest, gateway.start, latencies, started, load)
    return {side.name: figures[side.name] for side in contest.sides}


def _failed(error: Exception) -> Figures:
    return Figures(missing=f"failed: {str(error)[:300]}")


def _stall(contest: Contest, gateway: Gateway, plan: Plan, started: Started, load: Generator) -> float:
    """In a process of its own, whose loop has a ticker; of the rounds the shortest, since the machine is not alone."""
    address, seen = started.observed(contest.pair, gateway)
    form = contest.sides[0].form
    files = requests(started.folder, form, address, contest.size)
    wanted = Load(address, files, contest.in_flight, plan.seconds, form.method, warm_up=contest.in_flight)
    stalls = []
    for _ in range(plan.rounds):
        load.prepare(wanted)
        seen.look()
        load.go()
        stalls.append(seen.look().stall)
    return min(stalls)


def _rotated(turns: Sequence[Turn], number: int) -> Sequence[Turn]:
    """The order of a round: another one begins each time."""
    begin = number % len(turns)
    return [*turns[begin:], *turns[:begin]]


def _figures(turn: Turn, first: Turn | None, rate: float) -> Figures:
    return Figures(
        cpu=median(turn.cpu),
        per_second=median(turn.per_second),
        rate=rate,
        latencies=_medians(turn.latencies),
        peak=turn.peak,
        waiting=median(turn.waiting),
        ratio=_ratio(first.cpu, turn.cpu) if first else None,
        waiting_ratio=_ratio(first.waiting, turn.waiting) if first else None,
        generator_busy=turn.busy,
    )


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of what all rounds have."""
    names = [name for name in LATENCIES if rounds and all(name in each for each in rounds)]
    return {name: median(each[name] for each in rounds) for name in names}


def _ratio(first: Sequence[float], other: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(ours / theirs for ours, theirs in zip(first, other, strict=True))


def _turn(contest: Contest, side: Side, plan: Plan, started: Started, load: Generator) -> Turn:
    server = started.server(f"{contest.pair}: {side.name}", lambda: side.start(started))
    files = requests(started.folder, side.form, server.address, contest.size)
    wanted = Load(server.address, files, contest.in_flight, plan.seconds, side.form.method, warm_up=WARM_UP)
    check(wanted, side.form, contest.size, started.folder, load)
    fits = contest.size <= WRK_SIZE and contest.in_flight <= WRK_IN_FLIGHT and plan.seconds >= 1
    program = wrk.program() if plan.use_wrk and fits else None
    if contest.size >= LARGE:
        wanted = replace(wanted, warm_up=contest.in_flight)
    return Turn(side, server, wanted, Watched(server.pid), started.folder, program)


WARM_UP = 64
"""Requests on the connections of a turn before it."""
LARGE = 100_000


def requests(folder: Path, form: AnyForm, address: str, size: int) -> list[str]:
    """Files with random payloads."""
    files: list[str] = []
    written = 0
    for seed in range(form.pool):
        file = folder / f"request-{address.replace(':', '-')}-{form.name.replace(' ', '-')}-{size}-{seed}"
        if not file.exists():
            file.write_bytes(form.request(address, size, seed))
        files.append(str(file))
        written += file.stat().st_size
        if written > POOL_BYTES and seed > 0:
            break
    return files


def check(load: Load, form: AnyForm, size: int, folder: Path, generator: Generator) -> None:
    """Send one request.

    Raises:
        WrongReplyError: the reply has other numbers.
    """
    reply = folder / "reply"
    reply.unlink(missing_ok=True)
    generator.prepare(replace(load, in_flight=1, seconds=0.0, warm_up=1, reply=str(reply)))
    generator.leave()
    if difference := form.difference(size, reply.read_bytes()):
        raise WrongReplyError(f"{load.address}: {difference}")
