"""What the engine for SLURM tells SLURM's commands, and what it makes of their answers: scripts in their place record
their arguments, and print what a test wants. `test_slurm` asks a real cluster."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError, Resources
from gateway.servers.engines.slurm import SlurmEngine

Answer = Callable[..., Path]
GIB = 2**30


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Makes a command print `printed`, and exit with `code`; returns the file with its arguments, one a line."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def answer(command: str, printed: str = "", code: int = 0) -> Path:
        given = tmp_path / f"{command}.arguments"
        text = f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {given}\nprintf %s {shlex.quote(printed)}\nexit {code}\n"
        (folder / command).write_text(text)
        (folder / command).chmod(0o755)
        return given

    answer("sbatch", "71\n")
    return answer


def job(folder: Path, *command: str, is_script: bool = False, resources: Resources | None = None) -> Job:
    return Job("lab-1", command, is_script, folder, folder / "100%", resources=resources or Resources())


USUAL = ["--parsable", "--export=ALL", "--job-name=lab-1", "--chdir=FOLDER", "--output=FOLDER/100%%"]


async def test_a_submission_asks_for_the_resources(answer: Answer, tmp_path: Path) -> None:
    given = answer("sbatch", "Welcome to the cluster\n71;north\n")
    asked = Resources(cpus=4, gpus=2, memory=3 * GIB + 1, seconds=90, options=("--partition=gpu",))
    assert await SlurmEngine().submit(job(tmp_path, "serve", "two words", resources=asked)) == "71"
    assert given.read_text().replace(str(tmp_path), "FOLDER").splitlines() == [
        *USUAL,
        *("--no-requeue", "--cpus-per-task=4", "--mem=3073M", "--gres=gpu:2", "--time=1:30"),
        *("--partition=gpu", "--wrap=exec serve 'two words'"),
    ]


async def test_what_a_script_sets_is_not_set_again(answer: Answer, tmp_path: Path) -> None:
    given, script = answer("sbatch", "71\n"), tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --requeue --mem-per-cpu=1G\n#SBATCH -G 1\n#SBATCH -t 5\nserve\n")
    asked = Resources(cpus=4, gpus=2, memory=GIB, seconds=90)
    await SlurmEngine().submit(job(tmp_path, str(script), is_script=True, resources=asked))
    options = given.read_text().replace(str(tmp_path), "FOLDER").splitlines()
    assert options == [*USUAL, "--cpus-per-task=4", "FOLDER/job.sh"]


async def test_a_script_that_cannot_be_read_is_refused(answer: Answer, tmp_path: Path) -> None:
    script = tmp_path / "none.sh"
    told = f"slurm: cannot read the job script {script}: No such file or directory; check the path and its permissions"
    with pytest.raises(RefusedError, match=f"^{re.escape(told)}$"):
        await SlurmEngine().submit(job(tmp_path, str(script), is_script=True))


async def test_an_answer_without_an_id_is_an_error(answer: Answer, tmp_path: Path) -> None:
    answer("sbatch", "the site is closed\n")
    with pytest.raises(EngineError, match=r"^slurm: sbatch: a job's id expected, not 'the site is closed\\n'$"):
        await SlurmEngine().submit(job(tmp_path, "serve"))


@pytest.mark.parametrize(
    ("state", "reason", "status", "report"),
    [
        ("NODE_FAIL", "None", "0", JobReport(JobState.FAILED, "NODE_FAIL", "10.0.0.7")),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "9", JobReport(JobState.FAILED, "OUT_OF_MEMORY", "10.0.0.7")),
        ("PREEMPTED", "Licenses", "0", JobReport(JobState.FAILED, "PREEMPTED (Licenses)", "10.0.0.7")),
        ("FAILED", "NonZeroExitCode", "768", JobReport(JobState.FAILED, "exit code 3", "10.0.0.7")),
        ("FAILED", "NonZeroExitCode", "9", JobReport(JobState.FAILED, "signal 9 (Killed)", "10.0.0.7")),
        ("FAILED", "JobLaunchFailure", "0", JobReport(JobState.FAILED, "JobLaunchFailure", "10.0.0.7")),
        ("SUSPENDED", "None", "0", JobReport(JobState.RUNNING, "SUSPENDED", "10.0.0.7", 1800000000.0)),
        ("PENDING", "Resources", "0", JobReport(JobState.WAITING, "Resources")),
        ("TIMEOUT", "TimeLimit", "0", JobReport(JobState.TIMED_OUT, "", "10.0.0.7")),
    ],
)
async def test_a_report_says_what_slurm_says(
    answer: Answer, state: str, reason: str, status: str, report: JobReport
) -> None:
    answer("scontrol", "NodeName=node7 Arch=x86_64 NodeAddr=10.0.0.7 NodeHostName=node7\n")
    answer("squeue", f"71|{state}|{reason}|1800000000|1:00:00|node7|{status}|\n")
    lost = JobReport(JobState.LOST, "SLURM does not know this job")
    assert await SlurmEngine().reports(["71", "72", "other"]) == {"71": report, "72": lost, "other": lost}


async def test_jobs_that_are_over_need_no_cancellation(answer: Answer) -> None:
    engine, given = SlurmEngine(), answer("scancel", "scancel: error: Kill job error on job id 71: Invalid job id", 1)
    await engine.cancel(["other"])
    assert not given.exists()
    await engine.cancel(["71", "other", "72"])
    assert given.read_text().splitlines() == ["--quiet", "71", "72"]
    answer("scancel", "scancel: error: Unable to contact slurm controller", 1)
    with pytest.raises(EngineError, match=r"^slurm: scancel: scancel: error: Unable to contact slurm controller$"):
        await engine.cancel(["71"])


async def test_a_command_that_is_missing_is_named(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "commands"))
    with pytest.raises(EngineError, match=r"^slurm: squeue cannot be started: No such file or directory$"):
        await SlurmEngine().reports(["71"])
