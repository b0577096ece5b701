"""Jobs as processes of this machine."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.servers.engine import EngineError, Job, JobReport, JobState
from gateway.servers.engines.process import ProcessEngine
from tests.servers.jobs import job, until_no_process_with, until_state


async def test_a_job_that_does_not_start_leaves_nothing(tmp_path: Path) -> None:
    engine, absent = ProcessEngine(tmp_path / "jobs"), tmp_path / "absent"
    told = rf"^process: the job model failed to start: \[Errno 2\] No such file or directory: '{absent}'$"
    with pytest.raises(EngineError, match=told):
        await engine.submit(Job("model", ("serve",), False, absent, tmp_path / "output"))
    assert list((tmp_path / "jobs").iterdir()) == []
    assert await engine.find(["model"]) == {}


async def test_jobs_end_when_the_engine_is_closed(tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path / "jobs")
    id_ = await engine.submit(job(tmp_path, "exec sleep 987"))
    await until_state(engine, id_, JobState.RUNNING)
    assert await engine.find(["model", "other"]) == {"model": id_}
    other = ProcessEngine(tmp_path / "jobs")
    ending = JobReport(JobState.ENDING, "it ends with the gateway that started it", "127.0.0.1")
    assert await other.reports([id_]) == {id_: ending}
    await engine.close()
    await until_no_process_with(str(tmp_path))
    why = "the gateway that started it does not answer"
    assert await other.reports([id_]) == {id_: JobReport(JobState.CANCELLED, why, socket.gethostname())}


async def test_the_job_of_an_earlier_time_whose_watcher_is_gone_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "job.json").write_text('{"name": "model"}')
    assert await ProcessEngine(tmp_path).find(["model"]) == {}


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that leads a group of its own."""
    with subprocess.Popen(["sleep", "987"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_a_group_whose_number_another_process_has_now_is_left_alone(
    tmp_path: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "state.json").write_text(json.dumps({"group": stranger.pid, "began": "1"}))
    reports = await ProcessEngine(tmp_path).reports(["0-1-abc"])
    assert reports == {"0-1-abc": JobReport(JobState.LOST, "its watcher was killed")}
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.05)
