"""Strategies that choose the endpoint for a call: `least_in_flight`, `least_load`, `round_robin` and `power_of_two`.

A strategy receives all endpoints of a backend, and the excluded endpoints (already tried, or ejected). It returns an
endpoint that has fewer calls in flight than the limit. Strategies do not depend on queues, sequences or health. Only
`least_load` reads the loads that servers report (`load`).

| strategy | without weights | with weights |
|---|---|---|
| `least_in_flight` | fewest calls in flight; equally busy endpoints take turns | smallest in_flight / weight; ties by weighted turns |
| `least_load` | smallest reported load; endpoints within a tenth of it take turns | the part of a load beyond one call is divided by the weight; weighted turns |
| `round_robin` | turns | weighted turns |
| `power_of_two` | two at random; the one with fewer calls in flight | two drawn by weight; the one with the smaller in_flight / weight |

Weighted turns are smooth. With weights 3 and 1, the order is A A B A and not A A A B. At each choice, the credit of
every endpoint increases by its weight. The strategy chooses the endpoint with the most credit, and subtracts the sum of
all weights from this credit.
"""  # noqa: E501

import random
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Protocol, TypeVar

from gateway.routing.load.reported import ReportedLoads

SMALLEST_SHARE = 0.05
"""The fraction of its weight that an endpoint has at the beginning of its slow start."""


class Candidate(Hashable, Protocol):
    """The data about an endpoint that strategies use.

    `since` is the time at which the endpoint was added, or returned after an ejection."""

    in_flight: int
    since: float


T = TypeVar("T", bound=Candidate)


class Strategy(Protocol):
    """Chooses an endpoint for each call."""

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """Return one of `endpoints` that is not in `excluded` and has fewer than `limit` calls in flight (0: no limit),
        or None if no endpoint qualifies."""


class Weights:
    """The weights of the endpoints. They determine each endpoint's share of the calls; the default weight is 1. `given`
    can change later, but not from equal to unequal weights.

    In the first `slow_start` seconds after `Candidate.since`, a weight grows linearly from SMALLEST_SHARE of its value
    to the full value."""

    def __init__(
        self,
        given: Mapping[Hashable, float] | None = None,
        slow_start: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._given: Mapping[Hashable, float] = {} if given is None else given
        self._slow_start = slow_start
        self._clock = clock

    @property
    def are_equal(self) -> bool:
        """True if all endpoints always have the same weight."""
        return not self._slow_start and set(self._given.values()) <= {1.0}

    def of(self, endpoint: Candidate) -> float:
        """Return the current weight of `endpoint`. The result is always above 0."""
        weight = self._given.get(endpoint, 1.0)
        if self._slow_start:
            grown = (self._clock() - endpoint.since) / self._slow_start
            if grown < 1.0:
                weight *= max(grown, SMALLEST_SHARE)
        return weight


def strategy(name: str, weights: Weights, loads: ReportedLoads | None = None) -> Strategy:
    """Return the strategy with this `name` in the configuration. `least_load` uses `loads`, or the calls in flight if
    `loads` is None.

    Raises:
        KeyError: the strategy is unknown.
    """
    if name == LEAST_LOAD:
        return _least_in_flight(weights) if loads is None else LeastLoad(loads, weights)
    return _STRATEGIES[name](weights)


class LeastInFlight:
    """The strategy `least_in_flight`, for equal weights."""

    def __init__(self) -> None:
        self._next = 0
        """The index at which the next search starts: the one after the last chosen endpoint."""

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """See `Strategy.choose`."""
        count = len(endpoints)
        if count == 1:
            only = endpoints[0]
            return only if (not limit or only.in_flight < limit) and only not in excluded else None
        best, fewest = None, limit or sys.maxsize
        at = self._next
        for _ in endpoints:
            if at >= count:  # past the end; endpoints might also have been removed
                at = 0
            each = endpoints[at]
            at += 1
            if each.in_flight < fewest and (not excluded or each not in excluded):
                best, fewest, self._next = each, each.in_flight, at
                if not fewest:
                    break
        return best


class WeightedLeastInFlight:
    """The strategy `least_in_flight`, for unequal weights."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._turns = _Turns()

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """See `Strategy.choose`."""
        least = float("inf")
        tied: list[tuple[T, float]] = []
        for each in _free(endpoints, limit, excluded):
            weight = self._weights.of(each)
            load = each.in_flight / weight
            if load < least:
                least, tied = load, []
            if load == least:
                tied.append((each, weight))
        return self._turns.next(tied, endpoints)


class LeastLoad:
    """The strategy `least_load`, which chooses the endpoint with the smallest expected load, including the new call.

        load = alone + max(told + per_call * (in_flight - in_flight_then + 1) - alone, 0) / weight

    - `told` is the last load that the server reported, `per_call` is the load that one call adds, and `alone` is the
      load of a call that runs alone on the server (`load.reported` defines them for each source).
    - `in_flight - in_flight_then` is the number of calls that this gateway has sent since the report, minus the calls
      that have ended. As a result, a server's load grows immediately with each call, and not only with the next report.
      The calls between two reports are spread over the servers and do not all go to the server that was least busy in
      the last report.
    - If a server's last load is stale or missing, the strategy assumes that the server runs only this gateway's calls:
      `usual_call + in_flight * usual_call / weight`, where `usual_call` is the mean `per_call` of all servers. These
      assumed loads are comparable with reported loads. If all loads are stale or missing, the strategy works like
      `least_in_flight`.
    - Measured loads are inexact. Therefore, loads up to CLOSE times the smallest load count as equal, and their
      endpoints take turns.
    """

    CLOSE = 1.1
    """The maximum ratio between a load and the smallest load at which the two count as equal."""

    def __init__(self, loads: ReportedLoads, weights: Weights) -> None:
        self.loads = loads
        self._weights = weights
        self._turns = _Turns()

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """See `Strategy.choose`."""
        free = _free(endpoints, limit, excluded)
        if len(free) < 2:
            return free[0] if free else None
        last, oldest, usual = self.loads.last, self.loads.oldest, self.loads.usual_call
        weights = None if self._weights.are_equal else self._weights
        found: list[tuple[float, T, float]] = []
        for each in free:
            told = last(each)
            weight = 1.0 if weights is None else weights.of(each)
            if told is None or told.at < oldest:
                found.append((usual + each.in_flight * usual / weight, each, weight))
            else:
                found.append((told.with_call(each.in_flight, weight), each, weight))
        bound = min(load for load, _, _ in found) * self.CLOSE
        return self._turns.next([(each, weight) for load, each, weight in found if load <= bound], endpoints)


class RoundRobin:
    """The strategy `round_robin`."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._turns = _Turns()

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """See `Strategy.choose`."""
        shares = [(each, self._weights.of(each)) for each in _free(endpoints, limit, excluded)]
        return self._turns.next(shares, endpoints)


class PowerOfTwo:
    """The strategy `power_of_two`. `draw` returns a random number from 0 (inclusive) to 1 (exclusive)."""

    def __init__(self, weights: Weights, draw: Callable[[], float] = random.random) -> None:
        self._weights = None if weights.are_equal else weights
        self._draw = draw

    def choose(self, endpoints: Sequence[T], limit: int, excluded: Container[T]) -> T | None:
        """See `Strategy.choose`."""
        free = _free(endpoints, limit, excluded)
        count = len(free)
        if count < 2:
            return free[0] if free else None
        if self._weights is None:
            first = int(self._draw() * count)
            second = int(self._draw() * (count - 1))
            second += second >= first
            one, other = free[first], free[second]
            return one if one.in_flight <= other.in_flight else other
        weights = list(map(self._weights.of, free))
        first = self._drawn(weights)
        weight, weights[first] = weights[first], 0.0
        second = self._drawn(weights)
        one, other = free[first], free[second]
        return one if one.in_flight / weight <= other.in_flight / weights[second] else other

    def _drawn(self, weights: Sequence[float]) -> int:
        """Return a random index, drawn in proportion to the weights. An index with weight 0 is never drawn."""
        rest = self._draw() * sum(weights)
        drawn = 0
        for at, weight in enumerate(weights):
            if weight:
                drawn = at
                if rest < weight:
                    break
                rest -= weight
        return drawn


class _Turns:
    """Smooth weighted round robin. Stores the credit of each endpoint."""

    def __init__(self) -> None:
        self._credits: dict[Candidate, float] = {}

    def next(self, shares: Iterable[tuple[T, float]], endpoints: Sequence[T]) -> T | None:
        """Return the endpoint whose turn it is, or None if `shares` is empty. `shares` contains pairs of endpoint and
        weight. `endpoints` is the full list; the credits of all other endpoints are dropped."""
        credits = self._credits
        best, most, total = None, -float("inf"), 0.0
        for each, weight in shares:
            credit = credits[each] = credits.get(each, 0.0) + weight
            total += weight
            if credit > most:
                best, most = each, credit
        if best is not None:
            credits[best] = most - total
        if len(credits) > len(endpoints):
            self._credits = {each: credits[each] for each in endpoints if each in credits}
        return best


def _free(endpoints: Sequence[T], limit: int, excluded: Container[T]) -> Sequence[T]:
    if not limit and not excluded:
        return endpoints
    return [each for each in endpoints if (not limit or each.in_flight < limit) and each not in excluded]


def _least_in_flight(weights: Weights) -> Strategy:
    return LeastInFlight() if weights.are_equal else WeightedLeastInFlight(weights)


LEAST_LOAD = "least_load"
"""The name of the strategy that requires reported loads in addition to weights."""
_STRATEGIES: Mapping[str, Callable[[Weights], Strategy]] = {
    "least_in_flight": _least_in_flight,
    "round_robin": RoundRobin,
    "power_of_two": PowerOfTwo,
}
