"""Counts any number of durations with a bounded error and little memory.

The buckets match an HdrHistogram with three significant digits. Each duration below 2048 ns has its own bucket. Above
2048 ns, each doubling has 1024 buckets of the same width. A value read from the histogram is therefore at most 1/1024
too large. The HdrHistogram library takes 1.8 us for each value; this module adds values in batches.
"""

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np

HALF = 1024
"""Number of buckets per doubling."""
RELATIVE_ERROR = 1 / HALF
LONGEST = 2**43 - 1
"""Maximum duration: 2.4 hours, in ns. Longer durations count as this maximum."""

_BUCKETS = 2 * HALF + (43 - 11) * HALF


class LatencyHistogram:
    """Durations in seconds, each counted in one bucket. `sum`, `least` and `most` are exact."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BUCKETS, np.int64)
        self.sum = 0.0
        self.least = float("inf")
        self.most = 0.0

    @property
    def count(self) -> int:
        """The number of added durations."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean duration, or 0 if there are no durations."""
        return self.sum / count if (count := self.count) else 0.0

    def add(self, seconds: Sequence[float]) -> None:
        """Count durations. Negative durations count as 0."""
        if not seconds:
            return
        values = np.maximum(np.asarray(seconds), 0.0)
        self.sum += float(values.sum())
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        self.counts += np.bincount(_places(values), minlength=_BUCKETS)

    def merge(self, other: "LatencyHistogram") -> None:
        """Add the durations of another LatencyHistogram."""
        self.counts += other.counts
        self.sum += other.sum
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    def percentile(self, percent: float) -> float:
        """Return the duration that `percent` of all durations do not exceed, or 0 if there are no durations. The result
        is at most RELATIVE_ERROR too large."""
        count = self.count
        if not count:
            return 0.0
        rank = max(1, ceil(round(percent / 100 * count, 6)))
        place = int(np.searchsorted(np.cumsum(self.counts), rank))
        return min(_upper(place) / 1e9, self.most)

    def buckets(self) -> Iterator[tuple[float, float, int]]:
        """Yield the minimum duration, the maximum duration and the count of each nonempty bucket."""
        for place in np.flatnonzero(self.counts).tolist():
            yield _lower(place) / 1e9, _upper(place) / 1e9, int(self.counts[place])

    def between(self, low: float, high: float) -> int:
        """Return the total count of the buckets from the bucket of `low` (included) to the bucket of `high`
        (excluded)."""
        first, end = _places(np.array([low, high])).tolist()
        return int(self.counts[first:end].sum())


def _places(seconds: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the index of each duration's bucket."""
    values = np.minimum(np.rint(seconds * 1e9), LONGEST).astype(np.int64)
    doublings = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - 11, 0)
    return np.asarray(doublings * HALF + (values >> doublings), np.int64)


def _lower(place: int) -> int:
    """Return the minimum value of a bucket, in ns."""
    doublings = max(place // HALF - 1, 0)
    return (place - doublings * HALF) << doublings


def _upper(place: int) -> int:
    """Return the maximum value of a bucket, in ns."""
    return _lower(place + 1) - 1
