"""Statistics of a listener's requests for each second."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

import pytest

from gateway.assembly.statistics import MAX_LATENCIES, SECONDS, ListenerStatistics
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import HttpBinding, Protocol
from gateway.core.statistics import Metric
from gateway.core.transport import Exchanges
from tests.config.toys import toy

PAGE = replace(toy("paged"), binding=HttpBinding(pages=("GET /series",)))


class Time:
    """A clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def statistics(time: Time) -> ListenerStatistics:
    """Those of a process that uses half of every second of CPU time, and a quarter of the memory."""
    return ListenerStatistics(time, lambda: time.now / 2, lambda: 0.25)


def series_of(statistics: ListenerStatistics) -> dict[Metric, tuple[float, ...]]:
    return {each.metric: each.values for each in statistics.measurements().series}


def note(time: Time, statistics: ListenerStatistics, *latencies: float, failed: bool = False) -> None:
    for latency in latencies:
        statistics.record(time.now - latency, failed=failed)


def test_a_second_is_shown_after_its_end(time: Time, statistics: ListenerStatistics) -> None:
    note(time, statistics, 0.01, 0.03)
    note(time, statistics, 0.02, failed=True)
    assert series_of(statistics)[Metric.REQUESTS] == (0.0,) * SECONDS
    time.now += 1
    series = series_of(statistics)
    assert {name: values[-1] for name, values in series.items()} == pytest.approx(
        {
            Metric.REQUESTS: 3, Metric.FAILED: 100 / 3, Metric.MEAN_LATENCY: 20, Metric.MAX_LATENCY: 30,
            Metric.LATENCY_PERCENTILES: 30, Metric.CPU_USAGE: 50, Metric.MEMORY_USAGE: 25,
        }
    )  # fmt: skip
    lengths = {metric: len(values) for metric, values in series.items()}
    assert lengths == {**dict.fromkeys(Metric, SECONDS), Metric.LATENCY_PERCENTILES: 100}


def test_seconds_without_requests_are_shown_and_old_ones_dropped(time: Time, statistics: ListenerStatistics) -> None:
    note(time, statistics, 0.5)
    time.now += 3
    note(time, statistics, 0.5, 0.5)
    time.now += 1
    assert series_of(statistics)[Metric.REQUESTS][-5:] == (0, 1, 0, 0, 2)
    assert series_of(statistics)[Metric.CPU_USAGE][-4:] == (50, 50, 50, 50)
    time.now += SECONDS - 1
    assert series_of(statistics)[Metric.REQUESTS] == (2, *(0,) * (SECONDS - 1))
    time.now += 10 * SECONDS
    assert series_of(statistics)[Metric.REQUESTS] == (0,) * SECONDS
    assert series_of(statistics)[Metric.LATENCY_PERCENTILES] == (0,) * 100


def test_the_percentiles_are_of_the_latest_requests(time: Time, statistics: ListenerStatistics) -> None:
    note(time, statistics, *(second / 1000 for second in range(1, 201)))
    assert series_of(statistics)[Metric.LATENCY_PERCENTILES] == pytest.approx(tuple(range(2, 202, 2)))
    note(time, statistics, *(0.5,) * MAX_LATENCIES)
    assert series_of(statistics)[Metric.LATENCY_PERCENTILES] == pytest.approx((500,) * 100)


def test_memory_and_cpu_are_those_of_this_process() -> None:
    now = 5.0
    statistics = ListenerStatistics(lambda: now)
    now += 1
    series = series_of(statistics)
    assert 0 < series[Metric.MEMORY_USAGE][-1] < 100
    assert series[Metric.CPU_USAGE][-1] >= 0


def counted(statistics: ListenerStatistics, time: Time, reply: Message | Awaitable[Message]) -> Exchanges:
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

    return statistics.record_exchanges(Exchanges(exchange, stream, refuse))


def last(time: Time, statistics: ListenerStatistics) -> tuple[float, float, float]:
    time.now = int(time.now) + 1
    series = series_of(statistics)
    return series[Metric.REQUESTS][-1], series[Metric.FAILED][-1], series[Metric.MAX_LATENCY][-1]


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (204, 0), (400, 100), (503, 100)])
async def test_every_exchange_is_recorded_when_it_ends(
    time: Time, statistics: ListenerStatistics, status: int, failed: float
) -> None:
    reply = Message(status=status)
    assert counted(statistics, time, reply).exchange(Message(), PAGE) is reply
    assert last(time, statistics) == (1, failed, 250)

    async def later() -> Message:
        time.now += 0.25
        return reply

    waiting = counted(statistics, time, later()).exchange(Message(), PAGE)
    assert not isinstance(waiting, Message)
    assert await waiting is reply
    assert last(time, statistics) == (1, failed, 500)


async def test_a_disconnected_client_is_a_failure(time: Time, statistics: ListenerStatistics) -> None:
    waiting = counted(statistics, time, asyncio.get_running_loop().create_future()).exchange(Message(), PAGE)
    assert not isinstance(waiting, Message)
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert last(time, statistics) == (1, 100, 250)


async def test_requests_for_the_page_itself_are_not_recorded(time: Time, statistics: ListenerStatistics) -> None:
    counted(statistics, time, Message(status=200)).exchange(Message(pattern="GET /series"), PAGE)
    assert last(time, statistics) == (0, 0, 0)


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (500, 100)])
async def test_a_stream_is_one_request_with_its_worst_status(
    time: Time, statistics: ListenerStatistics, status: int, failed: float
) -> None:

    async def messages() -> AsyncIterator[Message]:
        yield Message(str(status))

    replies = counted(statistics, time, Message()).stream(messages(), PAGE)
    assert [reply.status async for reply in replies] == [200, status]
    assert last(time, statistics) == (1, failed, 500)
