"""Deadlines: they ring in time, never early, and a dropped one never."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from gateway.core.deadlines import (
    FAR,
    FAR_GRAIN,
    GRAIN,
    LONGEST,
    Deadline,
    Deadlines,
    TimeLimit,
    deadlines,
    wait_until,
)
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request

T = TypeVar("T")

REQUEST = Request(Operation.INFER, "m")


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


@pytest.mark.parametrize(("seconds", "grain"), [(0.005, GRAIN), (0.5, GRAIN), (FAR + 1, FAR_GRAIN), (3600, FAR_GRAIN)])
def test_a_deadline_rings_in_time_and_not_early(seconds: float, grain: float) -> None:
    clock, rung = Clock(), list[str]()
    Deadlines(clock).add(clock.now + seconds, rung.append, "a")  # type: ignore[arg-type]
    clock.advance(seconds * 0.999)
    assert rung == []
    clock.advance(seconds * 0.001 + 1.01 * grain)
    assert rung == ["a"]
    clock.advance(10)
    assert rung == ["a"]


def test_deadlines_of_one_time_share_a_timer() -> None:
    clock, rung = Clock(), list[int]()
    shared = Deadlines(clock)  # type: ignore[arg-type]
    for each in range(1000):
        shared.add(clock.now + 30 + each / 1e6, rung.append, each)
    assert len(clock.timers) <= 2
    clock.advance(31)
    assert sorted(rung) == list(range(1000))


def test_a_dropped_deadline_does_not_ring() -> None:
    clock, rung = Clock(), list[str]()
    shared = Deadlines(clock)  # type: ignore[arg-type]
    first = shared.add(clock.now + 1, rung.append, "first")
    shared.add(clock.now + 1, rung.append, "second")
    first.drop()
    first.drop()
    clock.advance(2)
    assert rung == ["second"]


def test_one_that_rings_may_drop_another() -> None:
    clock, rung = Clock(), list[str]()
    shared = Deadlines(clock)  # type: ignore[arg-type]
    both: list[Deadline] = []

    def ring(name: str) -> None:
        rung.append(name)
        for each in both:
            each.drop()

    both += [shared.add(clock.now + 1, ring, name) for name in ("a", "b")]
    clock.advance(2)
    assert len(rung) == 1


async def test_a_call_is_cancelled_at_its_deadline() -> None:
    ended = list[str]()

    async def hang(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return True

    with pytest.raises(DeadlinePassedError):
        await wait_until(asyncio.get_running_loop().time() + 0.01, hang(REQUEST), DeadlinePassedError)
    assert ended == ["cancelled"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_answer_in_time_is_passed_on() -> None:
    async def fine(request: Request) -> Answer:
        await asyncio.sleep(0)
        return True

    assert await wait_until(asyncio.get_running_loop().time() + 60, fine(REQUEST), DeadlinePassedError) is True


async def test_the_inner_of_two_deadlines_that_pass_together_is_reported_once() -> None:
    async def hang(request: Request) -> Answer:
        await asyncio.Event().wait()
        return True

    when = asyncio.get_running_loop().time() + 0.01

    async def inner(request: Request) -> Answer:
        try:
            return await wait_until(when, hang(request), DeadlinePassedError)
        except DeadlinePassedError as error:
            raise ValueError("inner") from error

    with pytest.raises((ValueError, DeadlinePassedError)):
        await wait_until(when, inner(REQUEST), DeadlinePassedError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled() -> None:
    async def hang(request: Request) -> Answer:
        await asyncio.Event().wait()
        return True

    call = asyncio.ensure_future(wait_until(asyncio.get_running_loop().time() + 60, hang(REQUEST), DeadlinePassedError))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_an_error_of_the_call_after_the_deadline_is_its_own() -> None:
    async def fail(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise KeyError("own") from error
        return True

    with pytest.raises(KeyError):
        await wait_until(asyncio.get_running_loop().time() + 0.01, fail(REQUEST), DeadlinePassedError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_each_loop_has_deadlines_of_its_own() -> None:
    mine = deadlines()
    assert deadlines() is mine
    other = await asyncio.to_thread(lambda: asyncio.run(_found()))
    assert other is not mine


async def _found() -> Deadlines:
    return deadlines()


def test_deadlines_far_away_that_were_dropped_leave_few_timers() -> None:
    """Clients choose them: each could keep a timer until its own time, years later."""
    clock, rung = Clock(), list[int]()
    shared = Deadlines(clock)  # type: ignore[arg-type]
    for each in range(10_000):
        shared.add(clock.now + 10 + 1000.0 * each, rung.append, each).drop()
    assert len(clock.timers) < 1000
    clock.advance(LONGEST + 1)
    assert clock.timers == []
    assert rung == []


def test_a_deadline_far_away_rings_when_its_time_has_come() -> None:
    clock, rung = Clock(), list[str]()
    Deadlines(clock).add(clock.now + 5 * LONGEST + 3, rung.append, "a")  # type: ignore[arg-type]
    for _ in range(5):
        clock.advance(LONGEST)
        assert rung == []
    clock.advance(3 + 6 * FAR_GRAIN)
    assert rung == ["a"]


async def limited(limit: TimeLimit, seconds: float, awaitable: Awaitable[T]) -> T:
    """The result, if it comes in time."""
    loop = asyncio.get_running_loop()
    return await limit.wait(loop.time() + seconds, loop, awaitable, DeadlinePassedError)


async def test_a_time_limit_ends_each_call_at_its_own_time() -> None:
    loop, limit, ended = asyncio.get_running_loop(), TimeLimit(), list[str]()

    async def hang(name: str) -> None:
        begun = loop.time()
        with pytest.raises(DeadlinePassedError):
            await limited(limit, 0.05, asyncio.Event().wait())
        assert loop.time() >= begun + 0.05
        ended.append(name)

    async def answer() -> None:
        assert await limited(limit, 0.05, asyncio.sleep(0, "quick")) == "quick"

    calls = [asyncio.ensure_future(each) for each in (hang("first"), answer(), hang("second"))]
    await asyncio.sleep(0.02)
    calls.append(asyncio.ensure_future(hang("third")))
    await asyncio.gather(*calls)
    assert ended == ["first", "second", "third"]
    await limited(limit, 0.05, asyncio.sleep(0))


async def test_a_call_with_a_time_limit_that_is_cancelled_stays_cancelled() -> None:
    call = asyncio.ensure_future(limited(TimeLimit(), 60, asyncio.Event().wait()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("way", ["deadline", "time limit"])
async def test_a_call_that_is_cancelled_in_the_turn_in_which_its_time_is_over_stays_cancelled(way: str) -> None:
    """Clients leave at the time at which they expect a reply at the latest, and tell it to the gateway as well."""
    loop, hang = asyncio.get_running_loop(), asyncio.Event().wait
    when = loop.time() + 0.01
    waiting = (
        wait_until(when, hang(), DeadlinePassedError)
        if way == "deadline"
        else TimeLimit().wait(when, loop, hang(), DeadlinePassedError)
    )
    call = asyncio.ensure_future(waiting)
    loop.call_at(when - 0.005, call.cancel)
    await asyncio.sleep(0)
    while loop.time() <= when + 2 * GRAIN:  # the loop is busy with something else until both times have passed
        pass
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_an_error_of_a_call_after_its_time_limit_is_its_own() -> None:
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise KeyError("own") from error

    with pytest.raises(KeyError):
        await limited(TimeLimit(), 0.01, fail())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


def test_others_ring_where_what_is_done_at_one_deadline_fails(caplog: pytest.LogCaptureFixture) -> None:
    clock, rung = Clock(), list[str]()
    shared = Deadlines(clock)  # type: ignore[arg-type]

    def act(name: str) -> None:
        if name == "fails":
            raise ValueError("the fault")
        rung.append(name)

    for name in ("a", "fails", "b", "fails", "c"):
        shared.add(clock.now + 0.5, act, name)
    clock.advance(1)
    assert sorted(rung) == ["a", "b", "c"]
    assert "unexpected error in what is done at a deadline" in caplog.text
