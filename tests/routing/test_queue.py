"""Who is next."""

import random

import pytest

from gateway.core.errors import GatewayError
from gateway.routing.queue import FairQueue, SlotTimes


def joined(queue: FairQueue[str], client: str, calls: int) -> int:
    """How many of so many calls find a place."""
    for at in range(calls):
        try:
            queue.join(client, "m")
        except GatewayError:
            return at
    return calls


async def test_first_come_first_served_within_a_model_and_turns_over_clients_and_models() -> None:
    queue: FairQueue[str] = FairQueue("lab", 100)
    waiters = {queue.join(name[0], name[1]): f"{name}{at}" for at in range(2) for name in ("ax", "ax", "ay", "bx")}
    order = []
    while (waiter := queue.next()) is not None:
        order.append(waiters[waiter])
    assert order == ["ax0", "bx0", "ay0", "bx1", "ax0", "ay1", "ax1", "ax1"]
    assert len(queue) == 0


async def test_every_client_gets_half_of_what_is_free() -> None:
    queue: FairQueue[str] = FairQueue("lab", 1000)
    assert [joined(queue, client, 1000) for client in "abcd"] == [500, 250, 125, 63]
    for _ in range(2000):  # served one by one, and everybody wants more
        queue.next()
        for client in "abcd":
            joined(queue, client, 1)
    # 1000 / (4 + 1) for each of them, but for one call of rounding, and the rest stays free
    assert len(queue) in (800, 801)
    assert [joined(queue, client, 1000) for client in "abcd"] == [0] * 4
    assert joined(queue, "e", 1000) == 100


async def test_a_client_whose_last_waiter_left_is_forgotten() -> None:
    queue: FairQueue[str] = FairQueue("lab", 1)
    waiter = queue.join("a", "m")
    with pytest.raises(GatewayError, match=r"backend 'lab': 1 of 1 places in the queue \(queue.length\) taken; try"):
        queue.join("b", "m")
    queue.leave("a", "m", waiter)
    queue.leave("a", "m", waiter)
    assert len(queue) == 0
    other = queue.join("b", "m")
    assert queue.next() is other
    assert queue.next() is None


async def test_a_waiter_that_was_cancelled_and_has_not_left_is_passed_over() -> None:
    queue: FairQueue[str] = FairQueue("lab", 10)
    gone, here = queue.join("a", "m"), queue.join("a", "m")
    gone.cancel()
    assert queue.next() is here
    queue.leave("a", "m", gone)
    assert len(queue) == 0


# Places and estimates


@pytest.mark.parametrize("seed", range(30))
async def test_the_place_says_when_a_call_is_served_if_no_others_come(seed: int) -> None:
    chance = random.Random(seed)
    queue: FairQueue[str] = FairQueue("lab", 1000)
    for _ in range(chance.randrange(40)):
        queue.join(chance.choice("abcd"), chance.choice("xyz"))
        if chance.random() < 0.3:
            queue.next()
    client, model = chance.choice("abcde"), chance.choice("xyz")
    place = queue.place(client, model)
    mine = queue.join(client, model)
    order = []
    while (waiter := queue.next()) is not None:
        order.append(waiter)
    assert order.index(mine) + 1 == place


async def test_a_full_queue_says_when_a_place_will_be_free() -> None:
    queue: FairQueue[str] = FairQueue("lab", 8, lambda place: place * 2.5)
    assert joined(queue, "a", 9) == 4
    assert joined(queue, "b", 9) == 2
    with pytest.raises(GatewayError, match=r"6 of 8 .* taken, 4 by this client, which can take") as refused:
        queue.join("a", "m")
    assert refused.value.retry_after == 5.0  # when one call of each has left, it has 3 waiting, and 4 places are free
    with pytest.raises(GatewayError) as refused:
        queue.join("b", "m")
    assert refused.value.retry_after == 2.5


async def test_the_clients_that_wait_most_are_told() -> None:
    queue: FairQueue[str] = FairQueue("lab", 100)
    for client, calls in (("a", 1), ("b", 5), ("c", 3)):
        joined(queue, client, calls)
    assert queue.longest(2) == [("b", 5), ("c", 3)]
    assert len(queue.longest(20)) == 3


def test_the_estimate_is_the_mean_time_in_a_slot_for_each_turn() -> None:
    times = SlotTimes()
    assert times.until(1, 1) is None
    times.add(10.0)
    assert [times.until(place, slots) for place, slots in ((1, 1), (6, 1), (6, 3), (1, 0))] == [10.0, 60.0, 20.0, None]
    times.add(20.0)
    assert times.until(1, 1) == pytest.approx(11.0)
    for _ in range(100):
        times.add(1.0)
    assert times.until(1, 1) == pytest.approx(1.0, abs=0.01)
