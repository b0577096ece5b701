"""The load of a Triton server, from two of its metrics pages. Pure.

Read from the page (Triton's user guide, "Metrics"), the sums over all models and versions:

| metric | kind | meaning |
|---|---|---|
| `nv_inference_pending_request_count` | gauge | requests that wait for a model instance |
| `nv_inference_request_success` | counter | requests answered |
| `nv_inference_request_duration_us` | counter | microseconds that these took |
| `nv_inference_queue_duration_us` | counter | microseconds of them that they waited |
| `nv_gpu_utilization` | gauge, of every GPU there is | the share of the time in which it was busy, 0 to 1 |

Microseconds that did not go by in the queue are work. Between two pages the work divided by the requests answered is
the time of a call, and the work divided by the time that went by is how many calls ran at once (Little's law).

The server has the pending calls and those that run, which are the most of: the calls of this gateway that do not wait,
those that ran at once, and the busy share of the GPUs, on which other processes may compute. As many as run while
others wait are what the server can do at once, on average: it does not tell how many instances its models have.
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
"""The time of a call is the mean of about so many, the last ones: of fewer it depends on which they were by chance."""
FADING_SECONDS = 170.0
"""What is known of it fades with time as well, in so many seconds to 37 percent: a server that gets no calls, because
its last ones took long, is taken to be like the others again in the end."""
LEARNED = 0.2
"""The share of what is known of the calls that run at once which is new at each page."""


@dataclass
class TritonPage:
    """One page: requests that wait, requests answered with their seconds of work, and the share of the time in which
    the GPUs were busy (their mean). `answered` is None if the page has no such metric."""

    pending: float = 0.0
    answered: float | None = None
    work: float = 0.0
    gpu: float = 0.0


def read(page: bytes) -> Generator[None, None, TritonPage]:
    """The TritonPage in `page`, in steps. Raises DecodeError as `prometheus.samples`."""
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
    """How many calls a server has, how many run at once (1 or more), and as sums in which old ones fade: the calls that
    it answered, and their seconds of work."""

    calls: float
    at_once: float
    answered: float
    work: float


class TritonMeter:
    """The load of one server, page after page."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None
        """The requests answered, their seconds of work, and when that was."""
        self._answered, self._work = 0.0, 0.0
        self._busy, self._passed = 0.0, 0.0
        """The seconds of work since the first page, and the seconds that went by; old ones fade."""
        self._at_once = 1.0

    def load(self, page: TritonPage, at: float, in_flight: float) -> TritonLoad:
        """The load by a page that came at the time `at`, when this gateway had `in_flight` calls there."""
        self._add(page, at)
        # over a long time: a call of ten seconds counts as a whole in the second in which it ends
        ran = self._busy / self._passed if self._passed else 0.0
        running = max(in_flight - page.pending, ran, page.gpu)
        # If nothing waits there is room for more, and of the calls of others it is not known how many wait.
        is_full = page.pending > 0 and in_flight - page.pending >= ran
        if is_full or running > self._at_once:
            self._at_once = max(self._at_once + LEARNED * (running - self._at_once), 1.0)
        return TritonLoad(page.pending + running, self._at_once, self._answered, self._work)

    def _add(self, page: TritonPage, at: float) -> None:
        """Add what was done since the page before."""
        answered, work = page.answered or 0.0, page.work
        before, self._before = self._before, (answered, work, at)
        if before is None:
            share = min(1.0, CALLS / answered) if answered else 0.0
            self._answered, self._work = answered * share, work * share
            return
        calls, seconds, passed = answered - before[0], work - before[1], at - before[2]
        if calls < 0 or seconds < 0 or passed <= 0:  # a server that was started again, or has unloaded models
            return
        kept = exp(-calls / CALLS - passed / FADING_SECONDS)
        self._answered, self._work = kept * self._answered + calls, kept * self._work + seconds
        self._busy, self._passed = kept * self._busy + seconds, kept * self._passed + passed
