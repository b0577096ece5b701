"""What engines say of jobs, and when they say nothing."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from gateway.servers import asked_engine
from gateway.servers.asked_engine import AskedEngine
from gateway.servers.engine import EngineError, JobState
from tests.servers.test_jobs import Engine, settings


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_is_over_when_none_of_its_processes_is_there(state: JobState) -> None:
    assert state.is_over == (state not in (JobState.WAITING, JobState.RUNNING, JobState.ENDING))


async def test_an_engine_that_is_not_open_or_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AskedEngine(settings(tmp_path), lambda settings: (Engine(), 1.0), monotonic)
    with pytest.raises(EngineError, match=r"^fake: it is not open$"):
        await asked.engine.reports([])
    await asked.open()
    monkeypatch.setattr(asked_engine, "SECONDS", 0.01)
    with pytest.raises(EngineError, match=r"^fake: no answer within 0\.01 s$"):
        await asked.ask(asyncio.Event().wait())
