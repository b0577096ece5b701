"""Runs jobs on HyperQueue, through its Python client.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gateway.core.surviving import log_and_continue
from gateway.core.tasks import outlived_by, spawn
from gateway.servers import watcher
from gateway.servers.commands import ended, run
from gateway.servers.engine import EngineError, Job, JobReport, JobState, RefusedError
from gateway.servers.settings import ServersSettings
from gateway.servers.watched import how_it_ended, read_json, write_job
from gateway.servers.watcher import ExitReason

POLL_SECONDS = 1.0
"""The polling interval for reports, in seconds."""
REQUIRES = "HyperQueue's Python client (pip install 'modelglot[hpc]')"

CLIENT = Path(watcher.__file__).with_name("hyperqueue_client.py")
LEASE = 60.0
"""The time after which a job ends if its gateway has died, in seconds."""
ANSWER = 30.0
"""Maximum time for one response from HyperQueue, in seconds."""
SCRIPT = 32 * 1024
"""The number of bytes at the beginning of a script that can contain directives, as in `hq submit`."""
MIB = 1 << 20


def is_installed() -> bool:
    return importlib.util.find_spec("hyperqueue") is not None


def start(settings: ServersSettings) -> "HyperQueueEngine":
    return HyperQueueEngine(settings.directory, lease=None if settings.keep else LEASE, state=settings.state)


# The request to HyperQueue


UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600}
UNITS |= {"hour": 3600, "d": 86400, "day": 86400}
UNITS |= {f"{unit}s": size for unit, size in UNITS.items() if len(unit) > 1 and unit != "ms"}
_TIME = re.compile(r"(\d+) *([a-z]+)")


def seconds(text: str) -> float:
    """Convert a time in HyperQueue's syntax, such as `1h 30min`, `01:30:00` or `10s`, to seconds. Raise ValueError for
    any other text."""
    if clock := re.fullmatch(r"(\d+):(\d\d):(\d\d)", text.strip()):
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    parts = _TIME.findall(text)
    if not parts or _TIME.sub("", text).strip() or any(unit not in UNITS for _, unit in parts):
        raise ValueError("a time such as `1h 30min`, `10s` or `01:30:00` expected")
    return float(sum(int(number) * UNITS[unit] for number, unit in parts))


def _amount(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _resource(text: str) -> dict[str, int | float | str]:
    name, _, amount = text.partition("=")
    if not amount:
        raise ValueError("NAME=AMOUNT expected")
    return {name: _amount(amount)}


OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--name": ("name", str),
    "--cpus": ("cpus", _amount),
    "--resource": ("resources", _resource),
    "--nodes": ("nodes", int),
    "--time-limit": ("time_limit", seconds),
    "--time-request": ("min_time", seconds),
    "--priority": ("priority", int),
}
"""The supported options of `hq submit`, with the key and the value of each in a request."""
IGNORED = {"--stdout", "--stderr", "--cwd", "--directives"}
"""Options that the gateway sets itself, because it must be able to find the output."""


def request(job: Job) -> dict[str, Any]:
    """Return the request for `job`, with the keys of `submit` in `hyperqueue_client`, and `time_limit` (seconds or
    None). The watcher enforces the time limit, because the Python client has no option for it. The job's options take
    precedence over its script, and the script takes precedence over the job's Resources.

    Raise RefusedError if the Python client does not support an option, because a server without the requested resources
    is useless."""
    wanted = job.resources
    resources = {"gpus/nvidia": wanted.gpus, "mem": None if wanted.memory is None else -(-wanted.memory // MIB)}
    asked = {
        "name": job.name,
        "cpus": 1 if wanted.cpus is None else wanted.cpus,
        "resources": {name: amount for name, amount in resources.items() if amount is not None},
        "nodes": 0,
        "min_time": None,
        "priority": 0,
        "time_limit": wanted.seconds,
    }
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
        text = f"hyperqueue: cannot read the job script {script}: {error.strerror}"
        raise RefusedError(f"{text}; check the path and its permissions") from None
    options: list[str] = []
    for line in itertools.takewhile(lambda each: not each or each.startswith("#"), map(str.strip, lines)):
        if line.startswith("#HQ "):
            try:
                options += shlex.split(line.removeprefix("#HQ "))
            except ValueError as error:
                raise RefusedError(f"hyperqueue: {script}: {line}: {error}") from None
    return options


def _apply(asked: dict[str, Any], options: Sequence[str], place: str) -> None:
    words = iter(options)
    for word in words:
        option, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if option in IGNORED:
            continue
        if option not in OPTIONS:
            text = f"{option} is not supported; supported are {', '.join(OPTIONS)}"
            raise RefusedError(f"hyperqueue: {place}: {text}")
        key, read = OPTIONS[option]
        try:
            found = read(value)
        except ValueError as error:
            raise RefusedError(f"hyperqueue: {place}: {option}: {value!r}: {error}") from None
        asked[key] = {**asked[key], **found} if key == "resources" else found


# HyperQueue's server


class Counts(NamedTuple):
    """HyperQueue's counts for a job with one task."""

    completed: bool
    finished: int
    failed: int
    error: str


class PythonClient:
    """HyperQueue's Python client, in a separate process (`gateway.servers.hyperqueue_client`)."""

    def __init__(self, directory: Path | None) -> None:
        self._arguments = [] if directory is None else [str(directory)]
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def jobs(self, ids: Collection[str]) -> Mapping[str, Counts]:
        answer = await self.ask("jobs", ids=[int(each) for each in ids if each.isdigit()])
        return {each: Counts(*counts) for each, counts in answer.items()}

    async def ask(self, what: str, **rest: Any) -> Any:
        """Return the process's response to a query. Raise EngineError if the query fails."""
        # If the caller is cancelled, this process must still read the response from the pipe.
        return await outlived_by(spawn(self._exchange(what, rest)))

    async def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # this ends a query in progress
        async with self._turn:
            await self._end()

    async def _exchange(self, what: str, rest: Mapping[str, Any]) -> Any:
        async with self._turn:
            try:
                process = self._process = self._process or await self._start()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps({"ask": what, **rest}).encode() + b"\n")
                line = await asyncio.wait_for(process.stdout.readline(), ANSWER)
                if not line:
                    raise OSError("it ended")
            except TimeoutError:
                await self._end()
                raise EngineError(
                    f"hyperqueue: {what}: no answer within {ANSWER:g} s; check that the HyperQueue server runs"
                ) from None
            except (OSError, ValueError) as error:
                await self._end()
                raise EngineError(f"hyperqueue: {what}: the client's process: {error}") from None
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"hyperqueue: {what}: {' '.join(answer['error'].split())}")
        return answer["ok"]

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(CLIENT), *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "RUST_BACKTRACE": "0"},
            limit=16 * MIB,
            start_new_session=True,  # so Ctrl-C in the gateway's terminal does not stop the process
        )

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await ended(process)


# The engine


class HyperQueueEngine:
    """Runs jobs at one HyperQueue server. The server's folder identifies the server; the default is the folder that
    `hq` uses.

    The folder of HyperQueue's current run contains the path of each job's folder, by id, for a restarted gateway that
    has only ids. A new server starts again with id 1, in another folder. A job whose folder is not below `state`
    belongs to another gateway."""

    def __init__(self, directory: Path | None, *, lease: float | None = LEASE, state: Path = Path("/")) -> None:
        """Create the engine. `lease` is the time in seconds after which jobs end if their gateway has died, or None if
        jobs continue. `state` is the parent folder of all job folders. Raise RefusedError if the Python client is not
        installed."""
        if not is_installed():
            raise RefusedError(f"hyperqueue: it needs {REQUIRES}, which is not there")
        if directory is None and (named := os.environ.get("HQ_SERVER_DIR")):
            directory = Path(named)
        self._directory = directory
        self._lease = lease
        self._state = state.absolute()
        self._server = PythonClient(directory)
        self._folders: dict[str, Path] = {}
        """The folder that engine and watcher share, for each job that has not ended."""
        self._beats: dict[str, tuple[float, float]] = {}
        """The modification time of each job's state file, and when the engine first saw this time."""
        self._renewing: asyncio.Task[None] | None = None

    async def submit(self, job: Job) -> str:
        asked = await asyncio.to_thread(request, job)
        folder = job.output.parent / f"hyperqueue-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(self._prepare, folder, job, asked)
            id_: str = await self._server.ask(
                "submit",
                args=_start_watcher(folder),
                cwd=str(job.folder),
                env=dict(job.environment),
                stderr=str(job.output),
                **asked,
            )
            self._folders[id_] = folder
            await asyncio.to_thread(self._note, id_, folder)
        except BaseException as error:
            # Even if the job was submitted, it does not run without its lease.
            _unlink(folder / "lease")
            if isinstance(error, OSError):
                raise EngineError(f"hyperqueue: submit: {error}") from None
            raise
        self._renewing = self._renewing or spawn(self._renew())
        return id_

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        return {}  # removing the output folders of these jobs ends their leases

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        known = await self._server.jobs(ids)
        self._renewing = self._renewing or spawn(self._renew())
        return await asyncio.to_thread(lambda: {each: self._report(each, known.get(each)) for each in ids})

    async def cancel(self, ids: Collection[str]) -> None:
        waiting = await asyncio.to_thread(lambda: [each for each in ids if self._take_lease(each)])
        if waiting and shutil.which("hq"):
            # The Python client cannot cancel jobs. If `hq` is missing, the jobs stay in the queue until a worker starts
            # them, and then end.
            where = () if self._directory is None else ("--server-dir", str(self._directory))
            await run("hyperqueue", "hq", *where, "job", "cancel", ",".join(waiting), seconds=ANSWER)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await self._server.close()

    def _prepare(self, folder: Path, job: Job, asked: Mapping[str, Any]) -> None:
        amounts = [("cpus", asked["cpus"]), *asked["resources"].items()]
        if asked["nodes"]:
            amounts = [("nodes", asked["nodes"])]
        asks = ", ".join(f"{name}={amount}" for name, amount in amounts)
        folder.mkdir()
        shutil.copyfile(watcher.__file__, folder / "watcher.py")
        write_job(folder, job, self._renewal(), seconds=asked["time_limit"], asks=asks)

    def _renewal(self) -> str:
        return f"{'keep' if self._lease is None else self._lease} {time.time_ns()}\n"

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep((LEASE if self._lease is None else self._lease) / 4)
            for folder in list(self._folders.values()):
                with log_and_continue("renewing the leases of jobs at HyperQueue"):
                    await asyncio.to_thread(_rewrite, folder / "lease", self._renewal())

    def _place(self, id_: str) -> Path:
        return ((self._directory or Path.home() / ".hq-server") / "hq-current").resolve() / "modelglot" / id_

    def _note(self, id_: str, folder: Path) -> None:
        place = self._place(id_)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(folder.absolute()), "utf-8")

    def _folder(self, id_: str) -> Path | None:
        if id_ not in self._folders and id_.isdigit():
            with contextlib.suppress(OSError, ValueError):
                folder = Path(self._place(id_).read_text("utf-8"))
                if folder.is_relative_to(self._state):  # a job of an earlier gateway, which this gateway has adopted
                    self._folders[id_] = folder
                    _rewrite(folder / "lease", self._renewal())
        return self._folders.get(id_)

    def _report(self, id_: str, known: Counts | None) -> JobReport:
        folder = self._folder(id_)
        state: Any = read_json(folder / "state.json") if folder else None
        is_ended = bool(state) and state.get(watcher.ENDED) is not None
        report = how_it_ended(state) if is_ended else self._report_of_queue(id_, known, folder, state)
        if report.state.is_over and folder is not None:  # the engine never queries an ended job again
            self._folders.pop(id_, None)
            self._beats.pop(id_, None)
            _unlink(self._place(id_))
            if is_ended:  # otherwise, a watcher that still runs, or that HyperQueue starts later, needs the folder
                shutil.rmtree(folder, ignore_errors=True)
        return report

    def _report_of_queue(
        self, id_: str, known: Counts | None, folder: Path | None, state: Mapping[str, Any] | None
    ) -> JobReport:
        """Return the report on a job whose watcher has not reported its end."""
        if known is None:
            return JobReport(JobState.LOST, "HyperQueue does not know this job")
        if known.failed:
            return JobReport(JobState.FAILED, known.error)
        if known.completed:
            return JobReport(JobState.ENDED if known.finished else JobState.CANCELLED)
        if folder is None:  # a new HyperQueue server starts again with id 1
            return JobReport(JobState.LOST, "HyperQueue has another job by this number")
        job = read_json(folder / "job.json")
        if job is None:
            return JobReport(JobState.WAITING, "HyperQueue only reports that it has not ended")
        is_held = (folder / "lease").exists()
        if state is None and not is_held:
            return JobReport(JobState.CANCELLED)
        if state is None:
            return JobReport(JobState.WAITING, f"waiting for a worker; it needs {job['asks']}")
        if self._is_silent(id_, folder):
            _unlink(folder / "lease")
            return JobReport(JobState.LOST, "its node gives no sign of life", state["host"])
        ends = None if job["seconds"] is None else state[watcher.STARTED] + job["seconds"]
        ending = state.get(watcher.ENDING) or ("" if is_held else ExitReason.CANCELLED)
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


def _start_watcher(folder: Path) -> list[str]:
    """Return the command that starts the watcher with this process's Python if the node has it, or else with the node's
    own Python."""
    start_ = 'python=$1; shift; [ -x "$python" ] || python=python3; exec "$python" -I -S "$@"'
    return ["/bin/sh", "-c", start_, "watcher", sys.executable, str(folder / "watcher.py"), str(folder)]


def _rewrite(path: Path, text: str) -> None:
    """Write a file only if it already exists. A removed lease thus stays removed."""
    with contextlib.suppress(OSError), path.open("r+", encoding="utf-8") as file:
        file.write(text)
        file.truncate()


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
