"""What a run measures of servers whose behaviour is known, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, islice, pairwise

import pytest

from gateway.tools.bench.load import CallFailed, Load, Plan, arrivals
from gateway.tools.bench.measured import Measured
from tests.tools.bench.virtual_time import VirtualClock, in_virtual_time

REPLY = 10
"""Bytes."""


def plan(
    rate: float = 100.0,
    in_flight: int = 1000,
    seconds: float | None = 10.0,
    requests: int | None = None,
    warmup: float = 0.0,
) -> Plan:
    return Plan(rate, "constant", in_flight, seconds, requests, warmup)


def measured(of: Plan, send: Callable[[], Awaitable[int]], late: float = 0.0) -> Measured:
    async def run() -> Measured:
        return await Load(of, send, VirtualClock(late), request_bytes=3).run()

    return in_virtual_time(run())


def answering(seconds: float) -> Callable[[], Awaitable[int]]:
    async def send() -> int:
        await asyncio.sleep(seconds)
        return REPLY

    return send


def pausing(begin: float, end: float, service: float = 0.001) -> Callable[[], Awaitable[int]]:
    """A server that stands still between two times of the run."""
    start: list[float] = []

    async def send() -> int:
        now = asyncio.get_running_loop().time()
        start.append(now)
        passed = now - start[0]
        await asyncio.sleep(service + (end - passed if begin <= passed < end else 0.0))
        return REPLY

    return send


def test_a_constant_schedule_is_sent_as_planned() -> None:
    found = measured(plan(), answering(0.005))
    assert (found.requests, found.failures, found.unsent, found.waited) == (1000, 0, 0, 0)
    assert found.rate == pytest.approx(100.0, rel=0.001)
    assert (found.sent_bytes, found.received_bytes) == (3000, 10000)
    for figure in (found.latency.mean, found.latency.percentile(50), found.latency.most, found.service.most):
        assert figure == pytest.approx(0.005, rel=0.001)
    assert found.lag.most == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("in_flight", [1000, 1])
def test_a_pause_shows_in_every_request_that_was_due_meanwhile(in_flight: int) -> None:
    """Also where one request in flight keeps all others from being sent: they count from their schedule."""
    found = measured(plan(in_flight=in_flight), pausing(3.0, 4.0))
    assert found.requests == 1000
    # Those due at 3.00, 3.01, ... waited 1.00 s, 0.99 s, ...: half of the 100 longer than 0.5 s.
    assert found.latency.between(0.5, 2.0) == pytest.approx(50, abs=8)
    assert found.latency.most == pytest.approx(1.0, abs=0.02)
    assert found.latency.percentile(99) > 0.85


def test_from_sending_alone_the_pause_would_hide_where_places_are_few() -> None:
    found = measured(plan(in_flight=1), pausing(3.0, 4.0))
    assert found.service.between(0.5, 2.0) == 1
    assert found.waited == pytest.approx(110, abs=10)


def test_a_closed_loop_hides_the_pause() -> None:
    """It is told so in the documents: this is what the open loop is for."""
    found = measured(plan(rate=0, in_flight=1), pausing(3.0, 4.0, service=0.01))
    assert found.latency.between(0.5, 2.0) == 1
    assert found.waited == 0


class Counting:
    """A server that counts what is in flight."""

    under_way = most = 0

    async def send(self) -> int:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.1)
        self.under_way -= 1
        return REPLY


def test_a_closed_loop_keeps_as_many_in_flight() -> None:
    server = Counting()
    found = measured(plan(rate=0, in_flight=7), server.send)
    assert server.most == 7
    assert found.rate == pytest.approx(70, rel=0.02)


def test_what_could_not_be_sent_is_counted() -> None:
    """100/s are due and 10/s are answered; when the time is over, most have not been sent."""
    found = measured(plan(in_flight=1), answering(0.1))
    assert found.requests + found.unsent == 1000
    assert found.requests == pytest.approx(100, abs=2)
    # The queue grows all the time: the last one sent was due after a second.
    assert found.latency.most == pytest.approx(9.0, abs=0.3)


def test_no_more_are_in_flight_than_allowed() -> None:
    server = Counting()
    measured(plan(in_flight=5), server.send)
    assert server.most == 5


def test_the_generators_own_lag_is_measured() -> None:
    found = measured(plan(), answering(0.005), late=0.002)
    assert found.lag.mean == pytest.approx(0.002, rel=0.01)
    assert found.latency.mean == pytest.approx(0.007, rel=0.01)
    assert found.service.mean == pytest.approx(0.005, rel=0.01)


def test_the_warm_up_is_not_measured() -> None:
    """Neither its requests, nor what it left to do: the server is slow for its first second."""
    found = measured(plan(in_flight=1, warmup=1.0), pausing(0.0, 1.0))
    assert found.requests == 1000
    assert found.latency.most < 0.02
    assert found.seconds == pytest.approx(10.0, abs=0.01)


def test_a_number_of_requests_ends_the_run() -> None:
    for rate in (100.0, 0.0):
        found = measured(plan(rate, in_flight=3, seconds=None, requests=20, warmup=0.5), answering(0.01))
        assert found.requests == 20


def test_fewer_requests_than_places_end_the_run() -> None:
    assert measured(plan(0.0, in_flight=5, seconds=None, requests=2), answering(0.01)).requests == 2


def test_errors_of_the_warm_up_are_not_counted() -> None:
    async def send() -> int:
        await asyncio.sleep(0.01)
        if asyncio.get_running_loop().time() < 101.0:  # virtual time begins at 100
            raise CallFailed("UNAVAILABLE", "it starts")
        return REPLY

    found = measured(plan(warmup=2.0), send)
    assert (found.requests, found.errors) == (1000, {})


def test_errors_are_counted_by_status_apart_from_latencies() -> None:
    number = 0

    async def send() -> int:
        nonlocal number
        number += 1
        if number % 4 == 0:
            raise CallFailed("UNAVAILABLE", f"no {number}")
        await asyncio.sleep(0.01)
        return REPLY

    found = measured(plan(), send)
    assert found.errors == {"UNAVAILABLE": 250}
    assert found.examples == {"UNAVAILABLE": "no 4"}
    assert (found.latency.count, found.failed.count, found.requests) == (750, 250, 1000)
    assert found.latency.least == pytest.approx(0.01, rel=0.001)


def test_an_interrupted_run_has_what_was_measured_so_far() -> None:
    async def run() -> Measured:
        load = Load(plan(), answering(0.5), VirtualClock())
        asyncio.get_running_loop().call_later(2.0, load.stop)
        return await load.run()

    found = in_virtual_time(run())
    assert found.requests == pytest.approx(150, abs=2)
    assert found.cut == pytest.approx(50, abs=2)
    assert found.seconds == pytest.approx(2.0, abs=0.01)


def test_a_fault_of_the_generator_ends_the_run() -> None:
    async def send() -> int:
        raise AssertionError("a fault")

    with pytest.raises(AssertionError, match="a fault"):
        measured(plan(), send)


def test_poisson_arrivals_have_the_rate_and_come_at_random() -> None:
    times = list(islice(arrivals("poisson", 50.0), 20_000))
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert deviation == pytest.approx(mean, rel=0.05)  # as of an exponential distribution
    assert times == list(islice(arrivals("poisson", 50.0), 20_000))
    assert times != list(islice(arrivals("poisson", 50.0, seed=1), 20_000))


def test_shares_make_up_the_whole() -> None:
    shares = [list(islice(arrivals("constant", 30.0, share=each, shares=3), 10)) for each in range(3)]
    assert sorted(chain.from_iterable(shares)) == list(islice(arrivals("constant", 30.0), 30))
    ends = [list(islice(arrivals("poisson", 30.0, share=each, shares=3), 5000))[-1] for each in range(3)]
    assert all(end == pytest.approx(500, rel=0.1) for end in ends)
    assert len(set(ends)) == 3
    parts = [Plan(30, "constant", 10, None, 100, 0).part(each, 3) for each in range(3)]
    assert [each.in_flight for each in parts] == [4, 3, 3]
    assert [each.requests for each in parts] == [34, 33, 33]
