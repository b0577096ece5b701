"""Counting values in buckets, for the histograms of the metrics page."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TypeAlias

from prometheus_client.samples import Exemplar

LONGEST_ID = 100
"""Characters of the longest id that becomes an exemplar: OpenMetrics allows 128 for names and values together."""

Bucket: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]


class Histogram:
    """How many values fell into each bucket, and their sum. One thread adds; others may read at any time, and see at
    worst a sum that is one value behind.

    - `counts`: one more than there are bounds; each value is counted in one bucket only.
    - `exemplars`: the last value of each bucket, with the id of its request and its time; empty where nobody sets it.
    """

    __slots__ = ("_place", "bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._place = partial(bisect_left, bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}

    def add(self, values: Sequence[float]) -> list[int]:
        """Count values. Returns the place of the bucket of each."""
        found, counts = list(map(self._place, values)), self.counts
        for at in set(found):
            counts[at] += found.count(at)
        self.sum += sum(values)
        return found

    def buckets(self, epoch: float = 0.0) -> list[Bucket]:
        """Bounds and cumulative counts, as HistogramMetricFamily wants them. `epoch` is the Unix time at which the
        clock of the exemplars was 0."""
        found: list[Bucket] = []
        below = 0
        for at, (bound, count) in enumerate(zip((*self.bounds, inf), self.counts.copy(), strict=True)):
            below += count
            last = self.exemplars.get(at)
            if last is None or not 0 < len(last[0]) <= LONGEST_ID:
                found.append((_text(bound), below))
            else:
                exemplar = Exemplar({"request_id": last[0]}, last[1], round(epoch + last[2], 3))
                found.append((_text(bound), below, exemplar))
        return found


def _text(bound: float) -> str:
    """The value of the label `le`."""
    return "+Inf" if bound == inf else repr(float(bound))
