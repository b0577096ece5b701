"""An exception of one of many things does not stop the work on the others, and is not silent."""

import asyncio
import logging

import pytest

from gateway.core.surviving import all_surviving, log_and_continue


class ExpectedError(Exception):
    """One that the caller handles itself."""


def test_what_comes_after_a_failure_is_done_and_each_thing_that_failed_has_one_line_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = []
    for number in (1, 2, 3, 2):
        with log_and_continue(f"thing {number} of a test"):
            if number == 2:
                raise ValueError("the fault")
            done.append(number)
    assert done == [1, 3]
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "unexpected error in thing 2 of a test; everything else continues"
    assert "ValueError: the fault" in caplog.text


def test_what_the_caller_expects_is_raised() -> None:
    with pytest.raises(ExpectedError), log_and_continue("a test", ExpectedError):
        raise ExpectedError


def test_a_cancelled_task_ends() -> None:
    with pytest.raises(asyncio.CancelledError), log_and_continue("a test"):
        raise asyncio.CancelledError


async def test_of_several_waits_the_results_of_those_that_did_not_fail_are_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def end(number: int) -> int:
        await asyncio.sleep(0)
        if number == 2:
            raise ValueError("the fault")
        return number

    assert await all_surviving("the end of a thing", map(end, (1, 2, 3))) == [1, 3]
    assert "unexpected error in the end of a thing; everything else continues" in caplog.text
    assert "ValueError: the fault" in caplog.text


async def test_a_wait_that_was_cancelled_is_no_result(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await all_surviving("the end of a thing", [cancelled])
    assert caplog.records == []


async def test_who_waits_for_several_can_be_cancelled() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    waiting = asyncio.ensure_future(all_surviving("a wait", (wait(), wait())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True, True]
