"""A deadline that is moved more often than it is met."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.core.alarm import Alarm


class Timer:
    def __init__(self, at: float, fire: Callable[[], None]) -> None:
        self.at, self.fire, self.is_cancelled = at, fire, False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A clock that the test moves, with the timers that a loop would have."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, fire: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, fire))
        return self.timers[-1]

    def until(self, now: float) -> None:
        """Let the time pass."""
        while due := [timer for timer in self.timers if timer.at <= now and not timer.is_cancelled]:
            self.timers.remove(due[0])
            self.now = due[0].at
            due[0].fire()
        self.now = now


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def rung() -> list[float]:
    return []


@pytest.fixture
def alarm(loop: Loop, rung: list[float]) -> Alarm:
    return Alarm(cast(asyncio.AbstractEventLoop, cast(Any, loop)), lambda: rung.append(loop.now))


def test_it_rings_once_when_the_time_is_over(alarm: Alarm, loop: Loop, rung: list[float]) -> None:
    alarm.set(5)
    loop.until(100)
    assert rung == [5]


def test_moving_it_later_takes_no_further_timer(alarm: Alarm, loop: Loop, rung: list[float]) -> None:
    alarm.set(5)
    for now in range(1, 5):
        loop.until(now)
        alarm.set(5)
    assert len(loop.timers) == 1
    loop.until(100)
    assert rung == [9]


def test_it_can_be_moved_to_an_earlier_time(alarm: Alarm, loop: Loop, rung: list[float]) -> None:
    alarm.set(50)
    alarm.set(5)
    loop.until(100)
    assert rung == [5]


def test_a_silenced_one_rings_when_it_is_set_again(alarm: Alarm, loop: Loop, rung: list[float]) -> None:
    alarm.set(5)
    alarm.silence()
    loop.until(10)
    assert rung == []
    alarm.set(5)
    loop.until(100)
    assert rung == [15]


def test_a_stopped_one_never_rings(alarm: Alarm, loop: Loop, rung: list[float]) -> None:
    alarm.stop()
    alarm.set(5)
    alarm.stop()
    loop.until(100)
    assert rung == []
