"""The metrics of requests, made of their Records.

Requests are counted in batches, those with the same labels together, and without a lock: only the event loop's thread
writes. The thread that renders the page reads single numbers and copies of lists, each in one step of the interpreter.
prometheus-client renders the page; its own counters and histograms take a lock for every addition, and cost many times
as much.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from time import monotonic, time
from typing import TypeAlias, TypeVar

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.record import OK, Record
from gateway.observing.families import Family
from gateway.observing.histogram import Histogram
from gateway.observing.model_labels import ModelLabels

T = TypeVar("T")

LABELS = ("listener", "route", "model", "in_protocol", "out_protocol", "backend")

REQUESTS = Family(
    "gateway_requests_total", "counter", (*LABELS, "code"), "Requests that ended, by status (OK or that of the error)."
)
REQUEST_BYTES = Family("gateway_request_bytes_total", "counter", LABELS, "Bytes of the bodies of requests.")
RESPONSE_BYTES = Family("gateway_response_bytes_total", "counter", LABELS, "Bytes of the bodies of replies.")
RETRIES = Family(
    "gateway_retries_total",
    "counter",
    LABELS,
    "Tries that repeat an earlier one: by a policy, or because nothing could be sent.",
)
ERRORS = Family(
    "gateway_errors_total", "counter", (*LABELS, "reason"), "Requests that were refused or failed, by reason."
)
LOSSES = Family(
    "gateway_losses_total",
    "counter",
    (*LABELS, "kind"),
    "What requests lost on the way to the backend or back, by kind.",
)
TOTAL = Family("gateway_request_seconds", "histogram", LABELS, "From the arrival of a request to the end of its reply.")
QUEUE = Family("gateway_queue_seconds", "histogram", LABELS, "What calls waited for a free slot of a backend.")
UPSTREAM = Family(
    "gateway_upstream_seconds", "histogram", LABELS, "What calls took at endpoints, all tries of a call together."
)
DECODE = Family("gateway_decode_seconds", "histogram", LABELS, "Reading requests of clients.")
ENCODE = Family("gateway_encode_seconds", "histogram", LABELS, "Writing replies to clients.")

FAMILIES = (
    REQUESTS, REQUEST_BYTES, RESPONSE_BYTES, RETRIES, ERRORS, LOSSES, TOTAL, QUEUE, UPSTREAM, DECODE, ENCODE,
)  # fmt: skip

Labels: TypeAlias = tuple[str, str, str, str, str, str]


class _Series:
    """What is counted for one combination of LABELS."""

    __slots__ = ("bytes_in", "bytes_out", "decode", "encode", "queue", "retries", "total", "upstream")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bytes_in = self.bytes_out = self.retries = 0
        self.total, self.queue, self.upstream = Histogram(bounds), Histogram(bounds), Histogram(bounds)
        self.decode, self.encode = Histogram(bounds), Histogram(bounds)

    def add(self, group: Sequence[Record]) -> None:
        """Count requests."""
        # Attributes that are read here, and not by functions of `operator`, cost a tenth.
        self.bytes_in += sum([each.bytes_in for each in group])
        self.bytes_out += sum([each.bytes_out for each in group])
        seconds = [each.ended - each.received for each in group]
        buckets = self.total.add(seconds)
        for at, last in dict(zip(buckets, range(len(group)), strict=True)).items():
            self.total.exemplars[at] = (group[last].id, seconds[last], group[last].ended)
        self.decode.add([each.decode for each in group])
        self.encode.add([each.encode for each in group])
        tried = [each for each in group if each.tries]
        self.upstream.add([each.upstream for each in tried])
        self.queue.add([each.queued for each in tried])
        self.retries += sum([each.retries for each in tried])


class _Counted:
    """The number of requests of a series that ended with one code."""

    __slots__ = ("count", "series")

    def __init__(self, series: _Series) -> None:
        self.count = 0
        self.series = series


class RequestMetrics(Collector):
    """A reader of Records, and a Collector of what it counted.

    - `models`: which models have a label value.
    - `buckets`: the upper bounds of the histograms, in seconds, ascending.
    """

    def __init__(self, models: ModelLabels, buckets: Sequence[float]) -> None:
        self.models = models
        self._bounds: tuple[float, ...] = ()
        self.renew(buckets)

    def renew(self, buckets: Sequence[float]) -> None:
        """Count in these buckets from now on. If they differ, all counts begin at 0 again."""
        bounds = tuple(buckets)
        if bounds == self._bounds:
            return
        self._bounds = bounds
        self._counted: dict[tuple[str, ...], _Counted] = {}
        """By LABELS and code."""
        self._series: dict[Labels, _Series] = {}
        self._errors: dict[tuple[str, ...], int] = {}
        """By LABELS and reason."""
        self._losses: dict[tuple[str, ...], int] = {}
        """By LABELS and kind."""

    def forget(self, listeners: Collection[str], backends: Collection[str]) -> None:
        """Drop what was counted for listeners, backends and models other than these and those of `models`, so that
        reloads do not make the page grow."""

        def is_kept(labels: Sequence[str]) -> bool:
            listener, _, model, _, _, backend = labels[: len(LABELS)]
            return listener in listeners and (not backend or backend in backends) and model in self.models

        # New dicts: the thread that renders the page may be reading the old ones.
        self._counted = {key: each for key, each in self._counted.items() if is_kept(key)}
        self._series = {key: each for key, each in self._series.items() if is_kept(key)}
        self._errors = {key: each for key, each in self._errors.items() if is_kept(key)}
        self._losses = {key: each for key, each in self._losses.items() if is_kept(key)}

    def count(self, records: Sequence[Record]) -> None:
        """Count requests that have ended."""
        groups: dict[tuple[str, ...], list[Record]] = {}
        for record in records:
            key = (
                record.listener, record.route, record.model, record.in_protocol, record.out_protocol, record.backend,
                record.status,
            )  # fmt: skip
            if key in groups:
                groups[key].append(record)
            else:
                groups[key] = [record]
        for labels, group in groups.items():
            counted = self._counted.get(labels)
            if counted is None:
                # Anew for each record: a model gets its label with its first answer.
                for record in group:
                    self._count_group(self._find(record), [record])
            else:
                self._count_group(counted, group)

    def _count_group(self, counted: "_Counted", group: list[Record]) -> None:
        """Count requests with the same labels and code."""
        counted.count += len(group)
        counted.series.add(group)
        for record in group:
            if record.reason or record.losses:
                self._count_rare(record)

    def _find(self, record: Record) -> _Counted:
        labels = self._labels(record)
        key = (*labels, record.status)
        counted = self._counted.get(key)
        if counted is None:
            series = self._series.get(labels)
            if series is None:
                series = self._series[labels] = _Series(self._bounds)
            counted = self._counted[key] = _Counted(series)
        return counted

    def _labels(self, record: Record) -> Labels:
        model = self.models.label(record.model, is_answered=record.status == OK)
        return record.listener, record.route, model, record.in_protocol, record.out_protocol, record.backend

    def _count_rare(self, record: Record) -> None:
        labels = self._labels(record)
        if record.reason:
            key = (*labels, record.reason)
            self._errors[key] = self._errors.get(key, 0) + 1
        for kind in record.losses or ():
            key = (*labels, kind)
            self._losses[key] = self._losses.get(key, 0) + 1

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect the metrics to learn their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics with their values now, large ones in several parts of the same name. Called from another thread
        than the one that counts."""
        yield from _counters(REQUESTS, [(key, each.count) for key, each in list(self._counted.items())])
        series = list(self._series.items())
        yield from _counters(REQUEST_BYTES, [(labels, each.bytes_in) for labels, each in series])
        yield from _counters(RESPONSE_BYTES, [(labels, each.bytes_out) for labels, each in series])
        yield from _counters(RETRIES, [(labels, each.retries) for labels, each in series])
        yield from _counters(ERRORS, list(self._errors.items()))
        yield from _counters(LOSSES, list(self._losses.items()))
        yield from _histograms(TOTAL, [(labels, each.total) for labels, each in series])
        yield from _histograms(QUEUE, [(labels, each.queue) for labels, each in series])
        yield from _histograms(UPSTREAM, [(labels, each.upstream) for labels, each in series])
        yield from _histograms(DECODE, [(labels, each.decode) for labels, each in series])
        yield from _histograms(ENCODE, [(labels, each.encode) for labels, each in series])


PART = 50
"""Label combinations in one part of a metric. Parts are small, so that the thread that renders them never keeps the
interpreter for long: neither to join texts nor to collect garbage."""


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """At least one, which may be empty: a metric without values is on the page, too."""
    for at in range(0, len(values) or 1, PART):
        yield values[at : at + PART]


def _counters(family: Family, values: Sequence[tuple[Sequence[str], float]]) -> Iterator[Metric]:
    for part in _parts(values):
        metric = family.counter()
        for labels, value in part:
            metric.add_metric(labels, value)
        yield metric


def _histograms(family: Family, values: Sequence[tuple[Sequence[str], Histogram]]) -> Iterator[Metric]:
    """The histograms that have values: that of a stage that no request reached is left out."""
    epoch = time() - monotonic()
    for part in _parts(values):
        metric = family.histogram()
        for labels, each in part:
            buckets = each.buckets(epoch)
            if buckets[-1][1]:
                metric.add_metric(labels, buckets, each.sum)
        yield metric
