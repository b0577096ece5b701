"""Jobs on a real HyperQueue cluster, in a process of its own."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.servers.engine import Engine, EngineError, Job, JobReport, JobState, Resources
from gateway.servers.engines.hyperqueue import HyperQueueEngine, seconds
from tests.interop.processes import wait_until_stopped
from tests.limits import until
from tests.servers.clusters import hyperqueue_cluster, hyperqueue_process
from tests.servers.jobs import job, processes_with, until_no_process_with, until_state

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with hyperqueue_cluster(4) as directory:
        yield directory


@pytest.fixture
async def engine(directory: Path) -> AsyncIterator[HyperQueueEngine]:
    engine = HyperQueueEngine(directory)
    yield engine
    await engine.close()


async def test_a_job_runs_and_ends(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "echo $HQ_JOB_ID $PORT; echo wrong >&2", environment={"PORT": "7, 8"}))
    report = await until_state(engine, id_, JobState.ENDED)
    assert (tmp_path / "output").read_text() == f"{id_} 7, 8\nwrong\n"
    assert report.host is not None


async def test_cancel_ends_all_processes_of_a_job(engine: Engine, tmp_path: Path) -> None:
    """Also those that left its process group, and those that do not listen."""
    script = "sleep 987 & setsid sleep 987 & trap '' TERM; (trap '' TERM; sleep 987); sleep 987"
    id_ = await engine.submit(job(tmp_path, script))
    await until_state(engine, id_, JobState.RUNNING)
    await until(lambda: len(processes_with(str(tmp_path))) >= 5)
    await engine.cancel([id_])
    await until_state(engine, id_, JobState.CANCELLED)
    assert "sleep" not in "".join(processes_with(str(tmp_path)))
    await until_no_process_with(str(tmp_path))
    await engine.cancel([id_])  # that it is over is no error


async def test_what_a_job_leaves_behind_ends_with_it(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "setsid sleep 987 &"))
    await until_state(engine, id_, JobState.ENDED)
    await until_no_process_with(str(tmp_path))


@pytest.mark.parametrize(("script", "reason"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9 (Killed)")])
async def test_a_job_that_fails_says_how(engine: Engine, tmp_path: Path, script: str, reason: str) -> None:
    id_ = await engine.submit(job(tmp_path, script))
    assert (await until_state(engine, id_, JobState.FAILED)).reason == reason


async def test_a_script_need_not_be_executable(engine: Engine, tmp_path: Path) -> None:
    asked = job(tmp_path, "echo done")
    (tmp_path / "job.sh").chmod(0o600)
    await until_state(engine, await engine.submit(asked), JobState.ENDED)
    assert (tmp_path / "output").read_text() == "done\n"


async def test_a_command_that_cannot_be_started_says_why(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(Job("model", (str(tmp_path),), False, tmp_path, tmp_path / "output"))
    assert "Permission denied" in (await until_state(engine, id_, JobState.FAILED)).reason


async def test_a_command_runs_as_a_job(engine: Engine, tmp_path: Path) -> None:
    command = ("/bin/echo", "two words", "$HOME", "%{JOB_ID}")
    id_ = await engine.submit(Job("model", command, False, tmp_path, tmp_path / "output"))
    await until_state(engine, id_, JobState.ENDED)
    assert (tmp_path / "output").read_text() == "two words $HOME %{JOB_ID}\n"


async def test_a_job_that_no_worker_can_run_waits_and_can_be_cancelled(engine: Engine, tmp_path: Path) -> None:
    id_ = await engine.submit(job(tmp_path, "", resources=Resources(cpus=1000, gpus=1)))
    report = (await engine.reports([id_]))[id_]
    assert report.state is JobState.WAITING
    assert report.reason == "waiting for a worker; it needs cpus=1000, gpus/nvidia=1"
    await engine.cancel([id_])
    assert (await engine.reports([id_]))[id_].state is JobState.CANCELLED


async def test_the_walltime_ends_a_job(engine: Engine, tmp_path: Path) -> None:
    before = time.time()
    id_ = await engine.submit(job(tmp_path, "sleep 987", resources=Resources(seconds=3)))
    report = await until_state(engine, id_, JobState.RUNNING)
    assert report.ends is not None
    assert before + 3 <= report.ends <= time.time() + 3
    await until_state(engine, id_, JobState.TIMED_OUT)
    await until_no_process_with(str(tmp_path))


async def test_the_directives_of_a_script_are_respected(engine: Engine, tmp_path: Path) -> None:
    """What they leave open, the resources say."""
    lines = '# A comment\n\n#HQ --cpus="2 compact" --name "two words" --stdout none\n#HQ --time-limit=1h'
    wanted = Resources(cpus=3, seconds=5)
    id_ = await engine.submit(job(tmp_path, "echo $HQ_CPUS; sleep 987", lines=lines, resources=wanted))
    report = await until_state(engine, id_, JobState.RUNNING)
    assert report.ends is not None
    assert report.ends > time.time() + 3000
    await until(lambda: bool((tmp_path / "output").read_text()))
    assert len((tmp_path / "output").read_text().split(",")) == 2
    await engine.cancel([id_])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--pin=taskset", "--pin is not supported"),
        ("--time-limit=soon", "a time such as"),
        ("--resource gpus", "NAME=AMOUNT expected"),
        ("--nodes=many", "invalid literal"),
        ('--name="open', "No closing quotation"),
    ],
)
async def test_a_directive_that_cannot_be_respected_is_an_error(
    engine: Engine, tmp_path: Path, line: str, error: str
) -> None:
    with pytest.raises(EngineError, match=error):
        await engine.submit(job(tmp_path, "", lines=f"#HQ {line}"))


@pytest.mark.parametrize(
    ("text", "expected"), [("10s", 10), ("1h 30min", 5400), ("2m", 120), ("01:00:05", 3605), ("1day", 86400)]
)
def test_times_are_read_as_hyperqueue_writes_them(text: str, expected: float) -> None:
    assert seconds(text) == expected


async def test_an_id_that_the_server_does_not_know_is_lost(engine: Engine) -> None:
    reports = await engine.reports(["99999", "other"])
    assert [report.state for report in reports.values()] == [JobState.LOST, JobState.LOST]
    await engine.cancel(["99999", "other"])


async def test_a_job_of_another_gateway_is_not_taken_for_one_of_this(
    engine: Engine, directory: Path, tmp_path: Path
) -> None:
    """The numbers of jobs start anew with HyperQueue's server: an old one may be that of another gateway's job."""
    number = await engine.submit(job(tmp_path, "sleep 100"))
    await until_state(engine, number, JobState.RUNNING)
    other = HyperQueueEngine(directory, state=tmp_path / "other")
    assert (await other.reports([number]))[number].state is JobState.LOST
    await other.cancel([number])
    await other.close()
    assert (await engine.reports([number]))[number].state is JobState.RUNNING
    await engine.cancel([number])
    await until_no_process_with(str(tmp_path))


async def test_many_jobs_at_once(engine: Engine, tmp_path: Path) -> None:
    asked = job(tmp_path, "echo $HQ_JOB_ID >> all")
    ids = await asyncio.gather(*(engine.submit(asked) for _ in range(40)))
    assert len(set(ids)) == 40
    for id_ in ids:
        await until_state(engine, id_, JobState.ENDED)
    assert {report.state for report in (await engine.reports(ids)).values()} == {JobState.ENDED}
    assert sorted((tmp_path / "all").read_text().split()) == sorted(ids)


async def test_two_gateways_share_a_server(engine: Engine, directory: Path, tmp_path: Path) -> None:
    """And the second can take over what the first, which has left, started."""
    first = HyperQueueEngine(directory, lease=60)
    id_ = await first.submit(job(tmp_path, "sleep 987"))
    await until_state(first, id_, JobState.RUNNING)
    await first.close()
    assert (await engine.reports([id_]))[id_].state is JobState.RUNNING
    await engine.cancel([id_])
    await until_state(engine, id_, JobState.CANCELLED)
    await until_no_process_with(str(tmp_path))


async def test_a_lease_is_renewed(directory: Path, tmp_path: Path) -> None:
    engine = HyperQueueEngine(directory, lease=4)
    id_ = await engine.submit(job(tmp_path, "sleep 7; echo done"))
    await until_state(engine, id_, JobState.ENDED)
    assert (tmp_path / "output").read_text() == "done\n"
    await engine.close()


GATEWAY = """
import asyncio, sys
from pathlib import Path
from gateway.servers.engines.hyperqueue import HyperQueueEngine
from tests.servers.jobs import job

async def main():
    engine = HyperQueueEngine(Path(sys.argv[1]), lease=float(sys.argv[3]))
    print(await engine.submit(job(Path(sys.argv[2]), "sleep 987 & sleep 987")), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_jobs_of_a_gateway_that_was_killed_end_by_their_lease(
    engine: Engine, directory: Path, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GATEWAY, str(directory), str(tmp_path), "4"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    id_ = (await process.stdout.readline()).decode().strip()
    await until(lambda: any("sleep 987" in each for each in processes_with(str(tmp_path))))
    process.kill()
    await process.communicate()
    await until_no_process_with(str(tmp_path))
    report = (await engine.reports([id_]))[id_]
    assert report == JobReport(JobState.CANCELLED, "the gateway that started it does not answer", report.host)


async def test_a_submission_that_is_cancelled_leaves_no_job(engine: Engine, tmp_path: Path) -> None:
    """At whatever await it was."""
    for pause in (0, 0.001, 0.002, 0.004, 0.008):
        task = asyncio.ensure_future(engine.submit(job(tmp_path, "sleep 987")))
        await asyncio.sleep(pause)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    after = await engine.submit(job(tmp_path, "true"))
    await until_state(engine, after, JobState.ENDED)
    await until_no_process_with(str(tmp_path))


async def test_no_server(tmp_path: Path) -> None:
    engine = HyperQueueEngine(tmp_path / "absent")
    with pytest.raises(EngineError, match="submit: Invalid server directory"):
        await engine.submit(job(tmp_path, "true"))
    with pytest.raises(EngineError, match="hyperqueue: jobs: "):
        await engine.reports(["1"])
    await engine.close()


async def test_a_server_that_ends_and_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hyperqueue_process(1) as (process, directory):
        engine = HyperQueueEngine(directory)
        id_ = await engine.submit(job(tmp_path, "sleep 987"))
        await until_state(engine, id_, JobState.RUNNING)
        monkeypatch.setattr("gateway.servers.engines.hyperqueue.ANSWER", 1.0)
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        with pytest.raises(EngineError, match="no answer within 1 s"):
            await engine.reports([id_])
        process.send_signal(signal.SIGCONT)
        monkeypatch.setattr("gateway.servers.engines.hyperqueue.ANSWER", 20.0)
        assert (await engine.reports([id_]))[id_].state is JobState.RUNNING
        process.kill()
        process.wait()
        with pytest.raises(EngineError, match="hyperqueue: jobs: "):
            await engine.reports([id_])
        await until_no_process_with(str(tmp_path))  # the jobs of a worker end with it
        await engine.close()


async def test_an_engine_that_is_closed_while_the_server_hangs(tmp_path: Path) -> None:
    with hyperqueue_process(1) as (process, directory):
        engine = HyperQueueEngine(directory)
        await engine.reports(["1"])
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        asked = asyncio.ensure_future(engine.reports(["1"]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.close()
        process.send_signal(signal.SIGCONT)
        with pytest.raises(EngineError, match="the client's process"):
            await asked
