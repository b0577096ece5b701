"""Computes the load of a Triton server from successive metrics pages. The code is pure.

It uses these metrics (see "Metrics" in Triton's user guide), summed over all models and versions:

| metric | kind | meaning |
|---|---|---|
| `nv_inference_pending_request_count` | gauge | requests that wait for a model instance |
| `nv_inference_request_success` | counter | requests answered |
| `nv_inference_request_duration_us` | counter | total duration of these requests, in microseconds |
| `nv_inference_queue_duration_us` | counter | the part of that duration spent in the queue, in microseconds |
| `nv_gpu_utilization` | gauge, for every GPU | the fraction of time in which it was busy, 0 to 1 |

Work is the total duration minus the time in the queue. Between two pages, the work divided by the number of answered
requests is the time per call, and the work divided by the elapsed time is the number of calls that ran in parallel
(Little's law).

The load is the number of pending plus running calls. The number of running calls is the maximum of three values: this
gateway's calls that are not waiting, the calls that ran in parallel, and the busy fraction of the GPUs, which other
processes might use, too. The server does not report the number of its model instances, so the mean number of calls that
run while others wait serves as its capacity.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import exp

from gateway.core.frozen import frozen
from gateway.routing.load.prometheus import samples

PENDING = "nv_inference_pending_request_count"
ANSWERED = "nv_inference_request_success"
TOOK = "nv_inference_request_duration_us"
WAITED = "nv_inference_queue_duration_us"
GPU = "nv_gpu_utilization"
METRICS = (PENDING, ANSWERED, TOOK, WAITED, GPU)

MICRO = 1e-6
CALLS = 500.0
"""The time per call is the mean over about this number of recent calls.

With fewer calls, the mean would depend too much on chance.
"""
FADING_SECONDS = 170.0
"""The weight of call times also decays with time, to 37 percent in this number of seconds.

This way, a server that gets no calls because its last calls were slow eventually counts like the others again.
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


def read(page: bytes) -> Generator[None, None, TritonPage]:
    """Parse `page` in steps, between which other tasks can run. Raises DecodeError like `prometheus.samples`."""
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
    """A server's current calls, the number that can run in parallel (1 or more), and, as decaying sums, its answered
    calls and their seconds of work."""

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
        """Return the load from a page that arrived at the time `at`, when this gateway had `in_flight` calls there."""
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
