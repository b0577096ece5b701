"""How late the event loop is."""

from gateway.admin.loop_lag import TICK_SECONDS, WINDOW_SECONDS, LoopLag
from tests.clock import Clock


def test_the_longest_of_this_window_and_the_one_before_is_told() -> None:
    clock = Clock(100.0)
    lag = LoopLag(clock)
    lag.note(0.5)
    lag.note(0.1)
    assert lag.longest == 0.5
    clock.now += WINDOW_SECONDS
    lag.note(0.2)
    assert lag.longest == 0.5
    clock.now += WINDOW_SECONDS
    lag.note(0.1)
    assert lag.longest == 0.2


async def test_a_loop_that_is_late_now_shows_before_its_timer_fires() -> None:
    clock = Clock(100.0)
    lag = LoopLag(clock)
    lag.start()
    try:
        assert lag.longest == 0
        clock.now += TICK_SECONDS + 3
        assert round(lag.longest, 6) == 3
    finally:
        lag.stop()


async def test_one_that_measures_nothing_is_never_late() -> None:
    clock = Clock(100.0)
    lag = LoopLag(clock)
    clock.now += 1000
    assert lag.longest == 0
    lag.start()
    lag.stop()
    clock.now += 1000
    assert lag.longest == 0
