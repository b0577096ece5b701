"""The waits of the parts of one request, which the request as a whole is told of."""

import asyncio
from collections.abc import Callable
from math import inf

import pytest

from gateway.core.queue_wait import LATER, PartWaits, begin_wait, note_sent, note_wait, out_of_time, queue_wait

Part = Callable[[], None]


def waited(seconds: float, *, in_vain: float | None = None) -> Part:
    return lambda: note_wait(2, seconds, in_vain)


def sent_at_once() -> None:
    """It does not wait."""


def still_waits() -> None:
    begin_wait(3)


def computed_and_in_vain() -> None:
    note_wait(2, 0.5, 4.0)
    note_sent()


async def noted(*parts: Part, since: float = -inf, go_on: bool = False) -> tuple[int, float, float | None] | None:
    """The place, the seconds and `retry_after` that a request of these parts is told."""

    async def run(part: Part) -> None:
        part()

    waits = PartWaits()
    await asyncio.gather(*(waits.spawn(run(part)) for part in parts))
    waits.note(since, go_on=go_on)
    wait = queue_wait.get()
    return None if wait is None else (wait.place, round(wait.seconds, 1), wait.retry_after)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], None),
        ([sent_at_once], None),
        ([waited(0.5), waited(1.5), sent_at_once], (2, 1.5, None)),
        ([waited(0.5, in_vain=3.0), waited(1.5, in_vain=2.0)], (2, 1.5, 3.0)),
        ([waited(0.5, in_vain=3.0), waited(1.5)], (2, 1.5, None)),
        ([waited(0.5, in_vain=3.0), sent_at_once], (2, 0.5, None)),
        ([still_waits], (3, 0.0, LATER)),
        ([still_waits, sent_at_once], (3, 0.0, None)),
        ([computed_and_in_vain], (2, 0.5, None)),
    ],
)
async def test_the_longest_wait_is_told_and_to_try_again_only_if_no_part_was_sent(
    parts: list[Part], told: tuple[int, float, float | None] | None
) -> None:
    assert await noted(*parts) == told


async def test_a_request_that_joined_late_waited_no_longer_than_it_was_there() -> None:
    now = asyncio.get_running_loop().time()
    assert await noted(waited(90.0), since=now) == (2, 0.0, None)


async def test_parts_that_go_on_without_the_request_are_sent() -> None:
    assert await noted(still_waits, go_on=True) == (3, 0.0, None)


async def test_a_wait_before_the_parts_is_counted_once() -> None:
    note_wait(7, 1.0)
    assert await noted(waited(0.5), waited(2.0)) == (7, 3.0, None)
    assert "of which 3.00 s waiting for a free slot" in out_of_time("no answer").message
