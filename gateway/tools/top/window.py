"""Rates and latencies of the last seconds, computed from the counts in `/api/traffic`."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from gateway.core.frozen import frozen

SECONDS = 10.0
"""The length of the window in seconds, as in the console."""

Way: TypeAlias = tuple[str, str, str, str]
"""Listener, route, backend and endpoint; empty if a request did not reach them."""
K = TypeVar("K", bound=Hashable)


@frozen
class WayCounts:
    """The requests on one path since the gateway started. `latencies` has their number by bucket, as in
    `/api/traffic`."""

    requests: int
    errors: int
    rejected: int
    latencies: Mapping[int, int]


NOTHING = WayCounts(0, 0, 0, {})


@frozen
class CountsReading:
    """The counts of all paths at a time, in seconds on the gateway's clock."""

    time: float
    counts: Mapping[Way, WayCounts]


class WindowFigures:
    """The requests in a window of `seconds`, and since the start. `bounds` are the upper bounds of the latency buckets,
    in seconds."""

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
        """Requests per second; None without a window."""
        return self.requests / self._seconds if self._seconds else None

    @property
    def error_rate(self) -> float | None:
        """Requests per second that ended with a server error; None without a window."""
        return self.errors / self._seconds if self._seconds else None

    @property
    def failed(self) -> float | None:
        """The share of requests that ended with a server error, from 0 to 1; None if there were no requests."""
        return self.errors / self.requests if self.requests else None

    @property
    def rejected_rate(self) -> float | None:
        """Requests per second that ended with a client error; None without a window."""
        return self.rejected / self._seconds if self._seconds else None

    @property
    def rejected_share(self) -> float | None:
        """The share of requests that ended with a client error, from 0 to 1; None if there were no requests."""
        return self.rejected / self.requests if self.requests else None

    def quantile(self, part: float) -> float | None:
        """Return the latency, in seconds, that this part of the requests did not exceed, as an estimate within its
        bucket; None if there were no requests."""
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
    """The readings of the last SECONDS."""

    def __init__(self) -> None:
        self._readings: deque[CountsReading] = deque()

    def clear(self) -> None:
        """Begin again, for example after a restart of the gateway."""
        self._readings.clear()

    def take(self, time: float, changed: Iterable[Mapping[str, Any]]) -> None:
        """Add the paths of a response of `/api/traffic`: all paths, or the paths that have changed since the previous
        reading. After a pause that is longer than the window, the window starts again, because the distribution over
        the pause is unknown."""
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
        """Return the figures by the key of each path. Paths whose key is None are left out."""
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
            # if a path is missing in the first reading, its counts began later, at 0
            found[under].add(first.counts.get(way, NOTHING), after)
        return found


def _counts(path: Mapping[str, Any]) -> WayCounts:
    errors, rejected = sum(path["failed"].values()), sum(path["rejected"].values())
    latencies = {int(bucket): count for bucket, count in path["latencies"].items()}
    return WayCounts(path["ok"] + errors + rejected, errors, rejected, latencies)
