"""The histogram of latencies: its error is bounded, and merging loses nothing."""

import random
from itertools import pairwise

import pytest

from gateway.tools.bench.measured import BATCH, RELATIVE_ERROR, LatencyHistogram, Measured


def durations() -> list[float]:
    chance = random.Random(1)
    return [chance.lognormvariate(-6, 2) for _ in range(10_000)]


def of(seconds: list[float]) -> LatencyHistogram:
    found = LatencyHistogram()
    found.add(seconds)
    return found


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 99.9, 100])
def test_percentiles_are_those_of_the_values_within_the_error(percent: float) -> None:
    values = sorted(durations())
    exact = values[max(0, round(percent / 100 * len(values)) - 1)]
    found = of(values).percentile(percent)
    assert exact * (1 - 1e-9) - 1e-9 <= found <= exact * (1 + RELATIVE_ERROR) + 1e-9


def test_every_value_is_in_a_bucket_that_holds_it() -> None:
    for value in (0.0, 1e-9, 2.047e-6, 2.048e-6, 2.049e-6, 4.096e-6, 0.001, 1.0, 59.999, 3600.0):
        ((low, high, count),) = of([value]).buckets()
        assert count == 1
        assert low - 1e-12 <= value <= high + 1e-12
        assert high - low <= max(value * RELATIVE_ERROR, 1e-9)


def test_buckets_do_not_overlap_and_hold_all() -> None:
    buckets = list(of(durations()).buckets())
    assert sum(count for _, _, count in buckets) == 10_000
    assert all(before[1] < after[0] for before, after in pairwise(buckets))


def test_merged_histograms_are_that_of_all_values() -> None:
    values = durations()
    merged = of(values[:3000])
    merged.merge(of(values[3000:]))
    whole = of(values)
    assert list(merged.buckets()) == list(whole.buckets())
    assert (merged.least, merged.most) == (min(values), max(values))
    assert merged.mean == pytest.approx(sum(values) / len(values))


def test_the_errors_of_two_runs_are_added_and_the_first_example_is_kept() -> None:
    one, other = Measured(), Measured()
    one.fail("UNAVAILABLE", "the first", 0.5, 0.0)
    other.fail("UNAVAILABLE", "the second", 0.5, 0.0)
    other.fail("INTERNAL", "the third", 0.5, 0.0)
    one.merge(other, at_once=True)
    assert one.errors == {"UNAVAILABLE": 2, "INTERNAL": 1}
    assert one.examples == {"UNAVAILABLE": "the first", "INTERNAL": "the third"}
    assert (one.failures, one.failed.count, one.processes) == (3, 3, 2)


def test_many_durations_are_counted_in_batches() -> None:
    found = Measured()
    for _ in range(BATCH + 1):
        found.succeed(0.5, 0.4, 0.1)
    assert (found.succeeded, found.latency.count) == (BATCH + 1, BATCH)
    found.settle()
    found.settle()  # nothing is left to count
    assert [each.count for each in (found.latency, found.service, found.lag)] == [BATCH + 1] * 3


def test_nothing_was_measured() -> None:
    empty = LatencyHistogram()
    assert (empty.count, empty.mean, empty.percentile(99), list(empty.buckets())) == (0, 0.0, 0.0, [])


def test_what_takes_for_ever_counts_as_the_longest() -> None:
    assert of([1e6]).count == 1
