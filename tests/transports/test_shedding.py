"""Load shedding: the levels by measurements that the tests make up, and by a loop that is really kept busy."""

import asyncio
import time

import pytest

from gateway.core.errors import GatewayError, Reason, Status
from gateway.transports.shedding import DOWN_LOOKS, LARGE_BYTES, UP_LOOKS, Level, Shedding
from tests.limits import GENEROUS, until

LAG, MEMORY = 0.25, 0.9


def looked(lag: float, memory: float, looks: int, shedding: Shedding | None = None) -> Shedding:
    shedding = shedding or Shedding(LAG, MEMORY)
    for _ in range(looks):
        shedding.look(lag, memory)
    return shedding


def refused(error: GatewayError | None) -> bool:
    if error is None:
        return False
    assert (error.status, error.reason, error.retry_after) == (Status.UNAVAILABLE, Reason.OVERLOADED, 1.0)
    return True


def kinds(shedding: Shedding) -> list[bool]:
    """Whether are refused: a new connection, large requests, small ones, and those without a body."""
    return [
        refused(shedding.connection_refusal()),
        refused(shedding.refusal(LARGE_BYTES)) and refused(shedding.refusal(None)),
        refused(shedding.refusal(1)),
        refused(shedding.refusal(0)),
    ]


def test_the_cheapest_refusals_come_first() -> None:
    shedding = Shedding(LAG, MEMORY)
    assert not any(kinds(shedding))
    looked(1, 0, UP_LOOKS, shedding)
    assert kinds(shedding) == [True, False, False, False]
    looked(1, 0, UP_LOOKS, shedding)
    assert kinds(shedding) == [True, True, False, False]
    looked(1, 0, 10 * UP_LOOKS, shedding)
    assert kinds(shedding) == [True, True, True, False]
    assert shedding.refused == 1 + 3 + 4


def test_single_long_turns_shed_nothing() -> None:
    shedding = Shedding(LAG, MEMORY)
    for _ in range(100):
        looked(5, 0, UP_LOOKS - 1, shedding)
        looked(0, 0, 1, shedding)
    assert shedding.level is Level.NOTHING


def test_a_load_about_the_limit_neither_begins_nor_ends_it() -> None:
    shedding = looked(1, 0, UP_LOOKS)
    looked(LAG * 0.8, 0, 1000, shedding)
    assert shedding.level is Level.CONNECTIONS
    assert looked(LAG * 0.8, 0, 1000).level is Level.NOTHING


def test_it_ends_step_by_step() -> None:
    shedding = looked(1, 0, 3 * UP_LOOKS)
    levels = []
    for _ in range(3):
        looked(0, 0, DOWN_LOOKS, shedding)
        levels.append(shedding.level)
    assert levels == [Level.LARGE, Level.CONNECTIONS, Level.NOTHING]
    assert shedding.since is None


def test_short_memory_leaves_small_requests_alone() -> None:
    shedding = looked(0, 0.95, 100 * UP_LOOKS)
    assert shedding.level is Level.LARGE
    assert looked(0, 0.85, 1000, shedding).level is Level.LARGE
    assert looked(0, 0.5, 2 * DOWN_LOOKS, shedding).level is Level.NOTHING


def test_the_log_says_when_it_begins_and_what_it_refused(caplog: pytest.LogCaptureFixture) -> None:
    shedding = looked(0.5, 0.4, UP_LOOKS)
    assert shedding.since is not None
    shedding.connection_refusal()
    looked(0, 0, DOWN_LOOKS, shedding)
    began, ended = [each.getMessage() for each in caplog.records]
    assert began == (
        "overloaded, refusing new connections: the event loop is 0.50 s late (limits.shed.lag is 0.25), "
        "memory is at 40 % (limits.shed.memory is 90 %)"
    )
    assert ended.startswith("no longer overloaded: refused 1 connections and requests in ")


async def test_a_loop_that_is_kept_busy_sheds_until_it_is_not() -> None:
    shedding = Shedding(0.1, MEMORY)
    shedding.start()
    try:
        async with asyncio.timeout(GENEROUS):
            while shedding.level < Level.ALL:
                time.sleep(0.15)  # the load  # noqa: ASYNC251
                await asyncio.sleep(0)
            await until(lambda: not shedding.level)
    finally:
        shedding.stop()
