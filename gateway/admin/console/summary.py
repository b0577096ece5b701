"""Statistics of the last requests for one part of the gateway: `/api/summary`."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from gateway.core.record import OK
from gateway.observing.access_lines import LONGEST_SHOWN_NAME
from gateway.observing.batches import ENDED, SECONDS, RequestKind
from gateway.observing.faults import CALLER, SERVER, fault
from gateway.observing.recent import RecentRequests, has_failed
from gateway.observing.stages import READING, STAGES, stage_seconds

SummarisedPart = Literal["", "listener", "route", "backend", "model", "principal"]
"""The kinds of parts whose requests can be summarized. The empty string means all requests."""
RELATED: Sequence[SummarisedPart] = ("route", "backend", "model", "principal")
MOST_NAMES = 100
"""Maximum number of names that a list shows for each of RELATED. The list starts with the names that occur in the
largest number of requests."""


class Times(BaseModel):
    """Request times, in seconds; null if no request was measured."""

    requests: int
    """Number of measured requests."""
    mean: float | None
    median: float | None
    p95: float | None
    p99: float | None


class RequestSummary(BaseModel):
    """Statistics of a part's requests among the gateway's last thousand requests. A backend's requests include the
    calls of graph steps."""

    requests: int
    of: int
    """Number of the gateway's recent requests that were considered, without probes: 1000 plus the remainder of a
    batch."""
    since: datetime | None
    """The end of the oldest of these requests, or null."""
    failed: int
    """Number of requests with a server error."""
    rejected: int
    """Number of requests with a caller error."""
    total: Times
    stages: dict[str, Times]
    """Times by stage. `queue`, `server` and `gateway` add up to the total time. `reading` and `writing` are parts of
    `gateway`, which are measured for 1 in 16 requests."""
    names: dict[str, list[str]]
    """The routes, backends, models and principals of the requests, sorted by frequency."""


def summary(kept: RecentRequests, kind: SummarisedPart, name: str, since_1970: float) -> dict[str, Any]:
    """Return a RequestSummary as a JSON object. `since_1970` is the Unix time at which the requests' clock was 0."""
    all_kinds, all_numbers = kept.numbers(lambda _: True)
    if kind:
        kinds, numbers = kept.numbers(_is_of(kind, name), with_steps=kind == "backend")
    else:
        kinds, numbers = all_kinds, all_numbers
    seconds = stage_seconds(numbers)
    faults: Counter[str] = Counter()
    for of_kind, number in kinds.items():
        if has_failed(of_kind):
            faults[fault_of(of_kind)] += number
    ended = all_numbers[ENDED]
    names: dict[str, list[str]] = {each: [] for each in RELATED}
    for found, _ in kinds.most_common():
        for each, listed in names.items():
            text = readable(getattr(found, each))
            if text and text not in listed and len(listed) < MOST_NAMES:
                listed.append(text)
    return {
        "requests": numbers.shape[1],
        "of": len(ended),
        "since": datetime.fromtimestamp(ended.min() + since_1970, UTC).isoformat() if len(ended) else None,
        "failed": faults[SERVER],
        "rejected": faults[CALLER],
        "total": _times(numbers[SECONDS]),
        "stages": {
            stage: _times(row[row > 0] if at >= READING else row)
            for at, (stage, row) in enumerate(zip(STAGES, seconds, strict=True))
        },
        "names": names,
    }


def fault_of(kind: RequestKind) -> str:
    """Return which party caused the error of a failed request: CALLER or SERVER."""
    if kind.status == OK:  # the response contained an error, but was not decoded
        return SERVER if kind.code >= 500 else CALLER
    return fault(kind.reason, kind.status)


def readable(name: str) -> str:
    """Return the first 256 characters of a name, without unpaired surrogates, for display and search."""
    return name[:LONGEST_SHOWN_NAME].encode("utf-8", "backslashreplace").decode()


def _is_of(kind: SummarisedPart, name: str) -> Callable[[RequestKind], bool]:
    return lambda each: readable(getattr(each, kind)) == name


def _times(values: NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"requests": 0, "mean": None, "median": None, "p95": None, "p99": None}
    parts = np.quantile(values, (0.5, 0.95, 0.99), method="inverted_cdf")  # actual times, not interpolated
    mean, median, p95, p99 = np.round((values.mean(), *parts), 7).tolist()
    return {"requests": len(values), "mean": mean, "median": median, "p95": p95, "p99": p99}
