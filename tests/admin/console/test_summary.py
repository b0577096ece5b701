"""The last requests of a part in figures."""

import pytest

from gateway.admin.console.requests import RequestSummary, SummarisedPart, summary
from gateway.core.record import Record
from gateway.observing.recent import RecentRequests
from tests import records
from tests.observing.ended import ended


def record(
    model: str, seconds: float, *, route: str = "route-0", failed: bool = False, rejected: bool = False
) -> Record:
    found = records.made(id=model, listener="http", received=10.0)
    found.model, found.operation, found.principal = model, "infer", "alice"
    found.upstream, found.queued = seconds / 2, seconds / 4
    records.route(found, route, "lab", "h:1")
    return ended(found, seconds, failed=failed, rejected=rejected)


@pytest.fixture
def kept() -> RecentRequests:
    found = RecentRequests()
    found.keep(records.batch(*[record("double", each / 100) for each in range(1, 101)], record("dou", 2.0)))
    found.keep(records.batch(record("double", 4.0, route="route-1", failed=True)))
    return found


def of(kept: RecentRequests, kind: SummarisedPart = "", name: str = "") -> RequestSummary:
    return RequestSummary.model_validate(summary(kept, kind, name, 0.0))


def test_times_are_those_of_the_part_and_its_stages(kept: RecentRequests) -> None:
    found = of(kept, "route", "route-0")
    assert (found.requests, found.of, found.failed) == (101, 102, 0)
    assert (found.total.median, found.total.p95, found.total.p99) == (0.51, 0.96, 1.0)
    assert (found.stages["server"].median, found.stages["queue"].p99) == (0.255, 0.25)
    assert found.stages["gateway"].mean == pytest.approx((50.5 + 2) / 101 / 4)
    assert (found.stages["reading"].requests, found.stages["reading"].mean) == (0, None)


def test_a_part_of_a_name_is_another_model(kept: RecentRequests) -> None:
    found = of(kept, "model", "dou")
    assert (found.requests, found.total.mean) == (1, 2.0)
    assert of(kept, "model", "double").names["route"] == ["route-0", "route-1"]
    assert of(kept, "principal", "alice").names["model"] == ["double", "dou"]


def test_failures_that_are_kept_longer_are_not_counted_as_if_they_were_frequent(kept: RecentRequests) -> None:
    assert of(kept).failed == 1
    assert of(kept).rejected == 0
    kept.keep(records.batch(record("double", 0.01, rejected=True)))
    assert (of(kept).failed, of(kept).rejected) == (1, 1)
    for _ in range(4):
        kept.keep(records.batch(*[record("double", 0.01)] * 300))
    assert (of(kept).failed, of(kept, "model", "dou").requests) == (0, 0)


def test_an_error_that_passed_undecoded_is_the_servers_from_500_on() -> None:
    found = RecentRequests()
    for code in (404, 500, 502):
        failed = record("double", 1.0, failed=True)
        failed.status, failed.reason, failed.code = "OK", "", code
        found.keep(records.batch(failed))
    assert (of(found).failed, of(found).rejected) == (2, 1)


def test_of_nothing_nothing_is_told() -> None:
    found = of(RecentRequests(), "model", "double")
    assert (found.requests, found.of, found.since, found.total.median) == (0, 0, None, None)
