"""Runs a job, and stops it with all its processes on request.

The watcher is for engines that cannot stop jobs themselves: the engine `process`, and HyperQueue, whose Python client
cannot stop jobs. HyperQueue's nodes run a copy of this file, so it requires only Linux and Python 3.8. An engine starts
`python watcher.py FOLDER`, and communicates with the watcher through the folder, which contains:

- `job.json`: `command` (a list), `output` (the file for its output), `output_bytes` (the size at which this file starts
  again), `memory` (the maximum memory of each process in bytes, or null), `seconds` (the time limit, or null), `grace`
  (seconds between SIGTERM and SIGKILL), `stdin` (whether the job ends when the watcher's standard input ends).
- `lease`: the number of seconds within which the gateway must change this file (or `keep` if no change is needed), and
a text that changes. The job ends immediately if the lease is removed. If the lease is not renewed in time, the job
ends, because the gateway has probably died.
- `state.json`, which the watcher writes: `host`, `started`, `group` (the command's process group) and `began` (the
command's start time, in ticks since boot). While the watcher stops the job, the file also contains `ending` (an
ExitReason), and after that, `ended` (seconds since 1970), `why` (an ExitReason), `exit_code` and `signal`. While the
job runs, the file's modification time changes every few seconds.

A job runs only once. If the engine starts the job again after its node has died, the job ends immediately, because the
gateway has already replaced it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STARTED = "started"
ENDING = "ending"
ENDED = "ended"


class ExitReason:
    """The reason why a job ended, as in `why`."""

    ITSELF = "it ended by itself"
    CANCELLED = "cancelled"
    ABANDONED = "the gateway that started it does not answer"
    TIME = "its time was over"
    ENGINE = "the engine ended it"
    AGAIN = "its worker was lost"
    NOT_STARTED = "its command failed to start"


CHECK = 0.5
"""The interval between two checks of the lease, in seconds."""
BEAT = 10.0
"""The interval between two updates of the modification time of `state.json`, in seconds."""
HURRY = 2.0
"""The time between SIGTERM and SIGKILL if the engine stops the job, in seconds. The time is short because the engine
does not wait long."""
TURN = 0.025
"""The interval between two checks of processes that should exit, in seconds."""
PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_CHILD_SUBREAPER = 36


class LeaseFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._changed = time.monotonic()

    def lost(self) -> str | None:
        """Return why the job must end, or None while the lease is valid. Only the time since the last observed change
        counts. Therefore, a file system error alone does not end the job, and the machines' clocks can differ."""
        try:
            text = self._path.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return ExitReason.CANCELLED
        except OSError:
            text = self._text
        now = time.monotonic()
        if text != self._text:
            self._text, self._changed = text, now
        try:
            seconds = float(text.split(maxsplit=1)[0])
        except (ValueError, IndexError):
            return None  # `keep`, or a file that the gateway is writing
        return ExitReason.ABANDONED if now - self._changed > seconds else None


def write_state(folder: Path, **state: Any) -> None:
    """Replace `state.json` atomically, to ensure that readers never see a partial file."""
    unfinished = folder / "state.new"
    try:
        unfinished.write_text(json.dumps(state), "utf-8")
        unfinished.replace(folder / "state.json")
    except OSError as error:
        print(f"watcher: cannot write {folder}/state.json: {error}", file=sys.stderr)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat (see proc(5)), starting with the third field, which is the state. The result
    is empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> str:
    """Return the start time of the process, in ticks since boot, which distinguishes processes with the same id. The
    result is empty if the process is gone."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def descendants() -> list[int]:
    """Return all descendants of this process. They include processes whose parents have exited, because this process is
    their subreaper."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        fields = _stat(int(entry)) if entry.isdecimal() else []
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    reached = [os.getpid()]
    while reached:
        below = children.get(reached.pop(), [])
        found += below
        reached += below
    return found


def signal_all(number: int) -> bool:
    """Send the signal to all descendants. Return whether any descendants exist."""
    left = descendants()
    for process in left:
        with contextlib.suppress(OSError):
            os.kill(process, number)
    return bool(left)


class BoundedOutput:
    """An output file that starts again from the beginning when it is full. FILE.1 keeps the previous content."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append `data`. If the disk is full, `data` is lost, but the job continues."""
        try:
            if self._file.tell() > self._limit:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except (OSError, ValueError):
            pass


class WatchedRun:
    """One run of a command, from its start until all its processes have exited."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Start the process. Raise OSError or SubprocessError if it does not start."""
        self._memory = job["memory"]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._output = BoundedOutput(Path(job["output"]), job["output_bytes"])
        self._process = subprocess.Popen(
            job["command"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=self._limit,
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.pipe: int | None = self._process.stdout.fileno()
        """The pipe for the job's output; None after the last process that could write to it has exited."""
        os.set_blocking(self.pipe, False)

    def _limit(self) -> None:
        """Set up the new process to end if this watcher is killed, and limit its memory."""
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if self._memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (self._memory,) * 2)

    def copy_output(self) -> None:
        """Copy the job's output to its file."""
        for _ in range(64):
            if self.pipe is None:
                return
            try:
                data = os.read(self.pipe, 65536)
            except BlockingIOError:
                return
            if not data:
                self.pipe = None
                return
            self._output.write(data)

    def reap(self) -> int | None:
        """Return the exit code of the command (negative for a signal), or None while the command runs."""
        code = self._process.poll()
        # only after the command has exited, because waitpid reaps every child and bypasses the command's Popen
        if code is not None:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        return code

    def end(self, grace: float) -> int | None:
        """Stop all processes: send SIGTERM once, and after `grace` seconds SIGKILL until they have ended. Return the
        command's exit code."""
        for number, again, limit in ((signal.SIGTERM, 0, grace), (signal.SIGKILL, signal.SIGKILL, 2 * grace)):
            until = time.monotonic() + limit
            alive = signal_all(number)
            while alive:
                time.sleep(TURN)
                self.copy_output()  # a job that cannot write might not end
                self.reap()
                if time.monotonic() > until:  # after SIGKILL: the process hangs in the kernel
                    break
                alive = signal_all(again)
        self.copy_output()
        return self.reap()


class JobWatcher:
    """Decides when the job of one folder ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lease = LeaseFile(folder / "lease")
        self._state: dict[str, Any] = {"host": socket.gethostname(), STARTED: None}
        self._told = False
        """True if the engine has signaled the watcher to stop."""

    def run(self) -> int:
        """Run the job. Return the exit code for the engine."""
        if (self._folder / "state.json").exists():
            return self._over(ExitReason.AGAIN, None)
        if self._lease.lost():
            return self._over(ExitReason.CANCELLED, None)
        read, write = os.pipe()
        for end in (read, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._tell)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        job = json.loads((self._folder / "job.json").read_text("utf-8"))
        try:
            run = WatchedRun(job)
        except (OSError, subprocess.SubprocessError) as error:
            return self._over(f"{ExitReason.NOT_STARTED}: {error}", None)
        self._state.update({STARTED: time.time(), "group": run.pid, "began": start_time(run.pid)})
        write_state(self._folder, **self._state)
        why = self._watch(run, job, read)
        write_state(self._folder, **self._state, **{ENDING: why})
        return self._over(why, run.end(min(HURRY, job["grace"]) if why == ExitReason.ENGINE else job["grace"]))

    def _tell(self, *_: object) -> None:
        self._told = True

    def _watch(self, run: WatchedRun, job: dict[str, Any], woken: int) -> str:
        """Wait until the job has ended or must end, and return the reason."""
        began = beat = time.monotonic()
        while True:
            sources = [woken, *([0] if job["stdin"] else []), *([] if run.pipe is None else [run.pipe])]
            ready, _, _ = select.select(sources, [], [], CHECK)
            if woken in ready:
                os.read(woken, 4096)
            run.copy_output()
            now = time.monotonic()
            if run.reap() is not None:
                return ExitReason.ITSELF
            lost = self._lease.lost()
            if lost is not None:
                return lost
            if self._told:
                return ExitReason.ENGINE
            if 0 in ready and not os.read(0, 4096):
                return ExitReason.ABANDONED
            if job["seconds"] is not None and now - began > job["seconds"]:
                return ExitReason.TIME
            if now - beat > BEAT:
                beat = now
                with contextlib.suppress(OSError):
                    os.utime(self._folder / "state.json")

    def _over(self, why: str, code: int | None) -> int:
        number = -code if code is not None and code < 0 else None
        exit_code = code if number is None else None
        over = {ENDED: time.time(), "why": why, "exit_code": exit_code, "signal": number}
        write_state(self._folder, **self._state, **over)
        if why == ExitReason.CANCELLED:
            return 0
        if why == ExitReason.ITSELF and code is not None:
            return code if code >= 0 else 128 - code
        return 1


if __name__ == "__main__":
    sys.exit(JobWatcher(Path(sys.argv[1])).run())
