"""The clocks that wake the generator."""

import asyncio

import pytest

from gateway.tools.bench.clock import LoopClock, TimerClock


@pytest.mark.parametrize("kind", [LoopClock, TimerClock])
async def test_a_clock_wakes_at_the_time_that_was_set_last(kind: type[LoopClock | TimerClock]) -> None:
    clock, woken = kind(), asyncio.Event()
    clock.close()  # before it started
    clock = kind()
    clock.start(woken.set)
    begin = clock.now()
    clock.wake_at(begin + 1000)
    for when in (begin + 0.01, begin):
        clock.wake_at(when)
        await woken.wait()
        assert clock.now() >= when
        woken.clear()
    clock.wake_at(clock.now() + 1000)
    clock.close()
