import heapq
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policies.concurrency_limit import AT_REST, FIRST, TO_REST, WINDOW, Gradient
from tests.limits import examples


class Server:
    """Computes `capacity` calls at once, each in about `seconds`; further calls wait. Its clock is the test's."""

    def __init__(self, capacity: int, seconds: float, seed: int) -> None:
        self.free = [0.0] * capacity
        self.seconds = seconds
        self.random = Random(seed)

    def ends(self, now: float) -> float:
        """When a call that arrives now is answered."""
        begins = max(now, heapq.heappop(self.free))
        end = begins + self.seconds * self.random.uniform(0.8, 1.2)
        heapq.heappush(self.free, end)
        return end


def limits(gradient: Gradient, server: Server, calls: int, offered: int = 10_000, now: float = 0.0) -> list[int]:
    """The limit after each of `calls` calls, while there are always `offered` clients that want to call."""
    running: list[tuple[float, float]] = []
    found: list[int] = []
    for _ in range(calls):
        while len(running) < min(gradient.limit, offered):
            heapq.heappush(running, (server.ends(now), now))
        now, began = running[0]
        gradient.ended(began, now, len(running))
        heapq.heappop(running)
        found.append(gradient.limit)
    return found


@settings(max_examples=examples(20), deadline=None)
@given(
    capacity=st.integers(1, 100),
    seconds=st.floats(1e-4, 60),
    seed=st.integers(0, 10**6),
)
def test_under_any_load_the_limit_stays_near_what_the_server_computes_at_once(
    capacity: int, seconds: float, seed: int
) -> None:
    found = limits(Gradient(1, 1000), Server(capacity, seconds, seed), 20_000)
    settled = sorted(found[10_000:])
    assert capacity <= settled[len(settled) // 2] <= 2 * capacity + 8


def test_it_does_not_grow_without_end_in_an_overload_that_lasts() -> None:
    found = limits(Gradient(1, 1000), Server(10, 0.1, 1), 200_000)
    assert max(found[1000:]) <= 40
    assert max(found[-20_000:]) <= max(found[1000:21_000]) + 5


def test_it_follows_a_server_that_becomes_slower_with_all_its_capacity() -> None:
    gradient = Gradient(1, 1000)
    fast = limits(gradient, Server(50, 0.1, 1), 20_000)
    slow = limits(gradient, Server(50, 1.0, 2), 40_000, now=1e6)
    assert fast[-1] >= 50
    assert max(slow[-WINDOW * TO_REST :]) >= 50


def test_a_rest_lets_few_calls_through_for_one_window() -> None:
    found = limits(Gradient(1, 1000), Server(10, 0.1, 1), 10_000)
    resting = [limit for limit in found[1000:] if limit == AT_REST]
    # the calls that were in flight when it began end first
    assert 0 < len(resting) < 10_000 / (WINDOW * TO_REST) * (WINDOW + 60)


def test_calls_below_half_of_the_limit_do_not_raise_it() -> None:
    gradient = Gradient(1, 1000)
    limits(gradient, Server(100, 0.1, 1), 5000, offered=FIRST // 2 - 1)
    assert gradient.limit == FIRST


@pytest.mark.parametrize(("least", "most", "first"), [(1, 10, 10), (30, 100, 30), (1, 1000, FIRST)])
def test_the_first_limit_is_within_the_bounds(least: int, most: int, first: int) -> None:
    assert Gradient(least, most).limit == first


def test_the_bounds_hold() -> None:
    assert min(limits(Gradient(5, 8), Server(1, 0.1, 1), 5000)) == 5
    assert max(limits(Gradient(1, 8), Server(100, 0.1, 1), 5000)) == 8


def test_a_server_that_is_overloaded_from_the_start_is_soon_known_to_be() -> None:
    found = limits(Gradient(1, 1000), Server(1, 1.0, 1), 400)
    assert found[-1] <= 10
