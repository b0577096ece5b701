"""Jobs on a real SLURM cluster of one node, where SLURM is installed and may be started."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.servers.engine import Engine, EngineError, Job, JobState, Resources
from gateway.servers.engines.slurm import SlurmEngine
from tests.interop.processes import wait_until_stopped
from tests.limits import until
from tests.servers.clusters import slurm_is_missing, slurm_processes
from tests.servers.jobs import job, processes_with, until_no_process_with, until_state

MISSING = slurm_is_missing()
pytestmark = [pytest.mark.real, pytest.mark.skipif(MISSING is not None, reason=f"no SLURM: {MISSING}")]
Daemons = dict[str, "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[dict[str, str], Daemons]]:
    with slurm_processes(4) as started:
        yield started


@pytest.fixture
def engine(cluster: tuple[dict[str, str], Daemons], monkeypatch: pytest.MonkeyPatch) -> SlurmEngine:
    for name, value in cluster[0].items():
        monkeypatch.setenv(name, value)
    return SlurmEngine()


async def test_a_job_runs_and_ends(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables may have commas in them, and those of the job that the gateway runs in are not the job's."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1000")
    asked = job(tmp_path, "echo $SLURM_JOB_ID $PORT; pwd; echo wrong >&2", environment={"PORT": "7, 8=9"})
    id_ = await engine.submit(asked)
    report = await until_state(engine, id_, JobState.ENDED)
    assert (tmp_path / "output").read_text() == f"{id_} 7, 8=9\n{tmp_path}\nwrong\n"
    assert report.host == "127.0.0.1"


async def test_cancel_ends_all_processes_of_a_job(engine: Engine, tmp_path: Path) -> None:
    """Also those that do not listen."""
    id_ = await engine.submit(job(tmp_path, "sleep 987 & trap '' TERM; (trap '' TERM; sleep 987); sleep 987"))
    await until_state(engine, id_, JobState.RUNNING)
    await until(lambda: len(processes_with(str(tmp_path))) >= 3)
    await engine.cancel([id_])
    await until_state(engine, id_, JobState.CANCELLED)
    await until_no_process_with(str(tmp_path))
    await engine.cancel([id_])  # that it is over is no error


@pytest.mark.parametrize(("script", "reason"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9 (Killed)")])
async def test_a_job_that_fails_says_how(engine: Engine, tmp_path: Path, script: str, reason: str) -> None:
    id_ = await engine.submit(job(tmp_path, script))
    assert (await until_state(engine, id_, JobState.FAILED)).reason == reason


async def test_a_command_runs_as_a_job(engine: Engine, tmp_path: Path) -> None:
    command = ("/bin/echo", "two words", "$HOME", "%j")
    id_ = await engine.submit(Job("model", command, False, tmp_path, tmp_path / "100%j"))
    await until_state(engine, id_, JobState.ENDED)
    assert (tmp_path / "100%j").read_text() == "two words $HOME %j\n"


async def reason_to_wait(engine: Engine, id_: str) -> str:
    while (report := await until_state(engine, id_, JobState.WAITING)).reason in ("", "Priority"):
        pass
    return report.reason


async def test_a_job_that_no_node_can_run_waits_and_says_why(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "", resources=Resources(cpus=1000)))
    assert await reason_to_wait(engine, id_) == "PartitionConfig"
    await engine.cancel([id_])
    await until_state(engine, id_, JobState.CANCELLED)


async def test_a_job_waits_for_room(engine: Engine, tmp_path: Path) -> None:
    whole = Resources(cpus=4)
    first = await engine.submit(job(tmp_path, "sleep 987", resources=whole))
    await until_state(engine, first, JobState.RUNNING)
    second = await engine.submit(job(tmp_path, "sleep 987", resources=whole))
    assert await reason_to_wait(engine, second) == "Resources"
    await engine.cancel([first, second])
    await until_state(engine, first, JobState.CANCELLED)


async def test_what_sbatch_refuses_is_an_error_with_its_words(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"slurm: sbatch: .*invalid partition specified: absent"):
        await engine.submit(job(tmp_path, "", resources=Resources(options=("--partition=absent",))))


async def test_a_running_job_says_when_it_ends(engine: Engine, tmp_path: Path) -> None:
    before = int(time.time())
    id_ = await engine.submit(job(tmp_path, "sleep 987", resources=Resources(seconds=90)))
    report = await until_state(engine, id_, JobState.RUNNING)
    assert report.ends is not None
    assert before + 90 <= report.ends <= time.time() + 120  # SLURM counts whole minutes
    await engine.cancel([id_])


async def test_a_job_without_a_time_limit_has_no_end(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "sleep 987"))
    assert (await until_state(engine, id_, JobState.RUNNING)).ends is None
    await engine.cancel([id_])


async def test_the_directives_of_a_script_are_respected(engine: Engine, tmp_path: Path) -> None:
    """What they leave open, the resources say."""
    lines = "# A comment\n#SBATCH -c 2 --time=1:00:00\n#SBATCH --output=elsewhere"
    asked = job(tmp_path, "echo $SLURM_CPUS_PER_TASK; sleep 987", lines=lines, resources=Resources(cpus=3, seconds=60))
    id_ = await engine.submit(asked)
    report = await until_state(engine, id_, JobState.RUNNING)
    assert report.ends is not None
    assert report.ends > time.time() + 3000
    output = tmp_path / "output"  # a job runs, for the controller, before its file is there
    await until(lambda: output.exists() and output.read_text() == "2\n")
    await engine.cancel([id_])


async def test_an_id_that_slurm_does_not_know_is_lost(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "true"))
    for ids in ([id_, "99999", "other"], ["99999", "other"]):
        reports = await engine.reports(ids)
        assert [reports[each].state for each in ids[-2:]] == [JobState.LOST, JobState.LOST]
        assert list(reports) == ids
    await engine.cancel(["99999", "other"])


async def test_many_jobs_at_once(engine: Engine, tmp_path: Path) -> None:
    asked = job(tmp_path, "echo $SLURM_JOB_ID >> all")
    ids = await asyncio.gather(*(engine.submit(asked) for _ in range(20)))
    assert len(set(ids)) == 20
    for id_ in ids:
        await until_state(engine, id_, JobState.ENDED)
    assert sorted((tmp_path / "all").read_text().split()) == sorted(ids)


async def test_a_submission_that_is_cancelled_leaves_no_job(engine: Engine, tmp_path: Path) -> None:
    """At whatever await it was."""
    for pause in (0, 0.002, 0.004, 0.008, 0.016):
        task = asyncio.ensure_future(engine.submit(job(tmp_path, "sleep 987")))
        await asyncio.sleep(pause)
        task.cancel()
        for done in await asyncio.gather(task, return_exceptions=True):
            if isinstance(done, str):
                await engine.cancel([done])

    def left() -> str:
        words = ["squeue", "--noheader", "--states=PENDING,RUNNING"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    await until(lambda: len(asyncio.all_tasks()) == 1 and not left())


async def test_a_controller_that_is_down_or_hangs_is_an_error(
    engine: Engine, cluster: tuple[dict[str, str], Daemons], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of this file: afterwards there is no controller."""
    controller = cluster[1]["slurmctld"]
    monkeypatch.setattr("gateway.servers.engines.slurm.ANSWER", 0.5)
    controller.send_signal(signal.SIGSTOP)
    wait_until_stopped(controller.pid)
    with pytest.raises(EngineError, match=r"slurm: squeue: no answer within 0\.5 s"):
        await engine.reports(["1"])
    monkeypatch.setattr("gateway.servers.engines.slurm.ANSWER", 30.0)
    controller.kill()
    controller.wait()
    with pytest.raises(EngineError, match=r"slurm: squeue: .*Unable to contact slurm controller"):
        await engine.reports(["1"])
    with pytest.raises(EngineError, match=r"slurm: sbatch: .*Unable to contact slurm controller"):
        await engine.submit(job(tmp_path, "true"))
