"""Request counters and the last errors, for the status API and the console."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import field
from datetime import UTC, datetime
from operator import add, sub
from time import monotonic
from typing import TypeAlias

import numpy as np

from gateway.core.errors import Status
from gateway.core.frozen import frozen
from gateway.core.record import OK
from gateway.observing.batches import ENDED, SECONDS, Batch, RequestKind
from gateway.observing.faults import SERVER, Fault, fault
from gateway.observing.stages import StageSums, stage_sums

MOST_ERRORS = 20
"""Maximum number of stored errors."""
MOST_PATHS = 10_000
"""Maximum number of separately counted paths. The limit exists because discovery can add any number of endpoints; the
configuration limits all other parts of a path. Requests on additional paths are counted without their endpoint."""

LATENCY_BOUNDS = tuple(round(1e-4 * 10 ** (step / 5), 7) for step in range(31))
"""The upper bounds of the latency buckets in seconds, from 0.1 ms to 100 s, each 1.58 times the previous one."""
_BOUNDS = np.array(LATENCY_BOUNDS)
_BUCKETS = len(LATENCY_BOUNDS) + 1

Place: TypeAlias = tuple[str, str, str, str]
"""The listener, route, backend and endpoint of a request. A name is empty if the request did not reach this part. Calls
of graph steps have no listener and count for the backend. The request for the graph itself counts for the listener and
the graph's route, without a backend."""


@frozen
class RequestError:
    """A request that ended with an error, in the format of the status API. The object omits the error message, because
    the message could contain request data. The log contains more details under the same request id."""

    at: datetime
    """The time of the error, in UTC."""
    request_id: str
    listener: str
    operation: str
    model: str
    """The client's model name; empty if the request was not decodable."""
    route: str
    backend: str
    endpoint: str
    """The endpoint of the last attempt; empty if no attempt was made."""
    status: str
    reason: str
    fault: Fault
    """`caller` if the caller caused the error, `server` otherwise, as in the metrics."""


@frozen
class RequestCounts:
    """Numbers of requests since the gateway started. `by_status` counts all requests. `failed` counts errors caused by
    a server, and `rejected` counts errors caused by the caller."""

    by_status: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    rejected: int = 0


_NOTHING: tuple[int, Counter[str], Counter[str], list[int], StageSums] = (
    0,
    Counter(),
    Counter(),
    [0] * (len(LATENCY_BOUNDS) + 1),
    StageSums(),
)


class CountedPath:
    """The requests that took one path through the gateway.

    - `place`: the path.
    - `succeeded`: the number of requests without an error.
    - `rejected`: the number of errors caused by the caller, by status.
    - `failed`: the number of errors caused by a server, by status.
    - `latencies`: the number of requests in each bucket of LATENCY_BOUNDS, plus a last bucket for larger latencies.
    - `stages`: the total time of the requests in each stage.
    - `changed`: the time at which the last request ended, on the clock `time.monotonic`.
    """

    __slots__ = ("_told", "changed", "failed", "latencies", "place", "rejected", "stages", "succeeded")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.succeeded = 0
        self.failed: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.latencies = [0] * (len(LATENCY_BOUNDS) + 1)
        self.stages = StageSums()
        self.changed = 0.0
        self._told = _NOTHING
        """The values of `succeeded`, `failed`, `rejected`, `latencies` and `stages` at the last call of `news`."""

    def news(self) -> "CountedPath":
        """Return the requests counted since the last call."""
        succeeded, failed, rejected, latencies, stages = self._told
        self._told = self.succeeded, self.failed.copy(), self.rejected.copy(), self.latencies.copy(), self.stages
        found = CountedPath(self.place)
        found.succeeded = self.succeeded - succeeded
        found.failed, found.rejected = self.failed - failed, self.rejected - rejected
        found.latencies = list(map(sub, self.latencies, latencies))
        found.stages = self.stages - stages
        found.changed = self.changed
        return found


class Counters:
    """Counts requests by status and latency, for each path."""

    def __init__(self) -> None:
        self.started = monotonic()
        self._begin()

    def _begin(self) -> None:
        self.errors = 0
        """The total number of requests that ended with an error."""
        self._paths: dict[Place, CountedPath] = {}
        self._of_listener: defaultdict[str, list[CountedPath]] = defaultdict(list)
        self._of_backend: defaultdict[str, list[CountedPath]] = defaultdict(list)
        self._errors: deque[RequestError] = deque(maxlen=MOST_ERRORS)
        self._changed: set[CountedPath] = set()
        """The paths on which a request has ended since the last call of `news`."""

    def count(self, batch: Batch) -> None:
        """Count completed requests."""
        numbers = Counter(batch.kinds)
        path_of = {kind: self._path((kind.listener, kind.route, kind.backend, kind.endpoint)) for kind in numbers}
        paths = list(dict.fromkeys(path_of.values()))
        self._changed.update(paths)
        place_of = {path: at for at, path in enumerate(paths)}
        place_of_kind = {kind: place_of[path] for kind, path in path_of.items()}
        places = np.array(list(map(place_of_kind.__getitem__, batch.kinds)))
        cells = places * _BUCKETS + _BOUNDS.searchsorted(batch.numbers[SECONDS])
        latencies = np.bincount(cells, minlength=len(paths) * _BUCKETS).reshape(-1, _BUCKETS).tolist()
        for path, counted, sums in zip(paths, latencies, stage_sums(batch, places, len(paths)), strict=True):
            path.latencies = list(map(add, path.latencies, counted))
            path.stages += sums
        for kind, ended in dict(zip(batch.kinds, batch.numbers[ENDED].tolist(), strict=True)).items():
            path_of[kind].changed = max(path_of[kind].changed, ended)
        for kind, number in numbers.items():
            if kind.status == OK:
                path_of[kind].succeeded += number
            else:
                path = path_of[kind]
                counter = path.failed if fault(kind.reason, kind.status) == SERVER else path.rejected
                counter[kind.status] += number
                if kind.listener:
                    self.errors += number
        if any(map(_is_listed, numbers)):
            failed = ((id, kind) for id, kind in zip(batch.ids, batch.kinds, strict=True) if _is_listed(kind))
            self._errors.extend(_error(id, kind) for id, kind in failed)

    def take(self) -> "Counters":
        """Return the counts, to pass to `add` in another process, and reset them to 0."""
        taken = copy(self)
        self._begin()
        return taken

    def add(self, other: "Counters") -> None:
        """Add the counts that `take` returned in another process."""
        for each in other.paths():
            path = self._path(each.place)
            path.succeeded += each.succeeded
            path.failed.update(each.failed)
            path.rejected.update(each.rejected)
            path.latencies = list(map(add, path.latencies, each.latencies))
            path.stages += each.stages
            path.changed = max(path.changed, each.changed)
            self._changed.add(path)
        self.errors += other.errors
        self._errors.extend(other._errors)

    def _path(self, place: Place) -> CountedPath:
        path = self._paths.get(place)
        if path is None and len(self._paths) >= MOST_PATHS:
            place = (*place[:3], "")
            path = self._paths.get(place)
        if path is None:
            path = self._paths[place] = CountedPath(place)
            listener, _, backend, _ = place
            self._of_listener[listener].append(path)
            if backend:
                self._of_backend[backend].append(path)
        return path

    def paths(self, since: float = 0.0) -> Iterable[CountedPath]:
        """Return the paths on which a request has ended since the given time on the clock `time.monotonic`."""
        return [each for each in self._paths.values() if each.changed >= since]

    def news(self) -> list[CountedPath]:
        """Return the counts since the last call of this method, for each path on which a request has ended."""
        changed, self._changed = self._changed, set()
        return [each.news() for each in changed]

    def of_listener(self, name: str) -> RequestCounts:
        """Return the numbers of requests to this listener."""
        return _counts(self._of_listener.get(name, ()))

    def of_backend(self, name: str) -> RequestCounts:
        """Return the numbers of requests for this backend. A request counts for the backend that was called last."""
        return _counts(self._of_backend.get(name, ()))

    def last_errors(self) -> tuple[RequestError, ...]:
        """Return the last errors, newest first."""
        return tuple(reversed(self._errors))


def _is_listed(kind: RequestKind) -> bool:
    """Return True if the list of errors includes requests of this kind. The list includes failed graph steps, because
    only their entries contain the backend and the endpoint. The number does not include steps that were cancelled with
    their graph."""
    return kind.status != OK and bool(kind.listener or kind.status != Status.CANCELLED.name)


def _error(id: str, kind: RequestKind) -> RequestError:
    return RequestError(
        at=datetime.now(UTC),
        request_id=id,
        listener=kind.listener,
        operation=kind.operation,
        model=kind.model,
        route=kind.route,
        backend=kind.backend,
        endpoint=kind.endpoint,
        status=kind.status,
        reason=kind.reason,
        fault=fault(kind.reason, kind.status),
    )


def _counts(paths: Iterable[CountedPath]) -> RequestCounts:
    succeeded, failed, rejected = 0, Counter[str](), Counter[str]()
    for each in paths:
        succeeded += each.succeeded
        failed.update(each.failed)
        rejected.update(each.rejected)
    by_status = dict(failed + rejected)
    if succeeded:
        by_status[OK] = succeeded
    return RequestCounts(by_status, failed.total(), rejected.total())
