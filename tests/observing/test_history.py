"""The hour of history behind the console's charts."""

import numpy as np
import pytest

from gateway.core.record import Record
from gateway.observing import history
from gateway.observing.counters import LATENCY_BOUNDS, Counters
from gateway.observing.history import (
    ALL,
    ERRORS,
    IN_FLIGHT,
    MEDIAN,
    P99,
    REQUESTS,
    STAGE,
    STEPS,
    WAITING,
    History,
    Part,
    PartLoad,
    quantile,
)
from gateway.observing.stages import STAGES
from tests import records
from tests.observing.ended import ended


def record(
    route: str = "route-0", backend: str = "lab", seconds: float = 0.01, *, failed: bool = False, rejected: bool = False
) -> Record:
    found = records.made([], "id", "http", "v2-rest", "c:1", 10.0, 5)
    records.route(found, route, backend, "h:1")
    return ended(found, seconds, failed=failed, rejected=rejected)


class Kept:
    """A history with its counters, of which each step has these requests."""

    def __init__(self) -> None:
        self.counters, self.history, self.now = Counters(), History(), 1000.0

    def step(self, *ended: Record) -> None:
        if ended:
            self.counters.count(records.batch(*ended))
        self.now += 10
        self.history.end_step(self.counters.news(), self.now, 10.0)

    def row(self, row: int, part: Part = ALL) -> list[float]:
        found: list[float] = self.history.steps(part).values[row].tolist()
        return found


def test_each_step_has_what_was_counted_in_it() -> None:
    kept = Kept()
    kept.step(record(rejected=True), record(failed=True))
    kept.step()
    kept.step(record("route-1", "other"), record())
    assert kept.history.steps().times.tolist() == [1010, 1020, 1030]
    assert (kept.row(REQUESTS), kept.row(ERRORS)) == ([2, 0, 2], [1, 0, 0])
    assert kept.row(REQUESTS, ("route", "route-1")) == [0, 0, 1]
    assert kept.row(REQUESTS, ("backend", "lab")) == [2, 0, 1]
    assert kept.row(REQUESTS, ("listener", "http")) == [2, 0, 2]
    assert kept.row(REQUESTS, ("route", "route-7")) == [0, 0, 0]


def test_counts_of_another_process_are_in_the_step_in_which_they_come() -> None:
    kept, worker = Kept(), Counters()
    for number in (1, 2):
        worker.count(records.batch(*[record()] * number))
        kept.counters.add(worker.take())
        kept.step()
    assert kept.row(REQUESTS) == [1, 2]


def test_latencies_are_those_of_the_step_and_unknown_without_requests() -> None:
    kept = Kept()
    kept.step(*[record(seconds=0.01)] * 98, *[record(seconds=5.0)] * 2)
    kept.step()
    kept.step(record(seconds=1.0))
    median, slow = kept.row(MEDIAN), kept.row(P99)
    assert 0.006 < median[0] <= 0.0101
    assert 3.9 < slow[0] <= 6.4
    assert np.isnan(median[1])
    assert np.isnan(slow[1])
    assert 0.6 < median[2] <= 1.0


def test_the_mean_time_of_each_stage_is_that_of_the_step() -> None:
    kept = Kept()
    slow, fast = record(seconds=1.0), record(seconds=0.5)
    slow.upstream, slow.queued, slow.decode = 0.5, 0.25, 0.125
    kept.step(slow, fast)
    kept.step()
    kept.step(fast)
    rows = {name: kept.row(STAGE + at) for at, name in enumerate(STAGES)}
    assert {name: row[0] for name, row in rows.items() if name != "writing"} == {
        "queue": 0.125, "server": 0.25, "gateway": 0.375, "reading": 0.125,
    }  # fmt: skip
    assert np.isnan([row[1] for row in rows.values()]).all()
    assert (rows["server"][2], rows["gateway"][2]) == (0, 0.5)
    assert np.isnan(rows["writing"]).all()


def test_of_loads_the_highest_of_the_step_is_kept() -> None:
    kept = Kept()
    for in_flight, waiting in ((3, 0), (7, 2), (1, 1)):
        kept.history.observe({ALL: PartLoad(in_flight, waiting), ("backend", "lab"): PartLoad(in_flight, waiting)})
    kept.step()
    kept.step()
    assert (kept.row(IN_FLIGHT), kept.row(WAITING)) == ([7, 0], [2, 0])
    assert kept.row(WAITING, ("backend", "lab")) == [2, 0]


def test_an_hour_is_kept_and_no_more() -> None:
    kept = Kept()
    for _ in range(STEPS + 5):
        kept.step(record())
    found = kept.history.steps()
    assert len(found.times) == found.values.shape[1] == STEPS
    assert (found.times[0], found.times[-1]) == (1060, 1000 + 10 * (STEPS + 5))


def test_names_that_come_and_go_do_not_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_SERIES", 4)
    kept = Kept()
    kept.step(*[record(f"routes[{at}]", f"lab{at}") for at in range(10)])
    assert sum(kept.row(REQUESTS, ("backend", f"lab{at}")) == [1] for at in range(10)) < 4
    assert kept.row(REQUESTS) == [10]
    for _ in range(STEPS):
        kept.step()
    kept.step(record("route-20", "late"))  # those that had no request for an hour have made room
    assert kept.row(REQUESTS, ("backend", "late"))[-1] == 1


@pytest.mark.parametrize(
    ("counts", "part", "low", "high"),
    [
        ({6: 1}, 0.5, LATENCY_BOUNDS[5], LATENCY_BOUNDS[6]),
        ({6: 99, 20: 1}, 0.99, LATENCY_BOUNDS[6], LATENCY_BOUNDS[6]),
        ({6: 98, 20: 2}, 0.99, LATENCY_BOUNDS[19], LATENCY_BOUNDS[20]),
        ({31: 1}, 0.5, 100.0, 100.0),
    ],
)
def test_a_quantile_is_right_within_its_bucket(counts: dict[int, int], part: float, low: float, high: float) -> None:
    latencies = [counts.get(at, 0) for at in range(len(LATENCY_BOUNDS) + 1)]
    assert low * 0.999 <= quantile(latencies, part) <= high * 1.001


def test_there_is_no_quantile_without_requests() -> None:
    assert np.isnan(quantile([0] * (len(LATENCY_BOUNDS) + 1), 0.5))
