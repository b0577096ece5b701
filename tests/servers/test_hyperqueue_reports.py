"""What the engine for HyperQueue asks HyperQueue's server, and what it makes of its answers and of the files that it
shares with watchers. `test_hyperqueue` asks a real cluster."""

import json
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.servers import watcher
from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError, Resources
from gateway.servers.engines import hyperqueue
from gateway.servers.engines.hyperqueue import Counts, HyperQueueEngine, request

pytestmark = pytest.mark.skipif(not hyperqueue.is_installed(), reason="HyperQueue's Python client is not installed")

WAITS = Counts(completed=False, finished=0, failed=0, error="")


class Server:
    """HyperQueue's server, as its client shows it: knows the job 1 as `counts`."""

    def __init__(self) -> None:
        self.counts = WAITS

    async def ask(self, what: str, **rest: Any) -> str:
        return "1"

    async def jobs(self, ids: Collection[str]) -> Mapping[str, Counts]:
        return {each: self.counts for each in ids if each == "1"}

    async def close(self) -> None:
        """Nothing is open."""


def engine(folder: Path, server: Server, directory: Path | None = None) -> HyperQueueEngine:
    made = HyperQueueEngine(directory, lease=1e-9)
    made._server = server  # type: ignore[assignment]
    return made


def job(folder: Path, *command: str, options: tuple[str, ...] = (), is_script: bool = False) -> Job:
    return Job(
        "lab-1", command or ("serve",), is_script, folder, folder / "output", resources=Resources(options=options)
    )


def shared(folder: Path) -> Path:
    """The folder that the engine and the watcher of the only job share."""
    (found,) = folder.glob("hyperqueue-*")
    return found


def test_resources_may_have_any_name_and_whole_numbers_or_parts(tmp_path: Path) -> None:
    options = ("--resource", "gpus/amd=2", "--resource=licence=0.5", "--resource", "mem=all", "--cpus=2 compact")
    asked = request(job(tmp_path, options=options))
    assert asked["resources"] == {"gpus/amd": 2, "licence": 0.5, "mem": "all"}
    assert asked["cpus"] == "2 compact"


def test_a_script_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "none.sh"
    told = f"hyperqueue: cannot read the job script {script}: No such file or directory; check the path and its "
    with pytest.raises(RefusedError, match=f"^{re.escape(told)}permissions$"):
        request(job(tmp_path, str(script), is_script=True))


async def test_a_job_reports_what_it_waits_for_until_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `hq`, where it is installed."""
    server = Server()
    hq, given = tmp_path / "bin" / "hq", tmp_path / "arguments"
    hq.parent.mkdir()
    hq.write_text(f'#!/bin/sh\necho "$@" > {given}\n')
    hq.chmod(0o755)
    monkeypatch.setenv("PATH", str(hq.parent), prepend=":")
    monkeypatch.setenv("HQ_SERVER_DIR", str(tmp_path))
    here = engine(tmp_path, server)
    assert await here.submit(job(tmp_path, options=("--nodes=2", "--cpus=4"))) == "1"
    waits = JobReport(JobState.WAITING, "waiting for a worker; it needs nodes=2")
    lost = JobReport(JobState.LOST, "HyperQueue does not know this job")
    assert await here.reports(["1", "2"]) == {"1": waits, "2": lost}
    await here.cancel(["1", "2"])
    assert given.read_text() == f"--server-dir {tmp_path} job cancel 1\n"
    assert await here.reports(["1"]) == {"1": JobReport(JobState.CANCELLED)}
    await here.close()


async def test_a_job_that_hyperqueue_could_not_start_has_its_words(tmp_path: Path) -> None:
    server = Server()
    here = engine(tmp_path, server, tmp_path)
    await here.submit(job(tmp_path))
    server.counts = Counts(completed=True, finished=0, failed=1, error="no such user")
    assert await here.reports(["1"]) == {"1": JobReport(JobState.FAILED, "no such user")}
    await here.close()


async def test_files_that_are_gone_leave_what_hyperqueue_says(tmp_path: Path) -> None:
    here = engine(tmp_path, Server(), tmp_path)
    await here.submit(job(tmp_path))
    folder = shared(tmp_path)
    (folder / "job.json").unlink()
    waits = JobReport(JobState.WAITING, "HyperQueue only reports that it has not ended")
    assert await here.reports(["1"]) == {"1": waits}
    await here.close()


async def test_a_job_whose_watcher_writes_nothing_any_more_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BEAT", 0.0)
    here = engine(tmp_path, Server(), tmp_path)
    await here.submit(job(tmp_path))
    folder = shared(tmp_path)
    (folder / "state.json").write_text(json.dumps({"host": "node7", watcher.STARTED: time.time()}))
    assert (await here.reports(["1"]))["1"].state is JobState.RUNNING
    assert await here.reports(["1"]) == {"1": JobReport(JobState.LOST, "its node gives no sign of life", "node7")}
    assert not (folder / "lease").exists()  # so the job ends where it may still run
    await here.close()


async def test_a_job_whose_files_cannot_be_written_is_not_submitted(tmp_path: Path) -> None:
    here = engine(tmp_path, Server(), tmp_path)
    absent = tmp_path / "absent"
    asked = Job("lab-1", ("serve",), False, tmp_path, absent / "output")
    with pytest.raises(EngineError, match=rf"^hyperqueue: submit: \[Errno 2\] No such file or directory: '{absent}/"):
        await here.submit(asked)
    await here.close()
