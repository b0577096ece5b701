"""Who is next."""

import pytest

from gateway.core.errors import GatewayError
from gateway.routing.queue import FairQueue


async def test_first_come_first_served_within_a_key_and_round_robin_over_keys() -> None:
    queue: FairQueue[str] = FairQueue("lab", 10)
    waiters = {queue.join(key): f"{key}{at}" for at in range(2) for key in "aab"}
    order = []
    while (waiter := queue.next()) is not None:
        order.append(waiters[waiter])
    assert order == ["a0", "b0", "a0", "b1", "a1", "a1"]
    assert len(queue) == 0


async def test_a_key_whose_last_waiter_left_is_forgotten() -> None:
    queue: FairQueue[str] = FairQueue("lab", 1)
    waiter = queue.join("a")
    with pytest.raises(GatewayError, match="backend 'lab': 1 calls are waiting already"):
        queue.join("b")
    queue.leave("a", waiter)
    queue.leave("a", waiter)
    assert len(queue) == 0
    other = queue.join("b")
    assert queue.next() is other
    assert queue.next() is None


async def test_a_waiter_that_was_cancelled_and_has_not_left_is_passed_over() -> None:
    queue: FairQueue[str] = FairQueue("lab", 10)
    gone, here = queue.join("a"), queue.join("a")
    gone.cancel()
    assert queue.next() is here
    queue.leave("a", gone)
    assert len(queue) == 0
