"""Computes the rates and latencies of the last seconds from the counts in `/api/traffic`."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from gateway.core.frozen import frozen

SECONDS = 10.0
"""The length of the window, in seconds. The console uses the same length."""

Way: TypeAlias = tuple[str, str, str, str]
"""The path of a request: listener, route, backend and endpoint. An element is empty if the request did not reach it."""
K = TypeVar("K", bound=Hashable)


@frozen
class WayCounts:
    """The requests on one path since the gateway started. `latencies` contains the number of requests in each latency
    bucket, as in `/api/traffic`."""

    requests: int
    errors: int
    rejected: int
    latencies: Mapping[int, int]


NOTHING = WayCounts(0, 0, 0, {})


@frozen
class CountsReading:
    """The counts of all paths at `time`, which is in seconds on the gateway's clock."""

    time: float
    counts: Mapping[Way, WayCounts]


class WindowFigures:
    """The requests in a window of `seconds`, and since the start. `bounds` contains the upper bounds of the latency
    buckets, in seconds."""

    def __init__(self, seconds: float, bounds: Sequence[float]) -> None:
        self.requests = 0
        self.errors = 0
        self.rejected = 0
        self.total_requests = 0
        self.total_errors = 0
        self.total_rejected = 0
        self._seconds = seconds
        self._bounds = bounds
        self._latencies = [0] * (len(bounds) + 1)

    def add(self, before: WayCounts, after: WayCounts) -> None:
        """Add a path with these counts at the start and at the end of the window."""
        self.requests += after.requests - before.requests
        self.errors += after.errors - before.errors
        self.rejected += after.rejected - before.rejected
        self.total_requests += after.requests
        self.total_errors += after.errors
        self.total_rejected += after.rejected
        for bucket, count in after.latencies.items():
            self._latencies[bucket] += count - before.latencies.get(bucket, 0)

    @property
    def rate(self) -> float | None:
        """The number of requests per second; None if the window is empty."""
        return self.requests / self._seconds if self._seconds else None

    @property
    def error_rate(self) -> float | None:
        """The number of requests per second that ended with a server error; None if the window is empty."""
        return self.errors / self._seconds if self._seconds else None

    @property
    def failed(self) -> float | None:
        """The fraction of requests that ended with a server error; None without requests."""
        return self.errors / self.requests if self.requests else None

    @property
    def rejected_rate(self) -> float | None:
        """The number of requests per second that ended with a client error; None if the window is empty."""
        return self.rejected / self._seconds if self._seconds else None

    @property
    def rejected_share(self) -> float | None:
        """The fraction of requests that ended with a client error; None without requests."""
        return self.rejected / self.requests if self.requests else None

    def quantile(self, part: float) -> float | None:
        """Return the latency, in seconds, that the given fraction of the requests did not exceed, or None without
        requests. The latency is interpolated within its bucket."""
        wanted = part * sum(self._latencies)
        if not wanted:
            return None
        for bucket, count in enumerate(self._latencies):
            if count and wanted <= count:
                if bucket == len(self._bounds):
                    return self._bounds[-1]
                upper = self._bounds[bucket]
                lower = self._bounds[bucket - 1] if bucket else upper / 1.585
                return float(lower * (upper / lower) ** (wanted / count))
            wanted -= count
        return None


class TrafficWindow:
    """The readings from the last SECONDS."""

    def __init__(self) -> None:
        self._readings: deque[CountsReading] = deque()

    def clear(self) -> None:
        """Remove all readings, for example after a restart of the gateway."""
        self._readings.clear()

    def take(self, time: float, changed: Iterable[Mapping[str, Any]]) -> None:
        """Add a reading from `/api/traffic`, with all paths, or with only the paths that have changed since the
        previous reading. After a pause longer than the window, the window starts again, because the distribution of
        requests over the pause is unknown."""
        known = dict(self._readings[-1].counts) if self._readings else {}
        for each in changed:
            known[each["listener"], each["route"], each["backend"], each["endpoint"]] = _counts(each)
        if self._readings and time - self._readings[-1].time > SECONDS:
            self.clear()
        self._readings.append(CountsReading(time, known))
        while len(self._readings) > 1 and self._readings[1].time <= time - SECONDS:
            self._readings.popleft()

    @property
    def seconds(self) -> float:
        """The time from the first reading to the last reading."""
        return self._readings[-1].time - self._readings[0].time if self._readings else 0.0

    def figures(self, key: Callable[[Way], K | None], bounds: Sequence[float]) -> dict[K, WindowFigures]:
        """Return the figures for each key. `key` returns a path's key, or None to omit the path."""
        found: dict[K, WindowFigures] = {}
        if not self._readings:
            return found
        first, last = self._readings[0], self._readings[-1]
        for way, after in last.counts.items():
            under = key(way)
            if under is None:
                continue
            if under not in found:
                found[under] = WindowFigures(self.seconds, bounds)
            # if the first reading does not contain a path, its counts began later, at 0
            found[under].add(first.counts.get(way, NOTHING), after)
        return found


def _counts(path: Mapping[str, Any]) -> WayCounts:
    errors, rejected = sum(path["failed"].values()), sum(path["rejected"].values())
    latencies = {int(bucket): count for bucket, count in path["latencies"].items()}
    return WayCounts(path["ok"] + errors + rejected, errors, rejected, latencies)
