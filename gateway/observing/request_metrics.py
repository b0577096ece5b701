"""The request metrics, computed from Records.

The gateway counts requests in batches, and adds up requests with the same labels. No lock is needed: only the event
loop's thread writes, and the thread that renders the page reads single numbers, and copies lists in one interpreter
step. The rendering thread uses prometheus-client, but not its counters and histograms, which take a lock for every
addition and cost many times as much.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from time import monotonic, time
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from gateway.core.frozen import frozen
from gateway.core.record import OK, TIMED
from gateway.observing.batches import BYTES_IN, BYTES_OUT, ENDED, SECONDS, Batch, RequestKind
from gateway.observing.batches import RETRIES as RETRIED
from gateway.observing.families import Family
from gateway.observing.faults import fault

OTHER = "other"
"""The label value that all other models share."""


class ModelLabels:
    """The models with their own label value: models that the configuration names (`named`), and the first `most` other
    models that returned a successful response. An unknown name therefore never becomes a label value."""

    def __init__(self, most: int, named: Iterable[str] = ()) -> None:
        self._seen: set[str] = set()
        self.renew(most, named)

    def renew(self, most: int, named: Iterable[str]) -> None:
        """Change the limit and the names, for example after a reload. Models that have their own value keep it."""
        self._most, self._named = most, frozenset(named)

    def __contains__(self, model: str) -> bool:
        """Return True if this label value can be in use: a model's value, OTHER, or an empty string."""
        return model in ("", OTHER) or model in self._named or model in self._seen

    def label(self, model: str, *, is_answered: bool) -> str:
        """Return the label value of `model` for a request. `is_answered` is True if the response was successful."""
        if not model or model in self._named or model in self._seen:
            return model
        if is_answered and len(self._seen) < self._most:
            self._seen.add(model)
            return model
        return OTHER


LONGEST_ID = 100
"""Maximum length of a request id in an exemplar, in characters. OpenMetrics limits the names and values of an exemplar
to 128 characters in total."""

Exemplars: TypeAlias = dict[int, tuple[str, float, float]]
"""The last value of each bucket, by the bucket's index: the request's id, the value, and the time of the value."""
Bucket: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]


def buckets(
    bounds: Sequence[float], cumulative: Sequence[int], exemplars: Mapping[int, tuple[str, float, float]], epoch: float
) -> list[Bucket]:
    """Return the bounds and cumulative counts in the format of HistogramMetricFamily. The result contains one more
    count than bounds. `epoch` is the Unix time at which the exemplars' clock was 0."""
    found: list[Bucket] = []
    for at, (bound, below) in enumerate(zip((*bounds, inf), cumulative, strict=True)):
        last = exemplars.get(at)
        if last is None or not 0 < len(last[0]) <= LONGEST_ID:
            found.append((_text(bound), below))
        else:
            exemplar = Exemplar({"request_id": last[0]}, last[1], round(epoch + last[2], 3))
            found.append((_text(bound), below, exemplar))
    return found


def _text(bound: float) -> str:
    """Return the value of the label `le`."""
    return "+Inf" if bound == inf else repr(float(bound))


T = TypeVar("T")

LABELS = ("listener", "route", "model", "in_protocol", "out_protocol", "backend")

REQUESTS = Family(
    "gateway_requests_total",
    "counter",
    (*LABELS, "code"),
    "Completed requests, by status (OK or the status of the error).",
)
REQUEST_BYTES = Family("gateway_request_bytes_total", "counter", LABELS, "Bytes of request bodies.")
RESPONSE_BYTES = Family("gateway_response_bytes_total", "counter", LABELS, "Bytes of response bodies.")
RETRIES = Family(
    "gateway_retries_total",
    "counter",
    LABELS,
    "Attempts that a policy repeated, or that the gateway repeated because it could not send a request.",
)
ERRORS = Family(
    "gateway_errors_total",
    "counter",
    (*LABELS, "reason", "fault"),
    "Refused and failed requests, by reason and by fault: `caller` or `server`.",
)
LOSSES = Family(
    "gateway_lossy_conversions_total",
    "counter",
    (*LABELS, "kind"),
    "Losses in conversions of requests and responses, by kind.",
)
TOTAL = Family(
    "gateway_request_seconds", "histogram", LABELS, "Seconds from the arrival of a request to the end of its response."
)
QUEUE = Family("gateway_queue_seconds", "histogram", LABELS, "Seconds that calls waited for a free slot of a backend.")
UPSTREAM = Family(
    "gateway_upstream_seconds",
    "histogram",
    LABELS,
    "Seconds that calls took at endpoints, for all attempts of a call together.",
)
DECODE = Family(
    "gateway_decode_seconds",
    "histogram",
    LABELS,
    f"Seconds for decoding client requests, measured for 1 in {TIMED} requests, chosen at random.",
)
ENCODE = Family(
    "gateway_encode_seconds",
    "histogram",
    LABELS,
    f"Seconds for encoding responses to clients, measured for 1 in {TIMED} requests, chosen at random.",
)

Labels: TypeAlias = tuple[str, str, str, str, str, str]


_TOTAL, _DECODE, _ENCODE, _UPSTREAM, _QUEUE = range(5)
"""The indices of the histograms, which equal the indices of the corresponding rows of `Batch.numbers`."""
_NOWHERE = 0
"""The row for requests that are not counted."""


class _Table:
    """A table of counts, with a row for each combination of LABELS and code.

    - `rows`: the row number of each combination.
    - `counts`: INT64[rows, 5, buckets], the number of values in each bucket of each histogram.
    - `sums`: FP64[rows, 8], the sums of the first eight rows of `Batch.numbers`. Byte counts are exact up to 2**53.
    - `exemplars`: exemplars of the total-time histogram, by row.
    """

    def __init__(self, bounds: Sequence[float], capacity: int = 64) -> None:
        self.bounds = np.array(bounds, np.float64)
        self.rows: dict[tuple[str, ...], int] = {}
        self.counts: NDArray[np.int64] = np.zeros((capacity, 5, len(bounds) + 1), np.int64)
        self.sums: NDArray[np.float64] = np.zeros((capacity, 8))
        self.exemplars: dict[int, Exemplars] = {}

    def row(self, key: tuple[str, ...]) -> int:
        """Return the row of this combination, and add the row if necessary."""
        found = self.rows.get(key)
        if found is None:
            found = len(self.rows) + 1
            if found == len(self.counts):
                # The reader's thread might still use the old arrays, which contain every row that it reads.
                self.counts = np.concatenate((self.counts, np.zeros_like(self.counts)))
                self.sums = np.concatenate((self.sums, np.zeros_like(self.sums)))
            self.exemplars[found] = {}
            self.rows[key] = found
        return found

    def add(self, batch: Batch, rows: Sequence[int], asked: Sequence[int]) -> None:
        """Count each request of `batch` in its row in `rows`. Count its queue time, its time at endpoints and its
        retries in its row in `asked`. Count codec times only if they were measured."""
        row = np.empty((8, len(batch)), np.int64)
        row[:] = np.array(rows)
        if asked is not rows:
            row[[_UPSTREAM, _QUEUE, RETRIED]] = np.array(asked)
        row[_DECODE : _ENCODE + 1][batch.numbers[_DECODE : _ENCODE + 1] == 0] = _NOWHERE
        _, histograms, width = self.counts.shape
        places = self.bounds.searchsorted(batch.numbers[:histograms])
        cells = (row[:histograms] * histograms + np.arange(histograms)[:, None]) * width + places
        np.add.at(self.counts.reshape(-1), cells.reshape(-1), 1)
        np.add.at(self.sums.reshape(-1), (row * 8 + np.arange(8)[:, None]).reshape(-1), batch.numbers[:8].reshape(-1))
        for cell, at in dict(zip(cells[_TOTAL].tolist(), range(len(batch)), strict=True)).items():
            seconds, ended = batch.numbers[SECONDS, at].item(), batch.numbers[ENDED, at].item()
            self.exemplars[cell // (histograms * width)][cell % width] = (batch.ids[at], seconds, ended)

    def only(self, is_kept: Callable[[Sequence[str]], bool]) -> "_Table":
        """Return a table with only the rows of these combinations."""
        kept = {key: row for key, row in self.rows.items() if is_kept(key)}
        new = _Table(self.bounds.tolist(), max(64, 2 * len(kept)))
        for key, row in kept.items():
            at = new.row(key)
            new.counts[at], new.sums[at], new.exemplars[at] = self.counts[row], self.sums[row], self.exemplars[row]
        return new


@frozen
class Counted:
    """The counts that one process passes to another (`take`, `add`). `errors` and `losses` are the same as in
    RequestMetrics."""

    bounds: tuple[float, ...]
    table: _Table
    errors: dict[tuple[str, ...], int]
    losses: dict[tuple[str, ...], int]


class RequestMetrics(Collector):
    """Counts Records, and exports the counts as a prometheus-client Collector.

    - `models`: the models with a separate label value.
    - `buckets`: the upper bounds of the histograms, in seconds, ascending.
    """

    def __init__(self, models: ModelLabels, buckets: Sequence[float]) -> None:
        self.models = models
        self._bounds: tuple[float, ...] = ()
        self.renew(buckets)

    def renew(self, buckets: Sequence[float]) -> None:
        """Use these buckets from now on. If they differ from the current buckets, reset all counts to 0."""
        bounds = tuple(buckets)
        if bounds == self._bounds:
            return
        self._bounds = bounds
        self._begin()

    def _begin(self) -> None:
        self._table = _Table(self._bounds)
        self._errors: dict[tuple[str, ...], int] = {}
        """Counts by LABELS and reason."""
        self._losses: dict[tuple[str, ...], int] = {}
        """Counts by LABELS and kind."""

    def forget(self, listeners: Collection[str], routes: Collection[str], backends: Collection[str]) -> None:
        """Drop the counts of all listeners, routes and backends except the given ones, and of all models except the
        ones in `models`, so the page does not grow with reloads."""

        def is_kept(labels: Sequence[str]) -> bool:
            listener, route, model, _, _, backend = labels[: len(LABELS)]
            is_there = (
                (not listener or listener in listeners)
                and (not route or route in routes)
                and (not backend or backend in backends)
            )
            return is_there and model in self.models

        # New objects, because the thread that renders the page might be reading the old ones.
        self._table = self._table.only(is_kept)
        self._errors = {key: each for key, each in self._errors.items() if is_kept(key)}
        self._losses = {key: each for key, each in self._losses.items() if is_kept(key)}

    def count(self, batch: Batch) -> None:
        """Count completed requests."""
        # In the order of completion, because a model gets its label with its first successful response.
        labels = {kind: self._labels(kind) for kind in dict.fromkeys(batch.kinds)}
        row_of = {kind: self._table.row((*found, kind.status)) for kind, found in labels.items()}
        rows = list(map(row_of.__getitem__, batch.kinds))
        # The attempts of a request for a graph are the attempts of its steps, which have their own records.
        untried = {kind for kind in row_of if not (kind.tries and kind.backend)}
        asked = [_NOWHERE if kind in untried else row_of[kind] for kind in batch.kinds] if untried else rows
        self._table.add(batch, rows, asked)
        if any(kind.reason for kind in row_of):
            for kind in batch.kinds:
                if kind.reason:
                    _add_one(self._errors, (*labels[kind], kind.reason))
        if any(batch.losses):
            for losses, kind in zip(batch.losses, batch.kinds, strict=True):
                for loss in losses:
                    _add_one(self._losses, (*labels[kind], loss))

    def _labels(self, kind: RequestKind) -> Labels:
        model = self.models.label(kind.model, is_answered=kind.status == OK)
        return kind.listener, kind.route, model, kind.in_protocol, kind.out_protocol, kind.backend

    def take(self) -> "Counted":
        """Return the counts, to pass to `add` in another process, and reset them to 0."""
        taken = Counted(self._bounds, self._table, self._errors, self._losses)
        self._begin()
        return taken

    def add(self, counted: "Counted") -> None:
        """Add the counts of another process, unless its buckets differ, which happens while a configuration changes."""
        if counted.bounds != self._bounds:
            return
        for key, row in counted.table.rows.items():
            at = self._table.row(self._own(key))
            self._table.counts[at] += counted.table.counts[row]
            self._table.sums[at] += counted.table.sums[row]
            self._table.exemplars[at].update(counted.table.exemplars[row])
        for own, others in ((self._errors, counted.errors), (self._losses, counted.losses)):
            for key, number in others.items():
                _add_one(own, self._own(key), number)

    def _own(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Return another process's `key`, with this process's model label."""
        listener, route, model, *others = key
        return listener, route, model if model == OTHER else self.models.label(model, is_answered=True), *others

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so the registry does not collect all metrics only to read their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values. Large metrics are split into several parts with the same name.
        The thread that calls this method is not the thread that counts."""
        table = self._table
        rows = list(table.rows.items())
        counts, sums = table.counts.copy(), table.sums.copy()
        yield from _counters(REQUESTS, [(key, int(counts[row, _TOTAL].sum())) for key, row in rows])
        rows_of: dict[tuple[str, ...], list[int]] = {}
        for key, row in rows:
            rows_of.setdefault(key[:-1], []).append(row)
        for family, at in ((REQUEST_BYTES, BYTES_IN), (RESPONSE_BYTES, BYTES_OUT), (RETRIES, RETRIED)):
            yield from _counters(family, [(labels, float(sums[found, at].sum())) for labels, found in rows_of.items()])
        yield from _counters(ERRORS, [((*key, fault(key[-1])), each) for key, each in list(self._errors.items())])
        yield from _counters(LOSSES, list(self._losses.items()))
        bounds = self._bounds
        for family, at in (
            (TOTAL, _TOTAL),
            (QUEUE, _QUEUE),
            (UPSTREAM, _UPSTREAM),
            (DECODE, _DECODE),
            (ENCODE, _ENCODE),
        ):
            exemplars = table.exemplars if at == _TOTAL else {}
            yield from _histograms(family, bounds, rows_of, counts[:, at], sums[:, at], exemplars)


def _add_one(counts: dict[tuple[str, ...], int], key: tuple[str, ...], number: int = 1) -> None:
    counts[key] = counts.get(key, 0) + number


PART = 50
"""Number of label combinations in one part of a metric. Parts are small, so the rendering thread never blocks the
interpreter for long when it joins strings or collects garbage."""


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the values in parts, and at least one part, possibly empty, because the page also shows metrics without
    values."""
    for at in range(0, len(values) or 1, PART):
        yield values[at : at + PART]


def _counters(family: Family, values: Sequence[tuple[Sequence[str], float]]) -> Iterator[Metric]:
    for part in _parts(values):
        metric = family.counter()
        for labels, value in part:
            metric.add_metric(labels, value)
        yield metric


def _histograms(
    family: Family,
    bounds: Sequence[float],
    rows_of: Mapping[tuple[str, ...], list[int]],
    counts: NDArray[np.int64],
    sums: NDArray[np.float64],
    exemplars: Mapping[int, Exemplars],
) -> Iterator[Metric]:
    """Yield the histograms that have values. A stage that no request reached has no histogram."""
    epoch = time() - monotonic()
    counted = [(labels, rows) for labels, rows in rows_of.items() if counts[rows].any()]
    for part in _parts(counted):
        metric = family.histogram()
        for labels, rows in part:
            latest: Exemplars = {}
            for place, last in [each for row in rows for each in list(exemplars.get(row, {}).items())]:
                if place not in latest or latest[place][2] < last[2]:
                    latest[place] = last
            cumulative = counts[rows].sum(axis=0).cumsum().tolist()
            metric.add_metric(labels, buckets(bounds, cumulative, latest, epoch), float(sums[rows].sum()))
        yield metric
