"""The rows of the overview."""

from typing import Any

import pytest

from gateway.core.frozen import replace
from gateway.tools.top.rows import as_json, cells, condition, ordered, overview, rate, seconds, share
from gateway.tools.top.window import TrafficWindow
from tests.tools.top.overviews import TOPOLOGY, endpoint, seen, way


def test_each_kind_has_its_requests_calls_and_health() -> None:
    found = seen(
        [endpoint("a:1", "up", 2), endpoint("b:1", "down", last_error="connection refused")],
        [way("a:1", 20), way("b:1", 4, failed=4), way("", 2, route="", backend="", rejected=2)],
    )
    shown = {(each.kind, each.name): (each.about, *cells(each)) for each in found.rows}
    about = "127.0.0.1:80 v2-rest"
    assert shown["listener", "http"] == (about, "13/s", "15%", "7.7%", "0.79 ms", "1.00 ms", "3", "-", "-")
    assert shown["route", "route-0"][:4] == ("[bold], header team=red", "12/s", "17%", "0%")
    assert shown["route", "route-1"][:3] == ("every request", "0/s", "-")
    assert shown["route", "models.sum"][:2] == ("sum", "0/s")
    assert shown["backend", "lab"][1:3] + shown["backend", "lab"][6:] == ("12/s", "17%", "2", "4", "1/2 up")
    assert shown["endpoint", "a:1"][1] == "10/s"
    assert shown["endpoint", "b:1"][:3] == ("lab: connection refused", "2.0/s", "100%")
    assert (found.all.rate, found.all.errors, found.in_flight, found.waiting) == (13.0, 4, 3, 4)


def test_steps_of_graphs_count_at_their_backends_alone() -> None:
    graph = way("", 2, route="models.sum", backend="")
    steps = {**way("a:1", 6, failed=1, route="models.sum"), "listener": ""}
    found = seen([endpoint("a:1", "up")], [graph, steps])
    rates = {each.name: each.figures.rate for each in found.rows if each.figures.rate}
    assert rates == {"http": 1.0, "models.sum": 1.0, "lab": 3.0, "a:1": 3.0}
    assert (found.all.rate, found.all.errors) == (1.0, 0)


def test_a_backend_that_starts_its_servers_is_well_without_any() -> None:
    traffic = {
        "ready": True, "shedding": 0, "listeners": {},
        "backends": {"lab": {"waiting": 0, "starts_servers": True, "endpoints": []}},
    }  # fmt: skip
    [lab, far] = overview(TOPOLOGY, traffic, TrafficWindow()).of("backend")
    assert (lab.level, far.level) == ("", "down")


@pytest.mark.parametrize(
    ("endpoints", "state", "level"),
    [
        ([endpoint("a:1", "up"), endpoint("b:1", "up")], "2/2 up", "ok"),
        ([endpoint("a:1", "up"), endpoint("b:1", "up", drain="draining")], "1/2 up", "ok"),
        ([endpoint("a:1", "up"), endpoint("b:1", "degraded")], "2/2 up", "degraded"),
        ([endpoint("a:1", "unknown")], "1/1 up", ""),
        ([endpoint("a:1", "down")], "0/1 up", "down"),
        ([], "0/0 up", "down"),
    ],
)
def test_a_backend_is_as_its_endpoints_are(endpoints: list[dict[str, Any]], state: str, level: str) -> None:
    lab = seen(endpoints, []).of("backend")[0]
    assert (lab.state, lab.level) == (state, level)


def test_rows_are_sorted_by_any_column_the_worst_first() -> None:
    found = seen(
        [endpoint("a:1", "up", 5), endpoint("b:1", "down"), endpoint("c:1", "up", drain="draining")],
        [way("a:1", 2), way("c:1", 8, failed=2)],
    ).of("endpoint")
    order = {key: [each.name for each in ordered(found, key)] for key in ("rate", "failed", "in-flight", "state")}
    assert order == {
        "rate": ["c:1", "a:1", "b:1"],
        "failed": ["c:1", "a:1", "b:1"],
        "in-flight": ["a:1", "b:1", "c:1"],
        "state": ["b:1", "c:1", "a:1"],
    }
    assert [each.name for each in ordered(found, "name", is_reversed=True)] == ["c:1", "b:1", "a:1"]


def test_json_has_numbers_and_null_for_what_is_not_known() -> None:
    found = as_json(seen([endpoint("b:1", "down", last_error="refused")], [way("b:1", 4, failed=3, rejected=1)]))
    assert found["requests_per_second"] == 2.0
    assert found["endpoints"] == [
        {
            "name": "b:1", "backend": "lab", "last_error": "refused", "state": "down", "requests_per_second": 2.0,
            "errors_per_second": 1.5, "rejected_per_second": 0.5, "median": pytest.approx(0.00079, abs=1e-5),
            "percentile_99": pytest.approx(0.001, abs=1e-5), "requests_since_start": 4, "errors_since_start": 3,
            "rejected_since_start": 1,
            "in_flight": 0, "waiting": None,
        }
    ]  # fmt: skip
    assert (found["routes"][-1]["in_flight"], found["routes"][-1]["median"]) == (None, None)
    assert found["backends"][0]["serving"] == 0


def test_numbers_as_people_read_them() -> None:
    assert [rate(each) for each in (None, 0.0, 0.05, 9.96, 999.6, 12345.0)] == [
        *("-", "0/s", "<0.1/s", "10/s", "1000/s", "12.3k/s"),
    ]
    assert [share(each) for each in (None, 0.0, 0.0001, 0.025, 1.0)] == ["-", "0%", "<0.1%", "2.5%", "100%"]
    assert [seconds(each) for each in (None, 0.00012, 0.0123, 0.5, 2.345, 61.0)] == [
        *("-", "0.12 ms", "12.3 ms", "500 ms", "2.35 s", "61 s"),
    ]


@pytest.mark.parametrize(
    ("change", "told"), [({}, "ready"), ({"ready": False}, "not ready"), ({"shedding": 2}, "overloaded")], ids=str
)
def test_the_condition_of_the_gateway(change: dict[str, Any], told: str) -> None:
    assert condition(replace(seen([], []), **change)) == told
