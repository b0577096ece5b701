"""Parses the samples of a Prometheus page in the text format 0.0.4, or in the part of OpenMetrics that is identical.

It also computes the load from these samples: from one gauge of any page, or from Triton's metrics. The code is pure.

    # TYPE nv_gpu_utilization gauge
    nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25 1700000000000

Only the lines of the given metrics are parsed; other lines are skipped. The cost of a large page therefore depends
mainly on the number of parsed lines.

The load of a Triton server is computed from these metrics of successive pages (see "Metrics" in Triton's user guide),
summed over all models and versions:

| metric | kind | meaning |
|---|---|---|
| `nv_inference_pending_request_count` | gauge | requests that wait for a model instance |
| `nv_inference_request_success` | counter | requests answered |
| `nv_inference_request_duration_us` | counter | total duration of these requests, in microseconds |
| `nv_inference_queue_duration_us` | counter | the part of that duration spent in the queue, in microseconds |
| `nv_gpu_utilization` | gauge, for every GPU | the fraction of time in which the GPU was busy, 0 to 1 |

Work is the total duration minus the time in the queue. Between two pages, the work divided by the number of answered
requests is the time per call. The work divided by the elapsed time is the number of calls that ran in parallel
(Little's law).

The load is the number of pending plus running calls. The number of running calls is the maximum of three values: the
number of this gateway's calls that are not waiting, the number of calls that ran in parallel, and the busy fraction of
the GPUs. (Other processes might also use the GPUs.) The server does not report the number of its model instances.
Therefore, its capacity is the mean number of calls that run while others wait.
"""

import math
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen

LONGEST_LINE = 8192
"""The maximum length of a parsed line, in bytes."""
MOST_SAMPLES = 50_000
"""The maximum number of samples of the given metrics in one page. A server with five thousand models has thirty
thousand samples.
"""

# The labels, the value, a timestamp, and an OpenMetrics exemplar. Go's ParseFloat accepts more number formats, but no
# exporter writes them.
_REST = re.compile(
    rb'(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?\s*'
    rb"([-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|[Ii]nf|[Nn]a[Nn]))(?:\s.*)?"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


@frozen
class PageSample:
    """One line: a metric with its labels, and its finite value."""

    name: str
    labels: Mapping[str, str]
    value: float


def is_counter(page: bytes, name: str) -> bool:
    """Return whether the page declares the metric `name` as a counter."""
    line = f"# TYPE {name} counter".encode()
    at = page.find(line)
    return at >= 0 and (at == 0 or page[at - 1] == 0x0A)


def samples(page: bytes, names: Iterable[str]) -> Iterator[PageSample]:
    """Yield the samples of the metrics in `names`, metric by metric.

    Parsing a sample takes microseconds, and the caller can let other tasks run between samples.

    Raises:
        DecodeError: a line of these metrics is malformed, is longer than LONGEST_LINE, or has a value that is not
            finite; or the page has more than MOST_SAMPLES samples.
    """
    left = MOST_SAMPLES
    for name in names:
        for line in _lines(page, name.encode()):
            left -= 1
            if left < 0:
                raise DecodeError(f"the page has more than {MOST_SAMPLES} samples of the wanted metrics")
            yield _sample(name, line)


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """Yield the remainder of each line that begins with `name`."""
    at, size = page.find(name), len(name)
    while at >= 0:
        after = at + size
        if (at == 0 or page[at - 1] == 0x0A) and page[after : after + 1] in (b"{", b" ", b"\t"):
            end = page.find(b"\n", after, after + LONGEST_LINE)
            if end < 0:
                if len(page) - after >= LONGEST_LINE:
                    raise DecodeError(f"a line of {name.decode()} has more than {LONGEST_LINE} bytes")
                end = len(page)
            yield page[after:end]
            after = end
        at = page.find(name, after)


def _sample(name: str, rest: bytes) -> PageSample:
    found = _REST.fullmatch(rest)
    if found is None:
        raise DecodeError(f"a line of {name} is malformed: {rest[:40]!r}")
    value = float(found[2])
    if not math.isfinite(value):
        raise DecodeError(f"{name} is {value}")
    return PageSample(name, _labels(name, found[1]) if found[1] else {}, value)


def _labels(name: str, text: bytes) -> Mapping[str, str]:
    try:
        rest = text.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the labels of a line of {name} are not UTF-8") from error
    labels: dict[str, str] = {}
    at = 0
    while at < len(rest):
        found = _LABEL.match(rest, at)
        if found is None:
            raise DecodeError(f"a line of {name} has malformed labels: {rest[at : at + 40]!r}")
        if found[1] in labels:
            raise DecodeError(f"a line of {name} has the label {found[1]!r} twice")
        value = found[2]
        labels[found[1]] = _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        at = found.end()
    return labels


def _unescaped(found: "re.Match[str]") -> str:
    return _ESCAPES.get(found[1], found[0])


def read_gauge(page: bytes, metric: str, labels: Mapping[str, str]) -> Generator[None, None, float]:
    """Return the load in `page`, a nonnegative number. The generator works in steps, between which other tasks can run.

    Raises:
        DecodeError: same as `samples`; also if the page contains no sample of the metric, if the metric is a counter
            (which only grows), or if the sum is negative.
    """
    if is_counter(page, metric):
        raise DecodeError(f"{metric} is a counter, which only grows; a gauge is wanted")
    found = None
    for sample in samples(page, (metric,)):
        if all(sample.labels.get(name) == value for name, value in labels.items()):
            found = (found or 0.0) + sample.value
        yield
    if found is None:
        of = ", ".join(f'{name}="{value}"' for name, value in labels.items())
        raise DecodeError(
            f"the page has no metric {metric}{{{of}}}; check `load.metric` and `load.labels`"
            if of
            else f"the page has no metric {metric}; check `load.metric`"
        )
    if found < 0:
        raise DecodeError(f"{metric} is {found:g}, and a load is at least 0")
    return found


PENDING = "nv_inference_pending_request_count"
ANSWERED = "nv_inference_request_success"
TOOK = "nv_inference_request_duration_us"
WAITED = "nv_inference_queue_duration_us"
GPU = "nv_gpu_utilization"
METRICS = (PENDING, ANSWERED, TOOK, WAITED, GPU)

MICRO = 1e-6
CALLS = 500.0
"""The approximate number of recent calls over which the time per call is averaged. With fewer calls, the mean would
depend too much on chance.
"""
FADING_SECONDS = 170.0
"""The time in which the weight of call times decays to 37 percent, in seconds.

As a result, a server that receives no calls because its last calls were slow eventually counts like the other servers
again.
"""
LEARNED = 0.2
"""The weight of each new page in the estimate of the number of calls that run in parallel."""


@dataclass
class TritonPage:
    """One page: pending requests, answered requests with their seconds of work, and the mean busy fraction of the GPUs.
    `answered` is None if the page does not contain this metric."""

    pending: float = 0.0
    answered: float | None = None
    work: float = 0.0
    gpu: float = 0.0


def read_triton(page: bytes) -> Generator[None, None, TritonPage]:
    """Parse `page` in steps, between which other tasks can run. Raises DecodeError like `samples`."""
    sums = dict.fromkeys(METRICS, 0.0)
    counts = dict.fromkeys(METRICS, 0)
    for sample in samples(page, METRICS):
        sums[sample.name] += max(sample.value, 0.0)
        counts[sample.name] += 1
        yield
    return TritonPage(
        sums[PENDING],
        sums[ANSWERED] if counts[ANSWERED] else None,
        max(sums[TOOK] - sums[WAITED], 0.0) * MICRO,
        sums[GPU] / counts[GPU] if counts[GPU] else 0.0,
    )


@frozen
class TritonLoad:
    """A server's current calls, the number of calls that can run in parallel (1 or more), and, as decaying sums, the
    answered calls and their seconds of work."""

    calls: float
    at_once: float
    answered: float
    work: float


class TritonMeter:
    """Computes the load of one server from page to page."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None
        """The number of answered requests, their seconds of work, and the time, all from the last page."""
        self._answered, self._work = 0.0, 0.0
        self._busy, self._passed = 0.0, 0.0
        """The seconds of work since the first page, and the elapsed seconds. Both decay."""
        self._at_once = 1.0

    def load(self, page: TritonPage, at: float, in_flight: float) -> TritonLoad:
        """Return the load from a page that arrived at the time `at`, when this gateway had `in_flight` calls on the
        server."""
        self._add(page, at)
        # Average over a long time, because a call of ten seconds counts fully in the second in which it ends.
        ran = self._busy / self._passed if self._passed else 0.0
        running = max(in_flight - page.pending, ran, page.gpu)
        # If no call waits, the server has spare capacity. The number of other clients' waiting calls is unknown.
        is_full = page.pending > 0 and in_flight - page.pending >= ran
        if is_full or running > self._at_once:
            self._at_once = max(self._at_once + LEARNED * (running - self._at_once), 1.0)
        return TritonLoad(page.pending + running, self._at_once, self._answered, self._work)

    def _add(self, page: TritonPage, at: float) -> None:
        """Add the work since the previous page."""
        answered, work = page.answered or 0.0, page.work
        before, self._before = self._before, (answered, work, at)
        if before is None:
            share = min(1.0, CALLS / answered) if answered else 0.0
            self._answered, self._work = answered * share, work * share
            return
        calls, seconds, passed = answered - before[0], work - before[1], at - before[2]
        if calls < 0 or seconds < 0 or passed <= 0:  # the server has restarted, or has unloaded models
            return
        kept = exp(-calls / CALLS - passed / FADING_SECONDS)
        self._answered, self._work = kept * self._answered + calls, kept * self._work + seconds
        self._busy, self._passed = kept * self._busy + seconds, kept * self._passed + passed
