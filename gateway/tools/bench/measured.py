"""The measurements of a run: `Load` fills a Measured, and `report` prints it. A LatencyHistogram counts any number of
durations with a bounded error and little memory."""

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np

BATCH = 4096
"""Number of durations to collect before adding them to a histogram as one batch."""


class Measured:
    """The requests of a run, or of several merged runs. The figures exclude warm-up requests.

    - `latency`: Durations of successful requests, from the scheduled time to the complete response.
    - `service`: Durations of successful requests, from the time of sending.
    - `failed`: Durations of failed requests, from the scheduled time.
    - `lag`: Delays caused by the generator itself, for all requests.
    - `errors`, `examples`: By status, the number of errors and the message of the first error.
    - `waited`: Number of requests that the generator sent late because `in_flight` requests were in flight.
    - `unsent`: Number of requests that were due before the end, but were never sent for the same reason.
    - `cut`: Number of requests that were in flight when the run was interrupted.
    - `sent_bytes`, `received_bytes`: Size of messages, without HTTP heads and framing.
    - `seconds`: Duration of the measurement.
    - `cpu`: The generator's CPU time during the measurement, in all processes.
    - `processes`: Number of generators.
    """

    def __init__(self) -> None:
        self.latency = LatencyHistogram()
        self.service = LatencyHistogram()
        self.failed = LatencyHistogram()
        self.lag = LatencyHistogram()
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.waited = self.unsent = self.cut = 0
        self.sent_bytes = self.received_bytes = 0
        self.seconds = self.cpu = 0.0
        self.processes = 1
        self._latencies: list[float] = []
        self._services: list[float] = []
        self._lags: list[float] = []

    @property
    def succeeded(self) -> int:
        """The number of successes."""
        return self.latency.count + len(self._latencies)

    @property
    def failures(self) -> int:
        """The number of errors."""
        return sum(self.errors.values())

    @property
    def requests(self) -> int:
        """The number of completed requests."""
        return self.succeeded + self.failures

    @property
    def rate(self) -> float:
        """The number of completed requests per second."""
        return self.requests / self.seconds if self.seconds else 0.0

    def succeed(self, latency: float, service: float, lag: float) -> None:
        """Count a success."""
        self._latencies.append(latency)
        self._services.append(service)
        self._lags.append(lag)
        if len(self._lags) >= BATCH:
            self.settle()

    def fail(self, status: str, text: str, latency: float, lag: float) -> None:
        """Count an error."""
        self.errors[status] = self.errors.get(status, 0) + 1
        self.examples.setdefault(status, text)
        self.failed.add([latency])
        self._lags.append(lag)

    def settle(self) -> None:
        """Add the collected durations to the histograms. Call this method before you read the histograms."""
        for histogram, kept in (
            (self.latency, self._latencies),
            (self.service, self._services),
            (self.lag, self._lags),
        ):
            histogram.add(kept)
            kept.clear()

    def merge(self, other: "Measured", *, at_once: bool) -> None:
        """Add the measurements of another run, which ran in parallel if `at_once` is set, and otherwise later. Both
        runs must be settled."""
        for name in ("latency", "service", "failed", "lag"):
            getattr(self, name).merge(getattr(other, name))
        for status, number in other.errors.items():
            self.errors[status] = self.errors.get(status, 0) + number
            self.examples.setdefault(status, other.examples[status])
        self.waited += other.waited
        self.unsent += other.unsent
        self.cut += other.cut
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
        self.cpu += other.cpu
        if at_once:
            self.seconds = max(self.seconds, other.seconds)
            self.processes += other.processes
        else:
            self.seconds += other.seconds


HALF = 1024
"""Number of buckets per doubling."""
RELATIVE_ERROR = 1 / HALF
LONGEST = 2**43 - 1
"""Maximum duration: 2.4 hours, in ns. Longer durations count as this maximum."""

_BUCKETS = 2 * HALF + (43 - 11) * HALF


class LatencyHistogram:
    """Durations in seconds, each counted in one bucket. `sum`, `least` and `most` are exact.

    The buckets match an HdrHistogram with three significant digits. Each duration below 2048 ns has its own bucket.
    Above 2048 ns, each doubling has 1024 buckets of the same width. A value read from the histogram is therefore at
    most 1/1024 too large. The HdrHistogram library takes 1.8 us for each value; this class adds values in batches."""

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
        """The mean duration, or 0 without durations."""
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
        """Return the duration that `percent` of all durations do not exceed, or 0 without durations. The result is at
        most RELATIVE_ERROR too large."""
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
        """Return the total count of the buckets from the bucket of `low` (inclusive) to the bucket of `high`
        (exclusive)."""
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
