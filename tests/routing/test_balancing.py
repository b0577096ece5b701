"""Which endpoint a call gets."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from gateway.routing.balancing import (
    SMALLEST_SHARE,
    LeastInFlight,
    PowerOfTwo,
    RoundRobin,
    Strategy,
    WeightedLeastInFlight,
    Weights,
    strategy,
)
from tests.clock import Clock

NAMES = ("least_in_flight", "round_robin", "power_of_two")


class Server:
    """An endpoint as strategies see it."""

    def __init__(self, name: str, in_flight: int = 0) -> None:
        self.name = name
        self.in_flight = in_flight
        self.since = -float("inf")

    def __repr__(self) -> str:
        return self.name


def servers(*in_flight: int) -> list[Server]:
    return [Server("abcdefgh"[at], calls) for at, calls in enumerate(in_flight)]


def made(name: str, weights: Weights) -> Strategy:
    """The strategy, with the same random numbers in every run."""
    return PowerOfTwo(weights, random.Random(7).random) if name == "power_of_two" else strategy(name, weights)


def names(chooser: Strategy, among: Sequence[Server], times: int, limit: int = 0) -> str:
    """The names of those that are chosen, one after the other; the calls end at once."""
    return "".join(str(chooser.choose(among, limit, ())) for _ in range(times))


def under_load(chooser: Strategy, among: Sequence[Server], calls: int, at_once: int) -> Counter[str]:
    """How many calls each server gets, with `at_once` in flight at all times. Any of them may end next."""
    running: list[Server] = []
    counts: Counter[str] = Counter()
    ends = random.Random(11)
    for _ in range(calls):
        if len(running) == at_once:
            running.pop(ends.randrange(at_once)).in_flight -= 1
        server = chooser.choose(among, 0, ())
        assert server is not None
        server.in_flight += 1
        running.append(server)
        counts[server.name] += 1
    for server in running:
        server.in_flight -= 1
    return counts


# Without weights


def test_least_in_flight_takes_the_least_busy_and_equally_busy_ones_take_turns() -> None:
    chooser = strategy("least_in_flight", Weights())
    assert isinstance(chooser, LeastInFlight)
    assert names(chooser, servers(0, 0, 0), 7) == "abcabca"
    assert names(chooser, servers(2, 1, 2), 3) == "bbb"
    assert names(chooser, servers(1, 2, 1), 4) == "caca"


def test_least_in_flight_goes_on_when_endpoints_have_gone() -> None:
    chooser = LeastInFlight()
    assert names(chooser, servers(0, 0, 0, 0), 3) == "abc"
    assert names(chooser, servers(0, 0), 3) == "aba"


def test_round_robin_takes_turns_whatever_is_in_flight() -> None:
    among = servers(9, 0, 3)
    assert names(strategy("round_robin", Weights()), among, 6) == "abcabc"


def test_power_of_two_takes_the_less_busy_of_any_two() -> None:
    chooser = made("power_of_two", Weights())
    counts = Counter(names(chooser, servers(0, 1, 2, 9), 6000))
    # The busiest of all is never the better of two; the idlest is in half of the pairs, the next in a third.
    assert counts["d"] == 0
    assert [round(counts[name] / 6000, 1) for name in "abc"] == [0.5, 0.3, 0.2]


@pytest.mark.parametrize("weights", [Weights(), Weights({"nobody": 2.0})], ids=["equal", "weighted"])
@pytest.mark.parametrize("name", NAMES)
class TestAnyStrategy:
    def test_takes_no_excluded_or_full_endpoint(self, name: str, weights: Weights) -> None:
        chooser = made(name, weights)
        a, b, c = among = servers(0, 0, 2)
        assert {chooser.choose(among, 0, (a,)) for _ in range(50)} <= {b, c}
        assert {chooser.choose(among, 2, ()) for _ in range(50)} == {a, b}
        assert {chooser.choose(among, 2, [b]) for _ in range(50)} == {a}
        assert chooser.choose(among, 2, (a, b)) is None
        assert chooser.choose((), 0, ()) is None

    def test_takes_the_only_endpoint(self, name: str, weights: Weights) -> None:
        chooser = made(name, weights)
        [only] = among = servers(5)
        assert [chooser.choose(among, limit, ()) for limit in (0, 6, 5)] == [only, only, None]


# Weights


def test_weighted_turns_are_smooth() -> None:
    a, b, c = among = servers(0, 0, 0)
    weights = Weights({a: 5, b: 1, c: 1})
    assert names(RoundRobin(weights), among, 14) == "aabacaa" * 2


def test_of_endpoints_that_are_equally_busy_for_their_weight_the_weights_decide() -> None:
    a, b = among = servers(0, 0)
    chooser = strategy("least_in_flight", Weights({a: 3}))
    assert isinstance(chooser, WeightedLeastInFlight)
    assert names(chooser, among, 8) == "aabaaaba"
    a.in_flight, b.in_flight = 5, 2  # 5/3 and 2/1
    assert names(chooser, among, 2) == "aa"
    a.in_flight, b.in_flight = 4, 1  # 4/3 and 1/1
    assert names(chooser, among, 2) == "bb"


@pytest.mark.parametrize("at_once", [1, 8, 40])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_honours_weights(name: str, at_once: int) -> None:
    a, b, c = among = servers(0, 0, 0)
    counts = under_load(made(name, Weights({a: 1, b: 2, c: 5})), among, 8000, at_once)
    shares = [counts[each] / 1000 for each in "abc"]
    assert shares[0] < shares[1] < shares[2]
    # power_of_two draws two different ones, so the smaller weights come more often than their share
    slack = 0.8 if name == "power_of_two" else 0.25
    assert shares == [pytest.approx(1, abs=slack), pytest.approx(2, abs=slack), pytest.approx(5, abs=2 * slack)]


def test_weights_of_endpoints_that_have_gone_are_not_kept() -> None:
    chooser = RoundRobin(Weights())
    for _ in range(10):
        names(chooser, servers(0, 0, 0), 3)
    assert len(chooser._turns._credits) <= 3


# Slow start


@pytest.mark.parametrize(
    ("elapsed", "weight"), [(0.0, 4 * SMALLEST_SHARE), (2.5, 1.0), (5.0, 2.0), (10.0, 4.0), (999.0, 4.0)]
)
def test_in_a_slow_start_the_weight_grows_linearly(elapsed: float, weight: float) -> None:
    clock = Clock(100.0)
    server = Server("a")
    weights = Weights({server: 4}, 10.0, clock)
    assert weights.of(server) == 4  # it was there from the beginning
    server.since = clock.now
    clock.now += elapsed
    assert weights.of(server) == pytest.approx(weight)


@pytest.mark.parametrize("at_once", [1, 10])
@pytest.mark.parametrize("name", NAMES)
def test_one_that_came_back_gets_a_share_that_rises_to_its_weight(name: str, at_once: int) -> None:
    clock = Clock(100.0)
    among = servers(0, 0, 0)
    chooser = made(name, Weights({}, 10.0, clock))
    among[2].since = clock.now
    shares = []
    for elapsed in (0.0, 2.5, 5.0, 10.0):
        clock.now = among[2].since + elapsed
        shares.append(under_load(chooser, among, 6000, at_once)["c"] / 6000)
    assert shares == sorted(shares)
    assert shares[0] < 0.12
    assert shares[-1] == pytest.approx(1 / 3, abs=0.03)


def test_without_weights_and_slow_start_the_cheapest_search_is_used() -> None:
    cases: list[tuple[Weights, Callable[..., Strategy]]] = [
        (Weights({"a": 1.0}), LeastInFlight),
        (Weights({"a": 2.0}), WeightedLeastInFlight),
        (Weights({}, 5.0), WeightedLeastInFlight),
    ]
    for weights, kind in cases:
        assert type(strategy("least_in_flight", weights)) is kind
