import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policies.rate_limit import MOST_CLIENTS, Allowances


def test_a_burst_passes_and_then_the_rate() -> None:
    allowances = Allowances(interval=0.1, burst=5)
    assert [allowances.take("a", 0) for _ in range(5)] == [0] * 5
    assert allowances.take("a", 0) == pytest.approx(0.1)
    assert allowances.take("a", 0.04) == pytest.approx(0.06)
    assert allowances.take("a", 0.1) == 0
    assert allowances.take("a", 0.1) == pytest.approx(0.1)
    assert [allowances.take("a", 10) for _ in range(5)] == [0] * 5
    assert allowances.take("a", 10) > 0


def test_what_is_left_is_told_without_taking_of_it() -> None:
    allowances = Allowances(interval=0.1, burst=5)
    assert allowances.left("a", 0) == (5, 0)
    assert [allowances.take("a", 0) for _ in range(3)] == [0] * 3
    assert [allowances.left("a", 0)[0] for _ in range(2)] == [2, 2]
    assert allowances.left("a", 0)[1] == pytest.approx(0.3)
    assert allowances.left("a", 0.15)[0] == 3
    assert allowances.left("a", 9) == allowances.left("b", 0) == (5, 0)


@given(
    requests=st.integers(1, 50),
    seconds=st.floats(0.01, 100),
    burst=st.integers(1, 100),
    arrivals=st.lists(st.floats(0, 1), max_size=300),
)
def test_never_more_than_the_burst_and_the_rate(
    requests: int, seconds: float, burst: int, arrivals: list[float]
) -> None:
    interval = seconds / requests
    allowances, now, passed = Allowances(interval, burst), 0.0, 0
    for step in arrivals:
        now += step * interval
        passed += not allowances.take("a", now)
    assert passed <= burst + now / interval + 1e-3
    if sum(arrivals) >= len(arrivals):  # no faster than the rate: all pass
        assert passed == len(arrivals)


@given(burst=st.integers(1, 100), now=st.floats(0, 1e7), spent=st.integers(0, 99))
def test_who_waits_as_long_as_told_passes(burst: int, now: float, spent: int) -> None:
    allowances = Allowances(0.1, burst)
    for _ in range(burst):
        assert allowances.take("a", now) == 0
    wait = allowances.take("a", now)
    assert wait > 0
    assert allowances.take("a", now + wait) == 0


@pytest.mark.long
def test_of_a_million_clients_a_bounded_number_is_remembered() -> None:
    allowances = Allowances(interval=1, burst=1)
    most = 0
    for at in range(1_000_000):
        allowances.take(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}", 0)
        most = max(most, len(allowances))
    assert most == MOST_CLIENTS


def test_the_client_that_comes_often_is_not_forgotten_among_others() -> None:
    allowances = Allowances(interval=1000, burst=1, most=10)
    allowances.take("often", 0)
    for at in range(100):
        allowances.take(f"c{at}", 0)
        assert allowances.take("often", 0) == 1000


def test_a_client_that_comes_often_within_its_rate_is_not_forgotten_either() -> None:
    allowances = Allowances(interval=1000, burst=101, most=10)
    for at in range(100):
        assert allowances.take("often", 0) == 0
        allowances.take(f"c{at}", 0)
    assert allowances.take("often", 0) == 0
    assert allowances.take("often", 0) == 1000
