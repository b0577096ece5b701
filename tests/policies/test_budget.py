"""How many further calls a budget allows."""

import pytest

from gateway.policies.budget import SECONDS, Budget
from tests.clock import Clock


def spent(budget: Budget) -> int:
    """How many further calls it allows now."""
    count = 0
    while budget.spend():
        count += 1
    return count


@pytest.mark.parametrize(
    ("share", "least", "calls", "expected"),
    [(0.2, 10, 0, 10), (0.2, 10, 100, 30), (0.1, 0, 95, 9), (0, 0, 9, 0)],
)
def test_a_share_of_the_calls_and_some(share: float, least: float, calls: int, expected: int) -> None:
    budget = Budget(share, least, Clock(1000.0))
    for _ in range(calls):
        budget.add_call()
    assert spent(budget) == expected


def test_only_the_calls_of_two_intervals_count() -> None:
    clock = Clock(1000.0)
    budget = Budget(0.5, 0, clock)
    for _ in range(20):
        budget.add_call()
    clock.now += SECONDS
    assert budget.spend()
    clock.now += SECONDS
    assert spent(budget) == 0
    for _ in range(20):
        budget.add_call()
    clock.now += 2 * SECONDS
    assert spent(budget) == 0


def test_what_was_spent_beyond_the_share_is_missing_in_the_next_interval() -> None:
    clock = Clock(1000.0)
    budget = Budget(0.5, 4, clock)
    assert spent(budget) == 4
    clock.now += SECONDS
    assert spent(budget) == 0
    clock.now += SECONDS
    assert spent(budget) == 4
