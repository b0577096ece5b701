"""Runs jobs on SLURM, through the commands `sbatch`, `squeue`, `scontrol` and `scancel`.

This engine uses `squeue --Format` instead of `squeue --json`. The JSON output contains all jobs of the cluster and not
only the requested jobs (seen with 22.05), and its fields change with every version.
"""

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gateway.core.tasks import spawn
from gateway.servers.commands import CommandError, run
from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError, Resources

POLL_SECONDS = 2.0
"""The polling interval for reports, in seconds."""
REQUIRES = "SLURM's commands (sbatch, squeue, scontrol, scancel)"

ANSWER = 30.0
"""Maximum time for one response from SLURM, in seconds."""
SUBMISSION = 600.0
"""The time after which the engine kills an abandoned sbatch, in seconds."""
FIELDS = ("JobID", "State", "Reason", "EndTime", "TimeLimit", "BatchHost", "exit_code")
SEPARATOR = "|"
MIB = 1 << 20

STATES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
        JobState.WAITING,
    ),
    **dict.fromkeys(("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"), JobState.RUNNING),
    "COMPLETING": JobState.ENDING,
    "COMPLETED": JobState.ENDED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
}
"""The JobState for each SLURM state. All other states, such as NODE_FAIL, OUT_OF_MEMORY or PREEMPTED, become FAILED."""


def is_installed() -> bool:
    return shutil.which("sbatch") is not None


def start(settings: object) -> "SlurmEngine":
    """Return the engine. The function ignores the settings, because SLURM's commands find the cluster themselves."""
    return SlurmEngine()


class SlurmEngine:
    """Runs jobs on the cluster that SLURM's commands use. SLURM_CONF or the site's setup selects the cluster."""

    def __init__(self) -> None:
        """Create the engine. Raise RefusedError if SLURM's commands are not installed."""
        if not is_installed():
            raise RefusedError(f"slurm: it needs {REQUIRES}; sbatch is not on the PATH")
        self._addresses: dict[str, str] = {}

    async def submit(self, job: Job) -> str:
        options = await asyncio.to_thread(_options, job)
        program = job.command if job.is_script else (f"--wrap=exec {shlex.join(job.command)}",)
        submission = spawn(
            run(
                *("slurm", "sbatch", *options, *program),
                seconds=SUBMISSION,
                environment=_environment(job.environment),
            )
        )
        try:
            async with asyncio.timeout(ANSWER):
                printed = await asyncio.shield(submission)
        except (TimeoutError, asyncio.CancelledError) as error:
            # sbatch continues, because killing it now could leave an unknown job.
            spawn(self._take_back(submission))
            if isinstance(error, TimeoutError):
                raise EngineError(f"slurm: sbatch: no answer within {ANSWER:g} s; check that slurmctld runs") from None
            raise
        except CommandError as error:
            if re.search("Unable to contact|Connection refused|timed out|Zero Bytes", error.said):
                raise
            raise RefusedError(str(error)) from None
        return _id(printed)

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        if not names:
            return {}
        words = ("--noheader", "--me", f"--name={','.join(names)}", "--format=%i %j")
        printed = await run("slurm", "squeue", *words, seconds=ANSWER, environment=_environment({}))
        return {name: id_ for id_, name in (line.split(maxsplit=1) for line in printed.splitlines())}

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        known = [each for each in ids if each.isdigit()]
        rows = [line.split(SEPARATOR) for line in (await self._list(known)).splitlines()] if known else []
        await self._find_addresses({row[5] for row in rows if len(row) > len(FIELDS)})
        reports = {row[0]: self._report(*row[1:7]) for row in rows if len(row) > len(FIELDS)}
        lost = JobReport(JobState.LOST, "SLURM does not know this job")
        return {each: reports.get(each, lost) for each in ids}

    async def cancel(self, ids: Collection[str]) -> None:
        known = [each for each in ids if each.isdigit()]
        if known:
            try:
                await run("slurm", "scancel", "--quiet", *known, seconds=ANSWER, environment=_environment({}))
            except CommandError as error:
                if not re.search("Invalid job id|already completing or completed", error.said):
                    raise

    async def close(self) -> None:
        """Do nothing, because SLURM keeps the jobs."""

    async def _take_back(self, submission: "asyncio.Task[str]") -> None:
        with contextlib.suppress(EngineError):
            await self.cancel([_id(await submission)])

    async def _list(self, ids: Collection[str]) -> str:
        # Request all states, because ended jobs stay in the list for MinJobAge seconds.
        fields = ",".join(f"{field}:{SEPARATOR}" for field in FIELDS)
        words = ("--noheader", "--states=all", f"--jobs={','.join(ids)}", f"--Format={fields}")
        try:
            return await run("slurm", "squeue", *words, seconds=ANSWER, environment=_environment({}))
        except CommandError as error:
            if "Invalid job id" in error.said:  # squeue reports this error only if it knows none of the jobs
                return ""
            raise

    async def _find_addresses(self, nodes: set[str]) -> None:
        """Look up the addresses of new nodes, because a host name lookup might fail for a node's SLURM name."""
        unknown = sorted(node for node in nodes - self._addresses.keys() if node and node != "n/a")
        if not unknown:
            return
        self._addresses |= {node: node for node in unknown}
        with contextlib.suppress(CommandError):
            words = ("show", "node", "--oneliner", ",".join(unknown))
            printed = await run("slurm", "scontrol", *words, seconds=ANSWER, environment=_environment({}))
            for node, address in re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", printed, re.MULTILINE):
                self._addresses[node] = address

    def _report(self, state: str, reason: str, end: str, limit: str, node: str, status: str) -> JobReport:
        meaning = STATES.get(state, JobState.FAILED)
        host = self._addresses.get(node)
        if meaning is JobState.WAITING:
            return JobReport(meaning, reason if reason != "None" else "")
        if meaning is JobState.RUNNING:
            ends = float(end) if end.isdigit() and limit != "UNLIMITED" else None
            return JobReport(meaning, "" if state == "RUNNING" else state, host, ends)
        if meaning is not JobState.FAILED:
            return JobReport(meaning, "", host)
        return JobReport(meaning, _failure(state, reason, int(status) if status.isdigit() else 0), host)


def _failure(state: str, reason: str, status: int) -> str:
    """Return why a job failed, based on its state, SLURM's reason and its wait status."""
    if state != "FAILED":
        return state if reason in ("None", state) else f"{state} ({reason})"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"signal {number} ({signal.strsignal(number)})"
    return f"exit code {os.WEXITSTATUS(status)}" if status else reason


def _id(printed: str) -> str:
    """Return the job id in the output of `sbatch --parsable`, which is `ID` or `ID;CLUSTER`. Site-specific lines can
    precede the id."""
    last = (printed.split() or [""])[-1].partition(";")[0]
    if not last.isdigit():
        raise EngineError(f"slurm: sbatch: a job's id expected, not {printed[:200]!r}")
    return last


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the gateway and the job. `--export=ALL` passes these variables to the job,
    whatever their values are.

    The result omits the variables of the SLURM job in which the gateway itself might run, because SLURM would interpret
    them as options."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    kept = {name: value for name in ("SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS") if (value := os.environ.get(name))}
    return {**own, **kept, "SLURM_TIME_FORMAT": "%s", **variables}


def _options(job: Job) -> list[str]:
    output = str(job.output).replace("%", "%%")
    options = ["--parsable", "--export=ALL", f"--job-name={job.name}", f"--chdir={job.folder}", f"--output={output}"]
    said = set(_directives(Path(job.command[0]))) if job.is_script else set()
    if not said & {"--requeue"}:
        options.append("--no-requeue")  # the gateway itself starts a replacement job
    options += [option for names, option in _resources(job.resources) if not said & names]
    return [*options, *job.resources.options]


def _resources(resources: Resources) -> Iterator[tuple[set[str], str]]:
    """Yield each command-line option, with the script options that have the same meaning."""
    if resources.cpus is not None:
        yield {"-c", "--cpus-per-task"}, f"--cpus-per-task={resources.cpus}"
    if resources.memory is not None:
        yield {"--mem", "--mem-per-cpu", "--mem-per-gpu"}, f"--mem={-(-resources.memory // MIB)}M"
    if resources.gpus is not None:
        yield {"-G", "--gres", "--gpus", "--gpus-per-node", "--gpus-per-task"}, f"--gres=gpu:{resources.gpus}"
    if resources.seconds is not None:
        minutes, rest = divmod(round(resources.seconds), 60)
        yield {"-t", "--time"}, f"--time={minutes}:{rest:02}"


def _directives(script: Path) -> list[str]:
    """Return the option names in a script's #SBATCH lines, which sbatch itself reads.

    Command-line options would override the script's options, so the gateway does not set options that the script
    sets."""
    try:
        text = script.read_text("utf-8", "replace")
    except OSError as error:
        text = f"slurm: cannot read the job script {script}: {error.strerror}"
        raise RefusedError(f"{text}; check the path and its permissions") from None
    names = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            words = line.removeprefix("#SBATCH").split()
            names += [
                word.partition("=")[0] if word.startswith("--") else word[:2] for word in words if word[:1] == "-"
            ]
        elif line.strip() and not line.startswith("#"):
            break
    return names
