"""The loads that the servers of one backend have told, each with its age and the calls that were in flight then.

Servers tell different things. Each becomes three numbers, which `ReportedLoad.with_call` puts together:

| told | load | per_call | alone |
|---|---|---|---|
| time: calls that are there, seconds of a call, calls that run at once | calls * per_call | seconds / at once | seconds |
| calls: how many are there, waiting or running | the same, at least our own | 1 | 1 |
| use: the share of a processor, a GPU or a cache that is in use | calls in flight * per_call | use / calls answered in a second | per_call |

A use cannot show a queue: a server with a hundred waiting calls is as busy as one with two. So it says how much of the
server one call a second takes (as gRFC A58 has it), and the calls in flight say how many there are.
"""  # noqa: E501

import typing
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Literal, TypeAlias

from gateway.core.frozen import frozen

DOUBT = 20.0
"""The time of a call at one server counts as if so many calls of the mean of all servers were among its own: a server
that has answered three calls is not slow because they were long ones."""
HALF_SECONDS = 3.0
"""After so long what was told of a server's use counts half."""


Measure: TypeAlias = Literal["calls", "use"]
"""The meaning of a number that a server tells, in the table above."""


class Answers(typing.Protocol):
    """The health of an endpoint, as far as it counts."""

    answers: int


class Loaded(Hashable, typing.Protocol):
    """An endpoint, with its calls in flight now, and the calls that it has answered so far."""

    in_flight: int

    @property
    def health(self) -> Answers: ...


@frozen
class ReportedLoad:
    """The load that a server reports.

    `load` is in a unit that all servers of a backend share, `per_call` is how much one more call adds, and `alone` is
    the load of a call that has the server for itself. `in_flight` are the calls that this gateway had there then, `at`
    the time.
    """

    load: float
    per_call: float
    alone: float
    in_flight: int
    at: float

    def with_call(self, in_flight: int, weight: float = 1.0) -> float:
        """The load with one more call, where `in_flight` calls of this gateway are there now: `alone`, and by `weight`
        what goes beyond it."""
        beyond = self.load + self.per_call * (in_flight - self.in_flight + 1) - self.alone
        return self.alone + beyond / weight if beyond > 0 else self.alone


class ReportedLoads:
    """The last ReportedLoad of each endpoint; it does not count any more when it is `stale` seconds old."""

    def __init__(self, stale: float, clock: Callable[[], float] = monotonic) -> None:
        self._stale = stale
        self._clock = clock
        self._told: dict[Hashable, ReportedLoad] = {}
        self._uses: dict[Hashable, _Use] = {}
        self._sum = 0.0
        """Of what a call adds, over all endpoints."""
        self._times: dict[Hashable, tuple[float, float]] = {}
        """For how many calls of each endpoint how many seconds are known."""
        self._calls, self._seconds = 0.0, 0.0
        """Their sums."""

    @property
    def oldest(self) -> float:
        """The time before which a load is stale."""
        return self._clock() - self._stale

    @property
    def usual_call(self) -> float:
        """The load of a call where nothing is known of the server: the mean of the others; 1 if there are none."""
        return self._sum / len(self._told) if self._told and self._sum > 0 else 1.0

    def last(self, endpoint: Hashable) -> ReportedLoad | None:
        """The load that it told last, stale or not."""
        return self._told.get(endpoint)

    def now(self, endpoint: Hashable) -> ReportedLoad | None:
        """The load that it told last, unless that is stale."""
        told = self._told.get(endpoint)
        return None if told is None or told.at < self.oldest else told

    def note_time(self, endpoint: Loaded, calls: float, at_once: float, answered: float, seconds: float) -> None:
        """It has so many `calls`, of which so many run `at_once` (1 or more); those that it has `answered` took so many
        `seconds` together, without the time that they waited. Nothing is known before one server has answered one."""
        self._count(endpoint, answered, seconds)
        if self._calls <= 0 or self._seconds <= 0:
            return
        alone = (seconds + DOUBT * self._seconds / self._calls) / (answered + DOUBT)
        self._note(endpoint, calls * alone / at_once, alone / at_once, alone)

    def note(self, endpoint: Loaded, load: float, measure: Measure) -> None:
        """It tells a number, which is of this measure."""
        if measure == "calls":
            self.note_calls(endpoint, load)
        else:
            self.note_use(endpoint, load)

    def note_calls(self, endpoint: Loaded, calls: float) -> None:
        """It has so many calls, of any client."""
        self._note(endpoint, max(calls, endpoint.in_flight), 1.0, 1.0)

    def note_use(self, endpoint: Loaded, use: float) -> None:
        """It is used so far, 0 or more, on any scale. Nothing is known before it has answered calls."""
        known = self._uses.get(endpoint)
        if known is None:
            self._uses[endpoint] = _Use(endpoint.health.answers, self._clock())
            return
        per_call = known.add(use, endpoint.health.answers, self._clock())
        if per_call is not None:
            self._note(endpoint, endpoint.in_flight * per_call, per_call, per_call)

    def forget(self, endpoint: Hashable) -> None:
        """Forget an endpoint that is not the backend's any more."""
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
    """The use of one server over time, and the calls that it answered, as sums in which old ones fade."""

    __slots__ = ("_answers", "_at", "_calls", "_used")

    def __init__(self, answers: int, at: float) -> None:
        self._answers = answers
        self._at = at
        self._used, self._calls = 0.0, 0.0

    def add(self, use: float, answers: int, at: float) -> float | None:
        """Add the time until now. Returns the use of one call a second; None while that is not known."""
        passed = at - self._at
        if passed > 0:
            kept = 0.5 ** (passed / HALF_SECONDS)
            self._used = kept * self._used + use * passed
            self._calls = kept * self._calls + max(answers - self._answers, 0)
            self._answers, self._at = answers, at
        return self._used / self._calls if self._used > 0 and self._calls > 0.5 else None
