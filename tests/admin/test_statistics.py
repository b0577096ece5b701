"""How the requests of a listener went, second by second."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

import pytest

from gateway.admin.statistics import MOST_LATENCIES, SECONDS, Statistics
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.transport import Exchanges
from gateway.core.types import Message
from tests.config.toys import toy

PAGE = replace(toy("paged"), pages=("GET /series",))


class Time:
    """A clock, and what the process has used by then: half of every second."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def statistics(self) -> Statistics:
        return Statistics(self, lambda: self.now / 2, lambda: 0.25)


@pytest.fixture
def time() -> Time:
    return Time()


def note(time: Time, here: Statistics, *latencies: float, failed: bool = False) -> None:
    for latency in latencies:
        here.note(time.now - latency, failed=failed)


def test_a_second_is_shown_when_it_is_over(time: Time) -> None:
    here = time.statistics()
    note(time, here, 0.01, 0.03)
    note(time, here, 0.02, failed=True)
    assert here.series()["*qps"] == (0.0,) * SECONDS
    time.now += 1
    series = here.series()
    assert {name: values[-1] for name, values in series.items()} == pytest.approx(
        {
            "*qps": 3, "*fail_rate(%)": 100 / 3, "*latency_avg(ms)": 20, "*latency_max(ms)": 30,
            "*latency_cdf(ms)": 30, "*cpu_usage(%)": 50, "*mem_usage(%)": 25,
        }
    )  # fmt: skip
    assert {name: len(values) for name, values in series.items() if name != "*latency_cdf(ms)"} == dict.fromkeys(
        set(series) - {"*latency_cdf(ms)"}, SECONDS
    )


def test_seconds_without_requests_are_there_and_old_ones_leave(time: Time) -> None:
    here = time.statistics()
    note(time, here, 0.5)
    time.now += 3
    note(time, here, 0.5, 0.5)
    time.now += 1
    assert here.series()["*qps"][-5:] == (0, 1, 0, 0, 2)
    assert here.series()["*cpu_usage(%)"][-4:] == (50, 50, 50, 50)
    time.now += SECONDS - 1
    assert here.series()["*qps"] == (2, *(0,) * (SECONDS - 1))
    time.now += 10 * SECONDS
    assert here.series()["*qps"] == (0,) * SECONDS
    assert here.series()["*latency_cdf(ms)"] == (0,) * 100


def test_the_percentiles_are_of_the_latest_requests(time: Time) -> None:
    here = time.statistics()
    note(time, here, *(second / 1000 for second in range(1, 201)))
    assert here.series()["*latency_cdf(ms)"] == pytest.approx(tuple(range(2, 202, 2)))
    note(time, here, *(0.5,) * MOST_LATENCIES)
    assert here.series()["*latency_cdf(ms)"] == pytest.approx((500,) * 100)


def test_memory_and_cpu_are_those_of_this_process() -> None:
    now = 5.0
    here = Statistics(lambda: now)
    now += 1
    series = here.series()
    assert 0 < series["*mem_usage(%)"][-1] < 100
    assert series["*cpu_usage(%)"][-1] >= 0


def counted(here: Statistics, time: Time, reply: Message | Awaitable[Message]) -> Exchanges:
    def exchange(message: Message, protocol: Protocol) -> Message | Awaitable[Message]:
        time.now += 0.25
        return reply

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        async for message in messages:
            time.now += 0.25
            yield replace(message, status=200)
            time.now += 0.25
            yield replace(message, status=int(message.method))

    def refuse(error: GatewayError, protocol: Protocol, message: Message) -> Message:
        raise AssertionError("a refusal is no request")

    return here.counted(Exchanges(exchange, stream, refuse))


def last(time: Time, here: Statistics) -> tuple[float, float, float]:
    time.now = int(time.now) + 1
    series = here.series()
    return series["*qps"][-1], series["*fail_rate(%)"][-1], series["*latency_max(ms)"][-1]


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (204, 0), (400, 100), (503, 100)])
async def test_every_exchange_counts_at_once_or_later(time: Time, status: int, failed: float) -> None:
    here = time.statistics()
    reply = Message(status=status)
    assert counted(here, time, reply).exchange(Message(), PAGE) is reply
    assert last(time, here) == (1, failed, 250)

    async def later() -> Message:
        time.now += 0.25
        return reply

    waiting = counted(here, time, later()).exchange(Message(), PAGE)
    assert not isinstance(waiting, Message)
    assert await waiting is reply
    assert last(time, here) == (1, failed, 500)


async def test_a_client_that_left_is_a_failure(time: Time) -> None:
    here = time.statistics()
    waiting = counted(here, time, asyncio.get_running_loop().create_future()).exchange(Message(), PAGE)
    assert not isinstance(waiting, Message)
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert last(time, here) == (1, 100, 250)


async def test_the_page_itself_does_not_count(time: Time) -> None:
    here = time.statistics()
    counted(here, time, Message(status=200)).exchange(Message(pattern="GET /series"), PAGE)
    assert last(time, here) == (0, 0, 0)


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (500, 100)])
async def test_a_stream_is_one_request_as_bad_as_its_worst_message(time: Time, status: int, failed: float) -> None:
    here = time.statistics()

    async def messages() -> AsyncIterator[Message]:
        yield Message(str(status))

    replies = counted(here, time, Message()).stream(messages(), PAGE)
    assert [reply.status async for reply in replies] == [200, status]
    assert last(time, here) == (1, failed, 500)
