"""Tasks that outlive those who wait for them."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.errors import invalid_output
from gateway.core.long_work import between_requests
from gateway.core.tasks import outlived_by, spawn


async def abandon(task: asyncio.Task[Any]) -> None:
    """Waits for it, and leaves before it has ended."""
    waiting = asyncio.ensure_future(outlived_by(task))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_task_goes_on_when_nobody_waits_any_more() -> None:
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    await abandon(spawn(work()))
    go.set()
    await done.wait()


@pytest.mark.usefixtures("own_log_limit")
@pytest.mark.parametrize(
    ("error", "level", "text", "with_traceback"),
    [
        (invalid_output("no numbers"), logging.INFO, "an abandoned call failed: no numbers", False),
        (KeyError("x"), logging.ERROR, "unexpected error in an abandoned call", True),
    ],
)
async def test_the_error_of_an_abandoned_task_is_told_by_the_log(
    error: Exception, level: int, text: str, with_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise error

    task = spawn(work())
    await abandon(task)
    with caplog.at_level(logging.INFO):
        go.set()
        await asyncio.wait([task])
        await asyncio.sleep(0)
    [record] = caplog.records
    assert (record.levelno, record.getMessage(), record.exc_info is not None) == (level, text, with_traceback)


async def test_an_abandoned_task_that_is_cancelled_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    task = spawn(asyncio.Event().wait())
    await abandon(task)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert not caplog.records


@pytest.mark.usefixtures("own_log_limit")
async def test_an_error_just_before_the_caller_leaves_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise invalid_output("no numbers")

    task = asyncio.ensure_future(work())
    task.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(waiting.cancel))
    waiting = asyncio.ensure_future(outlived_by(task))
    await asyncio.sleep(0)
    go.set()
    with caplog.at_level(logging.INFO):
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert [record.getMessage() for record in caplog.records] == ["an abandoned call failed: no numbers"]


async def test_a_task_that_is_cancelled_cancels_those_who_wait() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(outlived_by(task))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_long_work_leaves_the_loop_its_turns() -> None:
    done: list[str] = []

    def steps() -> Iterator[None]:
        for at in range(3):
            done.append(f"step {at}")
            asyncio.get_running_loop().call_soon(done.append, f"request {at}")
            yield

    await between_requests(steps(), turn=0)
    assert done == ["step 0", "request 0", "step 1", "request 1", "step 2", "request 2"]
