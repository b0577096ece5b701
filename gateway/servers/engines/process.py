"""Runs model servers as processes on this machine. Every model server has a watcher (`gateway.servers.watcher`). The
server's processes end with the watcher, and the watcher ends with the gateway, unless jobs are kept.

A job id consists of the watcher's process id, the watcher's start time, and the name of the job's folder.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.servers import watcher
from gateway.servers.engine import Engine, EngineError, Job, JobReport, JobState
from gateway.servers.settings import ServersSettings
from gateway.servers.watched import GRACE, how_it_ended, read_json, write_job

REQUIRES = ""
POLL_SECONDS = 0.25
"""The polling interval for reports, in seconds."""

HOST = "127.0.0.1"


def is_installed() -> bool:
    """Return True, because this engine requires no software."""
    return True


def start(settings: ServersSettings) -> Engine:
    """Return the engine for one backend."""
    return ProcessEngine(settings.state / "processes", keep=settings.keep)


class ProcessEngine:
    """Runs jobs as processes on this machine. `folder` contains a folder for each watcher."""

    def __init__(self, folder: Path, *, keep: bool = False, grace: float = GRACE) -> None:
        self._folder = folder
        self._keep = keep
        self._grace = grace
        self._watchers: dict[str, subprocess.Popen[bytes]] = {}

    async def submit(self, job: Job) -> str:
        """Start the job."""
        try:
            return await asyncio.to_thread(self._start, job)
        except OSError as error:
            raise EngineError(f"process: the job {job.name} failed to start: {error}") from error

    def _start(self, job: Job) -> str:
        name = secrets.token_hex(8)
        folder = self._folder / name
        folder.mkdir(parents=True, mode=0o700)
        more = {"name": job.name, "memory": job.resources.memory, "grace": self._grace, "stdin": not self._keep}
        try:
            write_job(folder, job, "keep\n", **more)
            process = self._watched(folder, job)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        found = f"{process.pid}-{watcher.start_time(process.pid)}-{name}"
        self._watchers[found] = process
        return found

    def _watched(self, folder: Path, job: Job) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, str(folder)],
            stdin=subprocess.DEVNULL if self._keep else subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=str(job.folder),  # an error shows it as it is
            # UM-Bridge's job scripts use HQ_JOB_ID in the names of their announcement files.
            env={**os.environ, "HQ_JOB_ID": folder.name, **job.environment},
            start_new_session=True,
        )

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Find the jobs through the command lines of their watchers."""
        return await asyncio.to_thread(self._find, names) if names else {}

    def _find(self, names: Collection[str]) -> dict[str, str]:
        found = {}
        for file in self._folder.glob("*/job.json"):
            name = str((read_json(file) or {}).get("name"))
            if name in names and (pid := _watcher_of(file.parent)) is not None:
                found[name] = f"{pid}-{watcher.start_time(pid)}-{file.parent.name}"
        return found

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        """Return the reports that the watchers have written."""
        return {each: self._report(each) for each in ids}

    def _report(self, job: str) -> JobReport:
        is_alive = self._is_alive(job)
        folder = self._folder_of(job)
        state = read_json(folder / "state.json") or {}  # read last, because the watcher writes the file before it ends
        if not is_alive:
            self._watchers.pop(job, None)
            shutil.rmtree(folder, ignore_errors=True)  # the engine never queries an ended job again
            if state.get(watcher.ENDED) is None:
                self._end_group(state)
                return JobReport(JobState.LOST, "its watcher was killed" if state else "")
            return how_it_ended(state)
        if not self._keep and job not in self._watchers:
            return JobReport(JobState.ENDING, "it ends with the gateway that started it", HOST)
        seconds = (read_json(folder / "job.json") or {}).get("seconds")
        ends = state[watcher.STARTED] + seconds if seconds is not None and state.get(watcher.STARTED) else None
        ending = state.get(watcher.ENDING, "")
        return JobReport(JobState.ENDING if ending else JobState.RUNNING, ending, HOST, ends)

    def _folder_of(self, job: str) -> Path:
        name = job.rpartition("-")[2]
        return self._folder / (name if name.isalnum() else "-")

    def _is_alive(self, job: str) -> bool:
        if (process := self._watchers.get(job)) is not None:
            if process.poll() is None:
                return True
            if process.stdin is not None:
                process.stdin.close()
            return False
        pid, _, rest = job.partition("-")
        began = rest.partition("-")[0]
        return pid.isdecimal() and began != "" and watcher.start_time(int(pid)) == began

    def _end_group(self, state: Mapping[str, Any]) -> None:
        """Kill the remaining processes of a job whose watcher was killed. The job's command itself has ended with the
        watcher."""
        group = state.get("group")
        if isinstance(group, int) and group > 1:
            began = watcher.start_time(group)
            if began in ("", state.get("began")):
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)

    async def cancel(self, ids: Collection[str]) -> None:
        """Stop the jobs, and kill jobs that do not stop in time."""
        await asyncio.gather(*(self._cancel(each) for each in ids))

    async def _cancel(self, job: str) -> None:
        (self._folder_of(job) / "lease").unlink(missing_ok=True)
        for number, seconds in ((signal.SIGTERM, self._grace + 2.0), (signal.SIGKILL, 2.0)):
            if not self._is_alive(job):
                break
            pid = int(job.partition("-")[0])
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                await _ended(pid, seconds)
        self._report(job)

    async def close(self) -> None:
        """Detach from the jobs. Jobs that are not kept end, because their watchers detect that the gateway is gone."""
        for process in self._watchers.values():
            if process.stdin is not None:
                process.stdin.close()
            process.returncode = process.poll() or 0  # avoids a warning about the process, which should continue to run
        self._watchers.clear()


def _watcher_of(folder: Path) -> int | None:
    """Return the process id of the watcher for the job in `folder`, or None if the job has no watcher."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().endswith(f"\0{folder}\0".encode()):
                return int(entry.name)
    return None


async def _ended(pid: int, seconds: float) -> None:
    """Return when the process has exited, or after `seconds` seconds."""
    descriptor = os.pidfd_open(pid)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
