"""Jobs on HyperQueue, through its Python client.

The client can only submit jobs and count successes and failures. Each job therefore runs under a watcher
(`gateway.servers.watcher`), which stops the job and reports its end. The engine and the watcher communicate through a
folder next to the job's output file.
"""

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gateway.core.surviving import log_and_continue
from gateway.core.tasks import outlived_by, spawn
from gateway.servers import watcher
from gateway.servers.commands import ended, run
from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError
from gateway.servers.watched import how_it_ended, read_json, write_job
from gateway.servers.watcher import ExitReason

POLL_SECONDS = 1.0
"""The polling interval for reports, in seconds."""
REQUIRES = "HyperQueue's Python client (pip install 'modelglot[hpc]')"

CLIENT = Path(watcher.__file__).with_name("hyperqueue_client.py")
LEASE = 60.0
"""The time after which a job ends if its gateway is dead, in seconds."""
ANSWER = 30.0
"""Maximum time for one response from HyperQueue, in seconds."""
SCRIPT = 32 * 1024
"""The number of bytes at the beginning of a script that can contain directives, as in `hq submit`."""
MIB = 1 << 20
KEPT = 1000
"""The number of ended jobs whose folders are kept for later queries."""


class HyperQueueSettings(Protocol):
    """The settings of this engine under the key `servers`."""

    @property
    def directory(self) -> Path | None: ...

    @property
    def keep(self) -> bool: ...

    @property
    def state(self) -> Path: ...


def is_installed() -> bool:
    return importlib.util.find_spec("hyperqueue") is not None


def start(settings: HyperQueueSettings) -> "HyperQueueEngine":
    return HyperQueueEngine(settings.directory, lease=None if settings.keep else LEASE, state=settings.state)


# The request to HyperQueue


@dataclass(slots=True)
class HyperQueueRequest:
    """A job's request to HyperQueue, in the syntax of `hq submit`."""

    name: str | None = None
    cpus: str | None = None
    resources: dict[str, str] = field(default_factory=dict)
    nodes: int = 0
    time_limit: float | None = None
    """The time limit of the job, in seconds. The watcher enforces it, because the Python client has no option for
    it."""
    time_request: float | None = None
    """The minimum remaining time of a worker that gets the job, in seconds."""
    priority: int = 0

    def __str__(self) -> str:
        if self.nodes:
            return f"nodes={self.nodes}"
        return ", ".join(f"{name}={amount}" for name, amount in [("cpus", self.cpus or "1"), *self.resources.items()])


IGNORED = {"--stdout", "--stderr", "--cwd", "--directives"}
"""Options that the gateway sets itself, because it must know where the output is."""


def request(job: Job) -> HyperQueueRequest:
    """Return the request for `job`. The job's options take precedence over its script, and the script over the job's
    Resources.

    Raise RefusedError for an option that the Python client does not support, because a server without the requested
    resources is useless."""
    wanted = job.resources
    asked = HyperQueueRequest(name=job.name, time_limit=wanted.seconds)
    if wanted.cpus is not None:
        asked.cpus = str(wanted.cpus)
    if wanted.gpus is not None:
        asked.resources["gpus/nvidia"] = str(wanted.gpus)
    if wanted.memory is not None:
        asked.resources["mem"] = str(-(-wanted.memory // MIB))
    if job.is_script:
        _apply(asked, directives(Path(job.command[0])), f"the #HQ lines of {job.command[0]}")
    _apply(asked, wanted.options, "resources.options")
    return asked


def directives(script: Path) -> list[str]:
    """Return the options in the #HQ lines at the beginning of a script. Only comments and blank lines can precede these
    lines."""
    try:
        with script.open("rb") as file:
            lines = file.read(SCRIPT).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise RefusedError(f"hyperqueue: cannot read the job script {script}: {error.strerror}") from None
    options: list[str] = []
    for line in itertools.takewhile(lambda each: not each or each.startswith("#"), map(str.strip, lines)):
        if line.startswith("#HQ "):
            try:
                options += shlex.split(line.removeprefix("#HQ "))
            except ValueError as error:
                raise RefusedError(f"hyperqueue: {script}: {line}: {error}") from None
    return options


def _apply(asked: HyperQueueRequest, options: Sequence[str], place: str) -> None:
    words = iter(options)
    for word in words:
        option, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        try:
            match option:
                case "--name":
                    asked.name = value
                case "--cpus":
                    asked.cpus = value
                case "--resource":
                    name, _, amount = value.partition("=")
                    if not amount:
                        raise ValueError("NAME=AMOUNT expected")
                    asked.resources[name] = amount
                case "--nodes":
                    asked.nodes = int(value)
                case "--time-limit":
                    asked.time_limit = seconds(value)
                case "--time-request":
                    asked.time_request = seconds(value)
                case "--priority":
                    asked.priority = int(value)
                case _ if option not in IGNORED:
                    raise RefusedError(
                        f"hyperqueue: {place}: {option} is not supported; supported are --name, --cpus, --resource, "
                        "--nodes, --time-limit, --time-request, --priority"
                    )
        except ValueError as error:
            raise RefusedError(f"hyperqueue: {place}: {option}: {value!r}: {error}") from None


UNITS: dict[str, float] = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
}
UNITS |= {f"{unit}s": size for unit, size in UNITS.items() if len(unit) > 1} | {"ms": 0.001}
UNITS |= {"d": 86400, "day": 86400, "days": 86400}


def seconds(text: str) -> float:
    """Convert a time in HyperQueue's syntax, such as `1h 30min`, `01:30:00` or `10s`, to seconds. Raise ValueError for
    any other text."""
    if clock := re.fullmatch(r"(\d+):(\d\d):(\d\d)", text.strip()):
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    parts = re.findall(r"(\d+) *([a-z]+)", text)
    if not parts or re.sub(r"(\d+) *([a-z]+)", "", text).strip() or any(unit not in UNITS for _, unit in parts):
        raise ValueError("a time such as `1h 30min`, `10s` or `01:30:00` expected")
    return float(sum(int(number) * UNITS[unit] for number, unit in parts))


# HyperQueue's server


@dataclass(frozen=True, slots=True)
class Counts:
    """HyperQueue's counts for a job with one task."""

    completed: bool
    finished: int
    failed: int
    error: str


class PythonClient:
    """HyperQueue's Python client, in a separate process (`gateway.servers.hyperqueue_client`)."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def submit(self, asked: HyperQueueRequest, job: Job, args: Sequence[str]) -> str:
        answer = await self._ask(
            "submit",
            name=asked.name,
            args=list(args),
            cwd=str(job.folder),
            env=dict(job.environment),
            stderr=str(job.output),
            cpus=_number(asked.cpus or "1"),
            resources={name: _number(amount) for name, amount in asked.resources.items()},
            nodes=asked.nodes,
            min_time=asked.time_request,
            priority=asked.priority,
        )
        return str(answer)

    async def jobs(self, ids: Sequence[str]) -> Mapping[str, Counts]:
        answer = await self._ask("jobs", ids=[int(each) for each in ids if each.isdigit()])
        return {each: Counts(*counts) for each, counts in answer.items()}

    async def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # this ends a query in progress
        async with self._turn:
            await self._end()

    async def _ask(self, what: str, **rest: Any) -> Any:
        # If the caller is cancelled, the response must still be read from the pipe.
        return await outlived_by(spawn(self._exchange(what, rest)))

    async def _exchange(self, what: str, rest: Mapping[str, Any]) -> Any:
        async with self._turn:
            try:
                process = self._process = self._process or await self._start()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps({"ask": what, **rest}).encode() + b"\n")
                line = await asyncio.wait_for(process.stdout.readline(), ANSWER)
            except TimeoutError:
                await self._end()
                raise EngineError(f"hyperqueue: {what}: no answer within {ANSWER:g} s") from None
            except (OSError, ValueError) as error:
                await self._end()
                raise EngineError(f"hyperqueue: {what}: the client's process: {error}") from None
            if not line:
                await self._end()
                raise EngineError(f"hyperqueue: {what}: the client's process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"hyperqueue: {what}: {' '.join(answer['error'].split())}")
        return answer["ok"]

    async def _start(self) -> asyncio.subprocess.Process:
        arguments = [] if self._directory is None else [str(self._directory)]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(CLIENT), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "RUST_BACKTRACE": "0"},
            limit=16 * MIB,
            start_new_session=True,  # so Ctrl-C in the gateway's terminal does not stop it
        )

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await ended(process)


def _number(amount: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(amount)
    return amount


# The engine


class HyperQueueEngine:
    """The jobs at one HyperQueue server. The server's folder identifies it; the default is the folder that `hq`
    uses."""

    def __init__(
        self,
        directory: Path | None,
        *,
        lease: float | None = LEASE,
        state: Path = Path("/"),
    ) -> None:
        """Create the engine. `lease` is the time in seconds after which jobs end if their gateway is dead; if it is
        None, they continue. `state` is the parent folder of all job folders. Raise RefusedError if the Python client is
        not installed."""
        self._lease = lease
        if directory is None and (named := os.environ.get("HQ_SERVER_DIR")):
            directory = Path(named)
        self._places = _Places(directory or Path.home() / ".hq-server", state.absolute())
        if not is_installed():
            raise RefusedError(f"hyperqueue: it needs {REQUIRES}, which is not there")
        self._server = PythonClient(directory)
        self._directory = directory
        self._folders: dict[str, Path] = {}
        """The folder shared by engine and watcher, for each job that has not ended."""
        self._over: dict[str, Path] = {}
        self._beats: dict[str, tuple[float, float]] = {}
        """The modification time of a job's state file, and when this time was first seen."""
        self._numbers = itertools.count()
        self._renewing: asyncio.Task[None] | None = None

    async def submit(self, job: Job) -> str:
        asked = await asyncio.to_thread(request, job)
        folder = job.output.parent / f"hyperqueue-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(self._prepare, folder, job, asked)
            id_ = await self._server.submit(asked, job, _start_watcher(folder))
            self._folders[id_] = folder
            await asyncio.to_thread(self._places.write, id_, folder)
        except BaseException as error:
            # Whether or not the job was submitted, it does not run without its lease.
            _unlink(folder / "lease")
            if isinstance(error, OSError):
                raise EngineError(f"hyperqueue: submit: {error}") from None
            raise
        self._renewing = self._renewing or spawn(self._renew())
        return id_

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        return {}  # removing the output folders of these jobs ends their leases

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        known = await self._server.jobs(list(ids))
        reports = await asyncio.to_thread(lambda: {each: self._report(each, known.get(each)) for each in ids})
        for each, report in reports.items():
            if report.state.is_over:
                self._forget(each)
        self._renewing = self._renewing or spawn(self._renew())
        return reports

    async def cancel(self, ids: Collection[str]) -> None:
        waiting = await asyncio.to_thread(lambda: [each for each in ids if self._take_lease(each)])
        for each in ids:
            self._forget(each)
        if waiting and shutil.which("hq"):
            # The Python client cannot cancel jobs. If `hq` is missing, the jobs stay in the queue, and end when a
            # worker starts them.
            where = () if self._directory is None else ("--server-dir", str(self._directory))
            await run("hyperqueue", "hq", *where, "job", "cancel", ",".join(waiting), seconds=ANSWER)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.to_thread(self._leave)
        await self._server.close()

    def _prepare(self, folder: Path, job: Job, asked: HyperQueueRequest) -> None:
        folder.mkdir()
        shutil.copyfile(watcher.__file__, folder / "watcher.py")
        write_job(folder, job, self._renewal(), seconds=asked.time_limit, asks=str(asked))

    def _renewal(self) -> str:
        return f"{'keep' if self._lease is None else self._lease} {time.time():.0f}-{next(self._numbers)}\n"

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep((LEASE if self._lease is None else self._lease) / 4)
            for folder in list(self._folders.values()):
                with log_and_continue("renewing the lease of a job at HyperQueue"):
                    await asyncio.to_thread(_rewrite, folder / "lease", self._renewal())

    def _folder(self, id_: str) -> Path | None:
        folder = self._folders.get(id_) or self._over.get(id_)
        if folder is None:
            folder = self._places.read(id_)
            if folder is not None:  # a job of an earlier gateway, which this gateway has adopted
                self._folders[id_] = folder
                _rewrite(folder / "lease", self._renewal())
        return folder

    def _report(self, id_: str, known: Counts | None) -> JobReport:
        folder = self._folder(id_)
        job = read_json(folder / "job.json") if folder else None
        state = read_json(folder / "state.json") if folder else None
        if state is not None and state.get(watcher.ENDED) is not None:
            return how_it_ended(state)
        if known is None:
            return JobReport(JobState.LOST, "HyperQueue does not know this job")
        if known.failed:
            return JobReport(JobState.FAILED, known.error)
        if known.completed:
            return JobReport(JobState.ENDED if known.finished else JobState.CANCELLED)
        if folder is None:  # a new HyperQueue server starts again with id 1
            return JobReport(JobState.LOST, "HyperQueue has another job by this number")
        if job is None:
            return JobReport(JobState.WAITING, "HyperQueue only reports that it has not ended")
        held = (folder / "lease").exists()
        if state is None and not held:
            return JobReport(JobState.CANCELLED)
        if state is None:
            return JobReport(JobState.WAITING, f"waiting for a worker; it needs {job['asks']}")
        if self._is_silent(id_, folder):
            _unlink(folder / "lease")
            return JobReport(JobState.LOST, "its node gives no sign of life", state["host"])
        ends = None if job["seconds"] is None else state[watcher.STARTED] + job["seconds"]
        ending = state.get(watcher.ENDING) or ("" if held else ExitReason.CANCELLED)
        return JobReport(JobState.ENDING if ending else JobState.RUNNING, ending, state["host"], ends)

    def _is_silent(self, id_: str, folder: Path) -> bool:
        with contextlib.suppress(OSError):
            beat = (folder / "state.json").stat().st_mtime
            seen, since = self._beats.get(id_, (None, 0.0))
            if seen != beat:
                self._beats[id_] = (beat, time.monotonic())
                return False
            return time.monotonic() - since > max(self._lease or LEASE, 3 * watcher.BEAT)
        return False

    def _take_lease(self, id_: str) -> bool:
        """Remove the job's lease. Return True if the job has not started."""
        folder = self._folder(id_)
        if folder is None:
            return False
        _unlink(folder / "lease")
        return not (folder / "state.json").exists()

    def _forget(self, id_: str) -> None:
        """Stop renewing the job's lease, but keep the folder for later queries."""
        self._beats.pop(id_, None)
        folder = self._folders.pop(id_, None)
        if folder is not None:
            self._over[id_] = folder
        if len(self._over) > KEPT:
            id_ = next(iter(self._over))
            spawn(asyncio.to_thread(self._delete, id_, self._over.pop(id_)))

    def _delete(self, id_: str, folder: Path) -> None:
        """Delete the folder of a job, unless its watcher still runs or has not yet noticed that the lease is gone."""
        state = read_json(folder / "state.json")
        if not folder.exists() or (state is not None and state.get(watcher.ENDED) is not None):
            shutil.rmtree(folder, ignore_errors=True)
            self._places.delete(id_)

    def _leave(self) -> None:
        for id_, folder in self._over.items():
            self._delete(id_, folder)


class _Places:
    """The job folders by id, for a restarted gateway that knows only ids.

    The entries are stored in the folder of the HyperQueue server's current run, because a new server starts again with
    id 1. A job whose folder is not below `state` belongs to another gateway."""

    def __init__(self, directory: Path, state: Path) -> None:
        self._run = directory / "hq-current"
        self._state = state

    def _path(self, id_: str) -> Path:
        return self._run.resolve() / "modelglot" / id_

    def write(self, id_: str, folder: Path) -> None:
        path = self._path(id_)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(folder.absolute()), "utf-8")

    def read(self, id_: str) -> Path | None:
        if not id_.isdigit():
            return None
        try:
            folder = Path(self._path(id_).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return folder if folder.is_relative_to(self._state) else None

    def delete(self, id_: str) -> None:
        _unlink(self._path(id_))


def _start_watcher(folder: Path) -> list[str]:
    """Return the command that starts the watcher with this process's Python if the node has it, and otherwise with the
    node's own Python."""
    start_ = 'python=$1; shift; [ -x "$python" ] || python=python3; exec "$python" -I -S "$@"'
    return ["/bin/sh", "-c", start_, "watcher", sys.executable, str(folder / "watcher.py"), str(folder)]


def _rewrite(path: Path, text: str) -> None:
    """Write a file only if it already exists, so a removed lease stays removed."""
    with contextlib.suppress(OSError), path.open("r+", encoding="utf-8") as file:
        file.write(text)
        file.truncate()


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
