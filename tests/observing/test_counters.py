"""Counters of requests, for each way through the gateway."""

import pytest

from gateway.core.record import Record
from gateway.observing import counters
from gateway.observing.counters import LATENCY_BOUNDS, Counters, RequestCounts
from tests import records
from tests.observing.ended import ended


def record(
    endpoint: str = "h:1",
    seconds: float = 0.001,
    *,
    failed: bool = False,
    rejected: bool = False,
    route: str = "route-0",
) -> Record:
    found = records.made([], "id", "http", "v2-rest", "c:1", 10.0, 5)
    records.route(found, route, "lab" if route else "", endpoint)
    return ended(found, seconds, failed=failed, rejected=rejected)


def counters_of(*ended: Record) -> Counters:
    found = Counters()
    found.count(records.batch(*ended))
    return found


def test_requests_are_counted_for_each_way() -> None:
    counted = counters_of(record(), record(failed=True), record("h:2"), record("", route="", failed=True))
    found = {path.place: (path.succeeded, dict(path.failed)) for path in counted.paths()}
    assert found == {
        ("http", "route-0", "lab", "h:1"): (1, {"UNAVAILABLE": 1}),
        ("http", "route-0", "lab", "h:2"): (1, {}),
        ("http", "", "", ""): (0, {"UNAVAILABLE": 1}),
    }
    assert counted.of_listener("http").by_status == {"OK": 2, "UNAVAILABLE": 2}
    assert counted.of_backend("lab").by_status == {"OK": 2, "UNAVAILABLE": 1}
    assert counted.of_backend("other").by_status == {}
    assert counted.errors == len(counted.last_errors()) == 2


def test_steps_of_a_graph_count_at_their_backend_and_the_request_at_its_listener() -> None:
    graph, step, cancelled = record(route="models.m", failed=True), record("h:1", failed=True), record("h:2")
    records.route(graph, "models.m")
    for each in (step, cancelled):
        each.listener = ""
        records.route(each, "models.m", "lab", each.endpoint)
    cancelled.status, cancelled.reason = "CANCELLED", "cancelled"
    counted = counters_of(graph, step, cancelled)
    assert {path.place: (dict(path.failed), dict(path.rejected)) for path in counted.paths()} == {
        ("http", "models.m", "", ""): ({"UNAVAILABLE": 1}, {}),
        ("", "models.m", "lab", "h:1"): ({"UNAVAILABLE": 1}, {}),
        ("", "models.m", "lab", "h:2"): ({}, {"CANCELLED": 1}),
    }
    assert counted.of_listener("http").by_status == {"UNAVAILABLE": 1}
    assert counted.errors == 1
    assert [(each.listener, each.backend) for each in counted.last_errors()] == [("", "lab"), ("http", "")]


def test_errors_of_callers_are_counted_apart() -> None:
    counted = Counters()
    counted.add(counters_of(record(rejected=True), record(failed=True), record()))
    for path in (*counted.paths(), *counted.news()):
        assert (path.succeeded, path.failed, path.rejected) == (1, {"UNAVAILABLE": 1}, {"INVALID_ARGUMENT": 1})
    by_status = {"OK": 1, "UNAVAILABLE": 1, "INVALID_ARGUMENT": 1}
    assert counted.of_backend("lab") == counted.of_listener("http") == RequestCounts(by_status, failed=1, rejected=1)
    assert [each.fault for each in counted.last_errors()] == ["server", "caller"]
    assert counted.errors == 2


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.00009, 0), (0.0015, 6), (99.0, 30), (1000.0, 31)])
def test_latencies_are_counted_in_buckets(seconds: float, bucket: int) -> None:
    counted = counters_of(record(seconds=seconds))
    [path] = counted.paths()
    assert [at for at, count in enumerate(path.latencies) if count] == [bucket]
    assert len(path.latencies) == len(LATENCY_BOUNDS) + 1


def test_only_ways_that_have_changed_are_told() -> None:
    counted = counters_of(record("h:1", seconds=1), record("h:2", seconds=5))
    assert [path.place[3] for path in counted.paths(since=12)] == ["h:2"]


def test_endpoints_that_come_and_go_do_not_grow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_PATHS", 3)
    counted = counters_of(*[record(f"h:{number}") for number in range(10)])
    assert len(list(counted.paths())) == 4
    assert counted.of_backend("lab").by_status == {"OK": 10}
