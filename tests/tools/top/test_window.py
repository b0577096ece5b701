"""Rates and latencies of the last seconds."""

from typing import Any

import pytest

from gateway.tools.top.window import TrafficWindow, WindowFigures

BOUNDS = (0.001, 0.01, 0.1)


def path(
    ok: int, failed: int = 0, endpoint: str = "a:1", latencies: dict[str, int] | None = None, rejected: int = 0
) -> dict[str, Any]:
    """A PathTraffic."""
    return {
        "listener": "http", "route": "route-0", "backend": "lab", "endpoint": endpoint, "ok": ok,
        "failed": {"internal": failed} if failed else {},
        "rejected": {"INVALID_ARGUMENT": rejected} if rejected else {},
        "latencies": latencies or {},
    }  # fmt: skip


def whole(window: TrafficWindow) -> WindowFigures:
    return window.figures(lambda way: "all", BOUNDS)["all"]


def test_rates_are_those_between_the_first_and_the_last_reading() -> None:
    window = TrafficWindow()
    window.take(100.0, [path(10, 5)])
    assert whole(window).rate is None
    window.take(102.0, [path(20, 9)])
    window.take(104.0, [])
    found = whole(window)
    assert (found.rate, found.error_rate, found.failed) == (3.5, 1.0, 4 / 14)
    assert (found.total_requests, found.total_errors) == (29, 9)


def test_errors_of_callers_are_no_failures() -> None:
    window = TrafficWindow()
    window.take(100.0, [path(10, 5, rejected=1)])
    window.take(102.0, [path(15, 6, rejected=5)])
    found = whole(window)
    assert (found.requests, found.failed, found.rejected_share, found.rejected_rate) == (10, 0.1, 0.4, 2.0)
    assert (found.total_requests, found.total_errors, found.total_rejected) == (26, 6, 5)


def test_what_began_after_the_first_reading_is_counted_from_its_begin() -> None:
    window = TrafficWindow()
    window.take(100.0, [path(10)])
    window.take(102.0, [path(6, endpoint="b:1")])
    by_endpoint = window.figures(lambda way: way[3], BOUNDS)
    assert {name: each.rate for name, each in by_endpoint.items()} == {"a:1": 0.0, "b:1": 3.0}


def test_older_readings_than_ten_seconds_are_forgotten() -> None:
    window = TrafficWindow()
    for second in range(0, 31, 2):
        window.take(100.0 + second, [path(second * second)])
    assert window.seconds == 10.0
    assert whole(window).rate == (30 * 30 - 20 * 20) / 10


def test_after_a_long_pause_it_begins_anew_and_keeps_the_totals() -> None:
    window = TrafficWindow()
    window.take(100.0, [path(10), path(7, endpoint="b:1")])
    window.take(200.0, [path(1000)])
    assert (window.seconds, whole(window).rate, whole(window).total_requests) == (0.0, None, 1007)


@pytest.mark.parametrize(
    ("latencies", "part", "least", "most"),
    [
        ({"0": 100}, 0.5, 0.0005, 0.001),
        ({"0": 50, "2": 50}, 0.99, 0.09, 0.1),
        ({"1": 99, "3": 1}, 0.999, 0.1, 0.1),
        ({"1": 100}, 0.0001, 0.001, 0.0011),
    ],
)
def test_a_quantile_is_within_its_bucket(latencies: dict[str, int], part: float, least: float, most: float) -> None:
    window = TrafficWindow()
    window.take(100.0, [])
    window.take(101.0, [path(sum(latencies.values()), latencies=latencies)])
    found = whole(window).quantile(part)
    assert found is not None
    assert least <= found <= most


def test_without_requests_there_are_no_latencies_and_no_share() -> None:
    nothing = WindowFigures(2.0, BOUNDS)
    assert (nothing.rate, nothing.failed, nothing.quantile(0.5)) == (0.0, None, None)
