"""Stores the loads that the servers of one backend report, with the time of each report and the number of calls in
flight at that time.

Servers report different measures. The gateway converts each measure to three numbers, which `ReportedLoad.with_call`
combines:

| reported | load | per_call | alone |
|---|---|---|---|
| time: number of calls, seconds per call, number of calls that run in parallel | calls * per_call | seconds / parallel calls | seconds |
| calls: the number of waiting or running calls | this number, but at least the number of this gateway's calls | 1 | 1 |
| use: the fraction of a processor, a GPU or a cache that is in use | calls in flight * per_call | use / calls answered per second | per_call |

Use does not reveal a queue: a server with a hundred waiting calls is as busy as a server with two. Therefore, the use
determines only the share of the server that one call per second takes (like gRFC A58). The number of calls is the
number of calls in flight.
"""  # noqa: E501

import typing
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Literal, TypeAlias

from gateway.core.frozen import frozen

DOUBT = 20.0
"""A server's mean call time includes this number of assumed calls, which take the mean time of all servers. Without
them, a server that has answered three long calls would count as slow."""
HALF_SECONDS = 3.0
"""The half-life of a server's reported uses, in seconds."""


Measure: TypeAlias = Literal["calls", "use"]
"""The meaning of a number that a server reports (see the table in the module docstring)."""


class Answers(typing.Protocol):
    """The part of an endpoint's health that this module uses."""

    answers: int


class Loaded(Hashable, typing.Protocol):
    """An endpoint, with the number of calls in flight and the number of answered calls."""

    in_flight: int

    @property
    def health(self) -> Answers: ...


@frozen
class ReportedLoad:
    """The load that a server reports.

    - `load`: The load, in a unit that all servers of the backend share.
    - `per_call`: The load that one more call adds.
    - `alone`: The load of a call that runs alone on the server.
    - `in_flight`: The number of this gateway's calls to the server at the time of the report.
    - `at`: The time of the report.
    """

    load: float
    per_call: float
    alone: float
    in_flight: int
    at: float

    def with_call(self, in_flight: int, weight: float = 1.0) -> float:
        """Return the server's load with one more call: `alone`, plus the remaining load divided by `weight`.
        `in_flight` is the number of calls that this gateway now has on the server."""
        beyond = self.load + self.per_call * (in_flight - self.in_flight + 1) - self.alone
        return self.alone + beyond / weight if beyond > 0 else self.alone


class ReportedLoads:
    """The last load report of each endpoint. Reports older than `stale` seconds count as missing."""

    def __init__(self, stale: float, clock: Callable[[], float] = monotonic) -> None:
        self._stale = stale
        self._clock = clock
        self._told: dict[Hashable, ReportedLoad] = {}
        self._uses: dict[Hashable, _Use] = {}
        self._sum = 0.0
        """The sum of `per_call` over all endpoints."""
        self._times: dict[Hashable, tuple[float, float]] = {}
        """For each endpoint, the number of calls with a known time, and their total time in seconds."""
        self._calls, self._seconds = 0.0, 0.0
        """The sums of `_times` over all endpoints."""

    @property
    def oldest(self) -> float:
        """The time before which reports are stale."""
        return self._clock() - self._stale

    @property
    def usual_call(self) -> float:
        """The load per call for a server without a report: the mean of the other servers, or 1 if no server has
        reported."""
        return self._sum / len(self._told) if self._told and self._sum > 0 else 1.0

    def last(self, endpoint: Hashable) -> ReportedLoad | None:
        """Return the last reported load, stale or not."""
        return self._told.get(endpoint)

    def now(self, endpoint: Hashable) -> ReportedLoad | None:
        """Return the last reported load, or None if it is stale."""
        told = self._told.get(endpoint)
        return None if told is None or told.at < self.oldest else told

    def note_time(self, endpoint: Loaded, calls: float, at_once: float, answered: float, seconds: float) -> None:
        """Record that the server has `calls` calls, and that `at_once` (1 or more) of them run in parallel.

        The `answered` calls took `seconds` seconds in total, without waiting time. The load stays unknown until at
        least one server has answered a call."""
        self._count(endpoint, answered, seconds)
        if self._calls <= 0 or self._seconds <= 0:
            return
        alone = (seconds + DOUBT * self._seconds / self._calls) / (answered + DOUBT)
        self._note(endpoint, calls * alone / at_once, alone / at_once, alone)

    def note(self, endpoint: Loaded, load: float, measure: Measure) -> None:
        """Record a reported value of this measure."""
        if measure == "calls":
            self.note_calls(endpoint, load)
        else:
            self.note_use(endpoint, load)

    def note_calls(self, endpoint: Loaded, calls: float) -> None:
        """Record the number of calls that the server has from all clients."""
        self._note(endpoint, max(calls, endpoint.in_flight), 1.0, 1.0)

    def note_use(self, endpoint: Loaded, use: float) -> None:
        """Record the server's use, a nonnegative number in any unit.

        The load stays unknown until the server has answered calls."""
        known = self._uses.get(endpoint)
        if known is None:
            self._uses[endpoint] = _Use(endpoint.health.answers, self._clock())
            return
        per_call = known.add(use, endpoint.health.answers, self._clock())
        if per_call is not None:
            self._note(endpoint, endpoint.in_flight * per_call, per_call, per_call)

    def forget(self, endpoint: Hashable) -> None:
        """Remove an endpoint that no longer belongs to the backend."""
        told = self._told.pop(endpoint, None)
        if told is not None:
            self._sum -= told.per_call
        self._uses.pop(endpoint, None)
        self._count(endpoint, 0.0, 0.0)
        self._times.pop(endpoint, None)

    def _count(self, endpoint: Hashable, answered: float, seconds: float) -> None:
        before = self._times.get(endpoint, (0.0, 0.0))
        self._times[endpoint] = answered, seconds
        self._calls += answered - before[0]
        self._seconds += seconds - before[1]

    def _note(self, endpoint: Loaded, load: float, per_call: float, alone: float) -> None:
        before = self._told.get(endpoint)
        self._sum += per_call - (0.0 if before is None else before.per_call)
        self._told[endpoint] = ReportedLoad(load, per_call, alone, endpoint.in_flight, self._clock())


class _Use:
    """One server's use over time and its answered calls, as exponentially decaying sums."""

    __slots__ = ("_answers", "_at", "_calls", "_used")

    def __init__(self, answers: int, at: float) -> None:
        self._answers = answers
        self._at = at
        self._used, self._calls = 0.0, 0.0

    def add(self, use: float, answers: int, at: float) -> float | None:
        """Add the interval since the last report. Return the use that one call per second causes, or None while this
        use is unknown."""
        passed = at - self._at
        if passed > 0:
            kept = 0.5 ** (passed / HALF_SECONDS)
            self._used = kept * self._used + use * passed
            self._calls = kept * self._calls + max(answers - self._answers, 0)
            self._answers, self._at = answers, at
        return self._used / self._calls if self._used > 0 and self._calls > 0.5 else None
