"""The strategy `least_load`, and what it knows of servers."""

from collections import Counter

import pytest

from gateway.routing.balancing import LeastLoad, Weights, strategy
from gateway.routing.load.reported import HALF_SECONDS, ReportedLoads
from tests.routing import test_balancing


class Health:
    answers = 0


class Server(test_balancing.Server):
    """An endpoint as the strategy sees it, with the answers that it has given."""

    def __init__(self, name: str, in_flight: int = 0) -> None:
        super().__init__(name, in_flight)
        self.health = Health()


class Lab:
    """Servers, and what they have told; `now` is the time."""

    def __init__(self, *in_flight: int, weights: Weights | None = None, stale: float = 5.0) -> None:
        self.now = 100.0
        self.loads = ReportedLoads(stale, lambda: self.now)
        self.servers = [Server("abcdefgh"[at], calls) for at, calls in enumerate(in_flight)]
        self.strategy = LeastLoad(self.loads, weights or Weights())

    def times(self, *seconds: float, calls: tuple[float, ...] = (), at_once: float = 1.0) -> None:
        """Each server tells the seconds of a call, after many, and how many calls it has (its own in flight)."""
        for at, (server, each) in enumerate(zip(self.servers, seconds, strict=True)):
            has = calls[at] if calls else server.in_flight
            self.loads.note_time(server, has, at_once, 1e6, each * 1e6)

    def chosen(self, calls: int = 1, limit: int = 0, excluded: tuple[Server, ...] = ()) -> str:
        """Who gets the next calls, none of which ends."""
        names = ""
        for _ in range(calls):
            server = self.strategy.choose(self.servers, limit, excluded)
            if server is not None:
                server.in_flight += 1
            names += str(server)
        return names


def test_a_server_that_is_three_times_slower_gets_a_third_of_the_calls_of_each_other() -> None:
    lab = Lab(0, 0, 0)
    lab.times(0.01, 0.01, 0.03)
    assert Counter(lab.chosen(70)) == pytest.approx({"a": 30, "b": 30, "c": 10}, abs=1)


def test_calls_between_two_readings_count_and_no_herd_runs_to_one_server() -> None:
    lab = Lab(0, 0)
    lab.times(0.01, 0.01, calls=(10, 20))
    assert lab.chosen(9) == "a" * 9
    assert set(lab.chosen(4)) == {"a", "b"}  # as full as the other by now, though nobody said so


def test_calls_that_end_count_too() -> None:
    lab = Lab(4, 3)
    lab.times(0.01, 0.01)
    lab.servers[0].in_flight = 1
    assert lab.chosen() == "a"


def test_a_server_that_others_keep_busy_is_left_alone() -> None:
    lab = Lab(0, 2)
    lab.times(0.01, 0.01, calls=(50, 2))
    assert lab.chosen(20) == "b" * 20


def test_a_fast_server_with_free_instances_is_better_than_a_slow_one_that_is_idle() -> None:
    lab = Lab(3, 0)
    lab.times(0.01, 0.02, at_once=4)
    assert lab.chosen() == "a"  # 10 ms in its fourth instance; the other one takes 20
    assert lab.chosen(4) == "aaaa"
    assert lab.chosen() == "b"


def test_stale_loads_fall_back_to_the_calls_in_flight() -> None:
    lab = Lab(2, 1)
    lab.times(0.01, 0.03)
    lab.now += 5.0
    assert lab.chosen() == "a"
    lab.now += 0.1
    assert lab.chosen(2) == "bb"


def test_a_server_that_tells_nothing_is_compared_by_the_usual_call() -> None:
    lab = Lab(0, 0)
    lab.loads.note_time(lab.servers[0], 5, 1, 1e6, 1e4)
    assert lab.chosen(4) == "bbbb"
    lab.loads.note_time(lab.servers[0], 0, 1, 1e6, 1e4)
    assert lab.chosen(4) == "aaaa"


def test_nothing_told_is_least_in_flight_with_turns() -> None:
    lab = Lab(1, 0, 0)
    assert sorted(lab.chosen(2)) == ["b", "c"]
    assert sorted(lab.chosen(3)) == ["a", "b", "c"]
    assert type(strategy("least_load", Weights())).__name__ == "LeastInFlight"


def test_limits_and_excluded_endpoints_hold() -> None:
    lab = Lab(2, 0, 1)
    lab.times(0.001, 0.01, 0.01)
    a, b, _ = lab.servers
    assert lab.chosen(1, limit=2) == "b"
    assert lab.chosen(1, limit=2, excluded=(b,)) == "c"
    assert lab.chosen(1, limit=2, excluded=(a, b)) == "None"


def test_weights_and_slow_start_hold() -> None:
    lab = Lab(0, 0, weights=Weights({}, 10.0, lambda: 100.0))
    lab.servers[1].since = 99.0
    lab.times(0.01, 0.01)
    assert Counter(lab.chosen(13))["b"] == 1
    lab = Lab(0, 0)
    heavy = lab.servers[0]
    lab.strategy = LeastLoad(lab.loads, Weights({heavy: 3.0}))
    lab.times(0.01, 0.01)
    assert Counter(lab.chosen(40)) == pytest.approx({"a": 30, "b": 10}, abs=1)


def test_three_long_calls_do_not_make_a_server_slow() -> None:
    lab = Lab(0, 0)
    a, b = lab.servers
    lab.loads.note_time(a, 0, 1, 1000, 10.0)
    lab.loads.note_time(b, 0, 1, 3, 0.3)
    lab.loads.note_time(a, 0, 1, 1000, 10.0)
    told = lab.loads.last(b)
    assert told is not None
    assert told.per_call == pytest.approx(0.022, rel=0.05)  # ten times as long by themselves


def test_a_server_that_has_answered_no_call_has_no_time() -> None:
    lab = Lab(0)
    lab.loads.note_time(lab.servers[0], 3, 1, 0, 0.0)
    assert lab.loads.last(lab.servers[0]) is None


def test_told_calls_count_and_are_never_fewer_than_our_own() -> None:
    lab = Lab(2, 2)
    lab.loads.note_calls(lab.servers[0], 0.0)  # a metric of those that wait alone
    lab.loads.note_calls(lab.servers[1], 9.0)
    assert lab.chosen(6) == "a" * 6


def test_a_use_tells_how_much_a_call_takes() -> None:
    """Both servers answer ten calls a second; one is used three times as much by them."""
    lab = Lab(1, 1)
    for _ in range(5):
        for server, use in zip(lab.servers, (30.0, 90.0), strict=True):
            for _ in range(2):  # told twice at once, it counts once
                lab.loads.note(server, use, "use")
            server.health.answers += 10
        lab.now += 1.0
    lab.loads.note(lab.servers[0], 30.0, "use")
    lab.loads.note(lab.servers[1], 90.0, "use")
    assert lab.chosen(4) == "aaaa"
    assert set(lab.chosen(2)) == {"a", "b"}


def test_a_full_use_with_a_queue_is_not_taken_for_one_without() -> None:
    lab = Lab(100, 2)
    for _ in range(4):
        for server in lab.servers:
            lab.loads.note_use(server, 1.0)
            server.health.answers += 10
        lab.now += 1.0
    assert lab.chosen(50) == "b" * 50


def test_a_use_before_any_answer_is_not_known() -> None:
    lab = Lab(0, 0)
    for _ in range(3):
        lab.loads.note_use(lab.servers[0], 0.5)
        lab.now += HALF_SECONDS
    assert lab.loads.last(lab.servers[0]) is None


def test_endpoints_that_have_gone_are_forgotten() -> None:
    lab = Lab(0, 0)
    lab.times(0.01, 0.03)
    lab.loads.forget(lab.servers[1])
    assert lab.loads.last(lab.servers[1]) is None
    assert lab.loads.usual_call == pytest.approx(0.0133, rel=0.5)
    lab.loads.forget(lab.servers[0])
    assert lab.loads.usual_call == 1.0
