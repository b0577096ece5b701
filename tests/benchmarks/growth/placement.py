"""What a backend with `placement` costs as its models and servers grow: the function calls of a request, the time of
the loop that a server takes which joins, tells what it has, or leaves, and the memory of a model.

The servers are scripted and in this process, so that 100 of them cost nothing but what the gateway does. The counts
depend on the version of Python and not on the machine; the milliseconds are CPU, the least of some rounds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median_low
from time import process_time

from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.routing.placement.inventory import stock_of
from gateway.routing.placement.plan import LoadSettings
from tests.benchmarks.calls import Counts
from tests.routing.placement.servers import Fleet, Server

MODELS, SERVERS, COPIES = 5000, 100, 3
LOOP_AIM = 50.0
"""Milliseconds of the loop for a server that joins or leaves."""
REQUESTS, ROUNDS = 50, 5


@dataclass(frozen=True)
class Grown:
    """One row: the figure of one model on one server, and that of many."""

    row: str
    one: float | None
    many: float
    unit: str

    def shown(self) -> str:
        one = "" if self.one is None else f"{self.one:.1f}"
        return f"{self.row:66}{one:>10}{self.many:10.1f}  {self.unit}"


def heading() -> str:
    title = f"placement: {MODELS:,} models on {SERVERS} servers, {COPIES} copies each; aim {LOOP_AIM:g} ms of the loop"
    return f"{title}\n{'':66}{'one':>10}{'many':>10}"


def measure() -> Iterator[Grown]:
    one, many = asyncio.run(calls(1, 1, 1)), asyncio.run(calls(MODELS, SERVERS, COPIES))
    yield Grown("a request, calls in Python", one.python, many.python, "calls")
    yield Grown("a request, calls in C", one.c, many.c, "calls")
    share, all_models = MODELS * COPIES // SERVERS, f"{MODELS:,}"
    for of, fleet_of in (
        (f"with {share} models", partial(fleet, MODELS, SERVERS, COPIES)),
        (f"with {share} models of a repository of {all_models}", partial(fleet, MODELS, SERVERS, COPIES, listed=True)),
        (f"with {all_models} that nobody else has", lone_holder),
    ):
        for name, seconds in asyncio.run(_turns(fleet_of)).items():
            yield Grown(f"{name}, {of}", None, 1e3 * seconds, "ms")
    seconds = asyncio.run(_look())
    yield Grown("models on demand: the loader looks at everything, once a second", None, 1e3 * seconds, "ms")
    for models in (MODELS // 10, MODELS):
        yield Grown(f"memory of a model, {models:,} of them", None, memory(models) / 1024, "KiB")


def fleet(models: int, servers: int, copies: int, *, listed: bool = False, load: LoadSettings | None = None) -> Fleet:
    """So many servers; each model is on `copies` of them, which differ from model to model. With `listed` all servers
    list all models in their repositories."""
    names = [f"model-{at}" for at in range(models)]
    held: list[list[str]] = [[] for _ in range(servers)]
    for at, name in enumerate(names):
        for copy in range(copies):
            held[(at + copy * (1 + at // servers)) % servers].append(name)
    made = (Server(f"server-{at}", each, names if listed else ()) for at, each in enumerate(held))
    return Fleet(*made, load=load)


async def calls(models: int, servers: int, copies: int) -> Counts:
    """The calls of one request for a model, the median of some for models here and there."""
    each = await fleet(models, servers, copies).asked()
    wanted = [f"model-{at * models // REQUESTS}" for at in range(REQUESTS)]
    counts = []
    for model in [*wanted, *wanted]:  # the first request for a model makes its choice
        found = Counts()
        request = Request(Operation.INFER, model)
        sys.setprofile(found.count)
        try:
            await each.backend(request)
        finally:
            sys.setprofile(None)
        counts.append(found)
    last = counts[REQUESTS:]
    return Counts(median_low(each.python for each in last), median_low(each.c for each in last))


async def _look() -> float:
    """The seconds in which the loader looks whether models are idle, too many, or in such demand that they need
    copies; nothing is to be done."""
    settings = LoadSettings(max_models=2 * MODELS * COPIES // SERVERS, max_copies=COPIES, idle=600.0)
    each = await fleet(MODELS, SERVERS, COPIES, listed=True, load=settings).asked()
    return min(_timed(each.loader.tick) for _ in range(ROUNDS))


def lone_holder() -> Fleet:
    """One server with all models, and many with none."""
    names = [f"model-{at}" for at in range(MODELS)]
    return Fleet(Server("server-0", names), *(Server(f"server-{at}") for at in range(1, SERVERS)))


async def _turns(fleet_of: Callable[[], Fleet]) -> dict[str, float]:
    """The seconds of CPU that the loop has no turn for others, by what happens."""
    least: dict[str, float] = {}
    each = await fleet_of().asked()
    for _ in range(ROUNDS):
        for name, seconds in (await _round(each)).items():
            least[name] = min(seconds, least.get(name, seconds))
    return least


async def _round(each: Fleet) -> dict[str, float]:
    """A server leaves, comes back, and tells what it has; then it tells it again, and that it has lost everything."""
    backend, endpoint = each.backend, each.endpoints[0]
    table, clock = each.slots.placements, each.clock
    server = each.servers[0]
    entries = tuple(ModelEntry(*entry) for entry in server._index())
    stock = partial(stock_of, entries, tells_states=False)
    clock.now += 1.0
    found = {"leaves": _timed(lambda: backend.remove(endpoint))}
    found["joins"] = _timed(lambda: backend.add(endpoint))
    await each.asked()
    table.leave(endpoint)
    table.join(endpoint)
    found["tells what it has"] = _timed(lambda: table.reported(endpoint, stock(), table.moment))
    found["tells the same again"] = _timed(lambda: table.reported(endpoint, stock(), table.moment))
    clock.now += 1.0
    nothing = stock_of((), tells_states=False)
    found["has lost everything"] = _timed(lambda: table.reported(endpoint, nothing, table.moment))
    clock.now += 1.0
    await each.asked()
    found["a client lists all"] = _timed(table.entries)
    return found


def _timed(work: Callable[[], object]) -> float:
    gc.disable()
    try:
        began = process_time()
        work()
        return process_time() - began
    finally:
        gc.enable()


def memory(models: int) -> float:
    """Bytes of the table for each model, beside what its servers and endpoints take."""

    async def bytes_of() -> float:
        each = fleet(models, SERVERS, COPIES)
        gc.collect()
        tracemalloc.start()
        try:
            await each.asked()
            for server in each.servers:
                server.events.clear()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / models
        finally:
            tracemalloc.stop()

    return asyncio.run(bytes_of())
