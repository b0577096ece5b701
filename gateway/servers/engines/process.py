"""Runs model servers as processes of this machine. Each has a watcher (`gateway.servers.watcher`), which ends with the
gateway unless the jobs are kept, and ends the server's processes with itself.

The id of a job is the process number of its watcher and the time at which that was started.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

from gateway.servers import watcher
from gateway.servers.engine import Engine, EngineError, Job, JobReport, JobState
from gateway.servers.settings import ServersSettings

REQUIRES = ""
POLL_SECONDS = 0.25
"""Seconds between two questions for reports."""
SUPPORTS = frozenset({"memory", "seconds"})
"""The keys of `resources` that it knows."""

GRACE = 5.0
"""Seconds that a job's processes have to end before they are killed."""
OUTPUT_BYTES = 2**20
"""The size at which the file with a job's output is begun anew."""
HOST = "127.0.0.1"


def is_installed() -> bool:
    """It needs nothing."""
    return True


def start(settings: ServersSettings) -> Engine:
    """The engine for one backend."""
    return ProcessEngine(settings.state / "processes", keep=settings.keep)


class ProcessEngine:
    """Runs jobs on this machine. In `folder` each watcher writes what becomes of its job."""

    def __init__(self, folder: Path, *, keep: bool = False, grace: float = GRACE) -> None:
        self._folder = folder
        self._keep = keep
        self._grace = grace
        self._watchers: dict[str, subprocess.Popen[bytes]] = {}
        self._ends: dict[str, float] = {}

    async def submit(self, job: Job) -> str:
        """Start the job."""
        try:
            return await asyncio.to_thread(self._start, job)
        except OSError as error:
            raise EngineError(f"process: the job {job.name} cannot be started: {error}") from error

    def _start(self, job: Job) -> str:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seconds = job.resources.seconds
        settings = {
            "command": list(job.program),
            "output": str(job.output),
            "output_bytes": OUTPUT_BYTES,
            "report": str(self._folder / "{id}.json"),
            "memory": job.resources.memory,
            "seconds": seconds,
            "grace": self._grace,
            "keep": self._keep,
        }
        command = [sys.executable, "-I", "-S", watcher.__file__, json.dumps(settings)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if self._keep else subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=job.folder,
            env={**os.environ, **job.environment},
            start_new_session=True,
        )
        found = f"{process.pid}-{watcher.start_time(process.pid)}"
        self._watchers[found] = process
        if seconds is not None:
            self._ends[found] = time() + seconds
        return found

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        """None."""
        return {}

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        """What the watchers have written."""
        return {each: self._report(each) for each in ids}

    def _report(self, job: str) -> JobReport:
        is_alive = self._is_alive(job)
        written = self._written(job)  # after the look at the process: it writes before it ends
        if not is_alive:
            self._watchers.pop(job, None)
            self._ends.pop(job, None)
            (self._folder / f"{job}.json").unlink(missing_ok=True)  # a job that is over is not asked for again
            if written.get("state", "running") == "running":
                self._end_group(written)
                return JobReport(JobState.LOST, "its watcher was killed" if written else "")
            return JobReport(JobState(written["state"]), written["reason"])
        if not self._keep and job not in self._watchers:
            return JobReport(JobState.CANCELLED, "it ends with the gateway that started it")
        return JobReport(JobState.RUNNING, host=HOST, ends=self._ends.get(job))

    def _is_alive(self, job: str) -> bool:
        if (process := self._watchers.get(job)) is not None and process.poll() is not None:
            if process.stdin is not None:
                process.stdin.close()
            return False
        pid, _, began = job.partition("-")
        return pid.isdecimal() and began != "" and watcher.start_time(int(pid)) == began

    def _written(self, job: str) -> dict[str, Any]:
        try:
            found = json.loads((self._folder / f"{job}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _end_group(self, written: Mapping[str, Any]) -> None:
        """End the processes of a job whose watcher was killed. Its command has ended with it."""
        group = written.get("group")
        if isinstance(group, int) and group > 1:
            began = watcher.start_time(group)
            if began in ("", written.get("started")):
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)

    async def cancel(self, ids: Collection[str]) -> None:
        """End the jobs, those at once that do not end in time."""
        await asyncio.gather(*(self._cancel(each) for each in ids))

    async def _cancel(self, job: str) -> None:
        for number, seconds in ((signal.SIGTERM, self._grace + 2.0), (signal.SIGKILL, 2.0)):
            if not self._is_alive(job):
                break
            pid = int(job.partition("-")[0])
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                await _ended(pid, seconds)
        self._report(job)

    async def close(self) -> None:
        """Leave the jobs: those that are not kept end, since their watchers see that the gateway is gone."""
        for process in self._watchers.values():
            if process.stdin is not None:
                process.stdin.close()
            process.returncode = process.poll() or 0  # no warning that it still runs: it is meant to
        self._watchers.clear()


async def _ended(pid: int, seconds: float) -> None:
    """Return when the process has ended, or after so many seconds."""
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
