"""`/api/requests`, `/api/summary` and `/api/history`: the last requests, statistics of one part's last requests, and
the last hour in steps."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray
from pydantic import BaseModel

from gateway.admin.console.explanations import ExplainedReason, explained
from gateway.core.errors import Status
from gateway.core.frozen import frozen
from gateway.core.record import OK
from gateway.observing.access_log import LONGEST_SHOWN_NAME
from gateway.observing.batches import ENDED, SECONDS, RequestKind
from gateway.observing.faults import CALLER, SERVER, fault
from gateway.observing.history import (
    ERRORS,
    IN_FLIGHT,
    MEDIAN,
    P95,
    P99,
    REQUESTS,
    STAGE,
    STEP,
    STEPS,
    WAITING,
    History,
    Part,
)
from gateway.observing.recent import RecentRequest, RecentRequests, has_failed
from gateway.observing.stages import READING, STAGES, stage_seconds

FAILED = "failed"
"""The value that selects all failed requests, instead of a status."""
STATUSES = (FAILED, *(each.name for each in Status))
"""The possible statuses in a search."""


class ListedRequest(BaseModel):
    """A completed request, with the data of the access log, which excludes header values, keys and tensors."""

    id: str
    at: datetime
    """The time when the request ended, in UTC."""
    client: str
    """The client's `host:port`; empty over unix sockets."""
    principal: str
    listener: str
    """The listener's name; empty for the call of a graph step, which has the same id as the request for the graph."""
    in_protocol: str
    operation: str
    model: str
    """The first 256 characters of the model's name in the request; empty if the request could not be decoded."""
    route: str
    backend: str
    """The backend that was called last. `out_protocol` and `endpoint` also describe the last call. The fields are empty
    if no backend was called, and for a graph, because its steps have their own backends."""
    out_protocol: str
    endpoint: str
    status: str
    reason: str
    """The error reason; empty for requests that succeeded."""
    fault: Literal["", "caller", "server"]
    """The party that caused the error; empty for requests that succeeded."""
    code: int
    """The response status in the client's protocol; 0 if the protocol has no status codes."""
    cache: str
    """The result of the `cache` policy: `hit`, `shared` or `miss`; empty if the policy did not handle the request."""
    read_for: str
    """The reason why the gateway decoded the request's content, such as `translate.cast`; `nothing` if it did not
    decode the content; empty if no route matched."""
    tries: int
    retries: int
    bytes_in: int
    bytes_out: int
    queued: float
    """Time that the request waited in backend queues, in seconds."""
    upstream: float
    """Total duration of all attempts, in seconds."""
    seconds: float
    """Time from the request's arrival to the end of the response, in seconds."""
    losses: list[str]
    """The information that was lost in the conversion between protocols."""


class ListedRequests(BaseModel):
    """The last matching requests, newest first, and explanations of their error reasons."""

    requests: list[ListedRequest]
    matching: int
    """Total number of matching requests; `requests` can contain fewer."""
    kept: int
    """Total number of stored requests."""
    reasons: dict[str, ExplainedReason]


@frozen
class Search:
    """Conditions that a request must meet. An empty condition matches every request. `id`, `model` and `principal`
    match parts of the request's values, ignoring case; with `exactly`, `model` and `principal` must equal them. The
    other conditions must equal the request's values, except that the status FAILED matches every failed request."""

    id: str = ""
    model: str = ""
    principal: str = ""
    status: str = ""
    listener: str = ""
    route: str = ""
    backend: str = ""
    exactly: bool = False

    def matches(self, request: RecentRequest) -> bool:
        """Return True if the request meets all conditions."""
        kind = request.kind
        return (
            (has_failed(kind) if self.status == FAILED else self.status in ("", kind.status))
            and self.listener in ("", kind.listener)
            and self.route in ("", kind.route)
            and self.backend in ("", kind.backend)
            and self.id.casefold() in request.id.casefold()
            and self._has(self.model, request.model)
            and self._has(self.principal, kind.principal)
        )

    def _has(self, wanted: str, name: str) -> bool:
        if self.exactly:
            return wanted in ("", _readable(name))
        return wanted.casefold() in name.casefold()


def listed(requests: RecentRequests, search: Search, most: int, since_1970: float) -> dict[str, Any]:
    """Return up to `most` matching requests as a JSON object, a ListedRequests. A search for a backend also finds the
    calls of graph steps. `since_1970` is the Unix time at which the requests' clock was 0."""
    kept = list(requests.with_steps() if search.backend else requests)
    matching = [each for each in kept if search.matches(each)]
    shown = matching[:most]
    return {
        "requests": [_listed(each, since_1970) for each in shown],
        "matching": len(matching),
        "kept": len(kept),
        "reasons": {name: each.model_dump() for name, each in explained({each.kind.reason for each in shown}).items()},
    }


def _listed(request: RecentRequest, since_1970: float) -> dict[str, Any]:
    found = {**asdict(request), **asdict(request.kind)}
    del found["kind"]
    at = datetime.fromtimestamp(found.pop("ended") + since_1970, UTC)
    found["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found["model"] = _readable(request.model)
    found["fault"] = _fault_of(request.kind) if has_failed(request.kind) else ""
    found |= {name: round(found[name], 6) for name in ("queued", "upstream", "seconds")}
    return found


SummarisedPart = Literal["", "listener", "route", "backend", "model", "principal"]
"""The kind of part whose requests to summarize. The empty string means all requests."""
RELATED: Sequence[SummarisedPart] = ("route", "backend", "model", "principal")
MOST_NAMES = 100
"""Maximum number of names to list for each of RELATED. The list starts with the names that occur in the most
requests."""


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
    """Number of the gateway's recent requests that the summary considers, without probes: up to 1000, plus the
    remainder of a batch."""
    since: datetime | None
    """The time when the oldest of these requests ended, or null."""
    failed: int
    """Number of requests with a server error."""
    rejected: int
    """Number of requests with a caller error."""
    total: Times
    stages: dict[str, Times]
    """Times by stage. `queue`, `server` and `gateway` add up to the total time. `reading` and `writing` are parts of
    `gateway`, measured for 1 in 16 requests."""
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
            faults[_fault_of(of_kind)] += number
    ended = all_numbers[ENDED]
    names: dict[str, list[str]] = {each: [] for each in RELATED}
    for found, _ in kinds.most_common():
        for each, listed in names.items():
            text = _readable(getattr(found, each))
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


def _fault_of(kind: RequestKind) -> str:
    """Return the party that caused a failed request's error: CALLER or SERVER."""
    if kind.status == OK:  # the response contained an error, but was not decoded
        return SERVER if kind.code >= 500 else CALLER
    return fault(kind.reason, kind.status)


def _readable(name: str) -> str:
    """Return the first 256 characters of a name, without unpaired surrogates, for display and search."""
    return name[:LONGEST_SHOWN_NAME].encode("utf-8", "backslashreplace").decode()


def _is_of(kind: SummarisedPart, name: str) -> Callable[[RequestKind], bool]:
    return lambda each: _readable(getattr(each, kind)) == name


def _times(values: NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"requests": 0, "mean": None, "median": None, "p95": None, "p99": None}
    parts = np.quantile(values, (0.5, 0.95, 0.99), method="inverted_cdf")  # actual times, not interpolated
    mean, median, p95, p99 = np.round((values.mean(), *parts), 7).tolist()
    return {"requests": len(values), "mean": mean, "median": median, "p95": p95, "p99": p99}


ROWS = {
    "requests": REQUESTS,
    "errors": ERRORS,
    "median": MEDIAN,
    "p95": P95,
    "p99": P99,
    "in_flight": IN_FLIGHT,
    "waiting": WAITING,
    **{name: STAGE + at for at, name in enumerate(STAGES)},
}


class DrawnHistory(BaseModel):
    """The last hour, or the time since the gateway started, in steps. Each list contains one value per step, oldest
    first."""

    step: float
    """Planned length of a step, in seconds. A busy event loop can delay the end of a step."""
    kept: float
    """Number of seconds in the history."""
    times: list[float]
    """Unix times of the ends of the steps."""
    seconds: list[float]
    """The lengths of the steps, in seconds."""
    requests: list[float]
    """Number of requests that ended in the step."""
    errors: list[float]
    """Number of requests that failed with a server error."""
    median: list[float | None]
    """The median latency of these requests, in seconds; null if no request ended. `p95` and `p99` are the 95th and 99th
    percentiles."""
    p95: list[float | None]
    p99: list[float | None]
    in_flight: list[float | None]
    """The maximum number of requests in flight within the step. Null for routes, because the gateway counts neither
    requests in flight nor waiting calls by route."""
    waiting: list[float | None]
    """The maximum number of calls that waited for a free slot of a backend within the step."""
    queue: list[float | None]
    """The mean time that a request waited in backend queues, in seconds. The following fields are also mean times."""
    server: list[float | None]
    """The mean time in calls to model servers, including the network."""
    gateway: list[float | None]
    """The mean of all other time. `queue`, `server` and `gateway` add up to the total."""
    reading: list[float | None]
    """The part of `gateway` spent on decoding requests; `writing` is the part spent on encoding responses. The gateway
    measures `reading` and `writing` for 1 in 16 requests."""
    writing: list[float | None]


def drawn_history(history: History, part: Part) -> dict[str, Any]:
    """Return a DrawnHistory as a JSON object."""
    found = history.steps(part)
    values = np.round(found.values.astype(np.float64), 7)
    if part[0] == "route":
        values[[IN_FLIGHT, WAITING]] = np.nan
    return {
        "step": STEP,
        "kept": STEP * STEPS,
        "times": np.round(found.times, 1).tolist(),
        "seconds": np.round(found.seconds, 3).tolist(),
        **{name: values[row].tolist() for name, row in ROWS.items()},  # orjson writes NaN as null
    }
