"""Deadlines: they ring in time, never early, and a dropped one never."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from gateway.core.deadlines import FAR, FAR_GRAIN, GRAIN, LONGEST, Deadline, Deadlines, TimeLimit, deadlines, wait_until

T = TypeVar("T")


class DeadlinePassedError(Exception):
    """The error of these tests."""


class Clock:
    """A loop's clock and timers, moved by the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, object, tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, ring: object, *arguments: object) -> None:
        self.timers.append((when, ring, arguments))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.timers if each[0] <= self.now]
        self.timers = [each for each in self.timers if each[0] > self.now]
        for _, ring, arguments in due:
            ring(*arguments)  # type: ignore[operator]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared(clock: Clock) -> Deadlines:
    return Deadlines(clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "grain"), [(0.005, GRAIN), (0.5, GRAIN), (FAR + 1, FAR_GRAIN), (3600, FAR_GRAIN)])
def test_a_deadline_rings_in_time_and_not_early(clock: Clock, shared: Deadlines, seconds: float, grain: float) -> None:
    rung = list[str]()
    shared.add(clock.now + seconds, rung.append, "a")
    clock.advance(seconds * 0.999)
    assert rung == []
    clock.advance(seconds * 0.001 + 1.01 * grain)
    assert rung == ["a"]
    clock.advance(10)
    assert rung == ["a"]


def test_deadlines_of_one_time_share_a_timer(clock: Clock, shared: Deadlines) -> None:
    rung = list[int]()
    for each in range(1000):
        shared.add(clock.now + 30 + each / 1e6, rung.append, each)
    assert len(clock.timers) <= 2
    clock.advance(31)
    assert sorted(rung) == list(range(1000))


def test_a_dropped_deadline_does_not_ring(clock: Clock, shared: Deadlines) -> None:
    rung = list[str]()
    first = shared.add(clock.now + 1, rung.append, "first")
    shared.add(clock.now + 1, rung.append, "second")
    first.drop()
    first.drop()
    clock.advance(2)
    assert rung == ["second"]


def test_one_that_rings_may_drop_another(clock: Clock, shared: Deadlines) -> None:
    rung, both = list[str](), list[Deadline]()

    def ring(name: str) -> None:
        rung.append(name)
        for each in both:
            each.drop()

    both += [shared.add(clock.now + 1, ring, name) for name in ("a", "b")]
    clock.advance(2)
    assert len(rung) == 1


async def with_deadline(seconds: float, awaitable: Awaitable[T]) -> T:
    """The result, if it comes in time."""
    return await wait_until(asyncio.get_running_loop().time() + seconds, awaitable, DeadlinePassedError)


async def limited(seconds: float, awaitable: Awaitable[T], limit: TimeLimit | None = None) -> T:
    """The same by a TimeLimit, which calls can share."""
    loop = asyncio.get_running_loop()
    return await (limit or TimeLimit()).wait(loop.time() + seconds, loop, awaitable, DeadlinePassedError)


each_way = pytest.mark.parametrize("wait", [with_deadline, limited])
Wait = Callable[[float, Awaitable[None]], Awaitable[None]]


def assert_not_cancelled() -> None:
    """That nothing which ended by its time has left the test's own task cancelled."""
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_call_is_cancelled_at_its_deadline() -> None:
    ended = list[str]()

    async def noted() -> None:
        try:
            await hang()
        finally:
            ended.append("cancelled")

    with pytest.raises(DeadlinePassedError):
        await with_deadline(0.01, noted())
    assert ended == ["cancelled"]
    assert_not_cancelled()


async def test_an_answer_in_time_is_passed_on() -> None:
    assert await with_deadline(60, asyncio.sleep(0, True)) is True


async def test_the_inner_of_two_deadlines_that_pass_together_is_reported_once() -> None:
    when = asyncio.get_running_loop().time() + 0.01

    async def inner() -> None:
        try:
            await wait_until(when, hang(), DeadlinePassedError)
        except DeadlinePassedError as error:
            raise ValueError("inner") from error

    with pytest.raises((ValueError, DeadlinePassedError)):
        await wait_until(when, inner(), DeadlinePassedError)
    assert_not_cancelled()


@each_way
async def test_a_call_that_is_cancelled_from_outside_stays_cancelled(wait: Wait) -> None:
    call = asyncio.ensure_future(wait(60, hang()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@each_way
async def test_an_error_of_the_call_after_its_time_is_its_own(wait: Wait) -> None:
    async def fail() -> None:
        try:
            await hang()
        except asyncio.CancelledError as error:
            raise KeyError("own") from error

    with pytest.raises(KeyError):
        await wait(0.01, fail())
    assert_not_cancelled()


async def test_each_loop_has_deadlines_of_its_own() -> None:
    mine = deadlines()
    assert deadlines() is mine
    other = await asyncio.to_thread(lambda: asyncio.run(_found()))
    assert other is not mine


async def _found() -> Deadlines:
    return deadlines()


def test_deadlines_far_away_that_were_dropped_leave_few_timers(clock: Clock, shared: Deadlines) -> None:
    """Clients choose them: each could keep a timer until its own time, years later."""
    rung = list[int]()
    for each in range(10_000):
        shared.add(clock.now + 10 + 1000.0 * each, rung.append, each).drop()
    assert len(clock.timers) < 1000
    clock.advance(LONGEST + 1)
    assert clock.timers == []
    assert rung == []


def test_a_deadline_far_away_rings_when_its_time_has_come(clock: Clock, shared: Deadlines) -> None:
    rung = list[str]()
    shared.add(clock.now + 5 * LONGEST + 3, rung.append, "a")
    for _ in range(5):
        clock.advance(LONGEST)
        assert rung == []
    clock.advance(3 + 6 * FAR_GRAIN)
    assert rung == ["a"]


async def test_a_time_limit_ends_each_call_at_its_own_time() -> None:
    loop, limit, ended = asyncio.get_running_loop(), TimeLimit(), list[str]()

    async def passes(name: str) -> None:
        begun = loop.time()
        with pytest.raises(DeadlinePassedError):
            await limited(0.05, hang(), limit)
        assert loop.time() >= begun + 0.05
        ended.append(name)

    async def answer() -> None:
        assert await limited(0.05, asyncio.sleep(0, "quick"), limit) == "quick"

    calls = [asyncio.ensure_future(each) for each in (passes("first"), answer(), passes("second"))]
    await asyncio.sleep(0.02)
    calls.append(asyncio.ensure_future(passes("third")))
    await asyncio.gather(*calls)
    assert ended == ["first", "second", "third"]
    await limited(0.05, asyncio.sleep(0), limit)


@each_way
async def test_a_call_that_is_cancelled_in_the_turn_in_which_its_time_is_over_stays_cancelled(wait: Wait) -> None:
    """Clients leave at the time at which they expect a reply at the latest, and tell it to the gateway as well."""
    loop = asyncio.get_running_loop()
    when = loop.time() + 0.01
    call = asyncio.ensure_future(wait(0.01, hang()))
    loop.call_at(when - 0.005, call.cancel)
    await asyncio.sleep(0)
    while loop.time() <= when + 2 * GRAIN:  # the loop is busy with something else until both times have passed
        pass
    with pytest.raises(asyncio.CancelledError):
        await call


def test_others_ring_where_what_is_done_at_one_deadline_fails(
    clock: Clock, shared: Deadlines, caplog: pytest.LogCaptureFixture
) -> None:
    rung = list[str]()

    def act(name: str) -> None:
        if name == "fails":
            raise ValueError("the fault")
        rung.append(name)

    for name in ("a", "fails", "b", "fails", "c"):
        shared.add(clock.now + 0.5, act, name)
    clock.advance(1)
    assert sorted(rung) == ["a", "b", "c"]
    assert "unexpected error in what is done at a deadline" in caplog.text
