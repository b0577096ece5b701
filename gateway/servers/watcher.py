"""Runs one job of the process engine: a program of its own, which only needs the standard library.

It starts the job's command in a session of its own, writes its output to a file of bounded size, ends all its processes
when it is told to (SIGTERM), when the job's time is over, when the command itself has ended, or when the gateway is
gone (its standard input ends), and writes down how the job ended.

    python watcher.py '{"command": [...], "output": FILE, "report": FILE, ...}'
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_CHILD_SUBREAPER = 36
TURN = 0.1
"""Seconds between two looks at processes that are to end."""


def start_time(pid: int) -> str:
    """When the process was started, in ticks since boot (proc(5), field 22), so that a number that is used again is not
    taken for it; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def descendants(pid: int) -> list[int]:
    """All processes below `pid`. Those whose parents have ended are here too, since it is a subreaper."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    found, level = [], [pid]
    while level:
        level = [each for each, parent in parents.items() if parent in level]
        found += level
    return found


class BoundedOutput:
    """A file that is begun anew when it is full; what was in it goes to FILE.1."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Add `data`; a full disk loses it and does not end the job."""
        try:
            if self._file.tell() > self._limit:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError:
            pass


class JobWatcher:
    """One job."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._grace: float = settings["grace"]
        self._report = Path(settings["report"])
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._why = ""
        """The state in which the job ends if it is not its command that ended it."""
        self._kill_at: float | None = None

    def run(self) -> None:
        """Run the job to its end."""
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        read, write = os.pipe()
        for end in (read, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: self._end("cancelled"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        output = BoundedOutput(Path(self._settings["output"]), self._settings["output_bytes"])
        try:
            child = subprocess.Popen(
                self._settings["command"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._limit,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._write({"state": "failed", "reason": f"the command cannot be run: {error}"})
            return
        self._write({"state": "running", "group": child.pid, "started": start_time(child.pid)})
        self._watch(child, output, read)
        self._kill_rest(child.pid)
        self._write(self._outcome(child.returncode))

    def _limit(self) -> None:
        """In the new process: it ends if this watcher is killed, and has no more memory than it may."""
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if self._settings["memory"] is not None:
            resource.setrlimit(resource.RLIMIT_AS, (self._settings["memory"],) * 2)

    def _watch(self, child: "subprocess.Popen[bytes]", output: BoundedOutput, woken: int) -> None:
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        sources = [pipe, woken, *([] if self._settings["keep"] else [0])]
        seconds = self._settings["seconds"]
        ends_at = None if seconds is None else time.monotonic() + seconds
        while child.poll() is None:
            ready, _, _ = select.select(sources, [], [], self._pause(ends_at))
            if pipe in ready:
                data = os.read(pipe, 65536)
                output.write(data)
                if not data:
                    sources.remove(pipe)
            if 0 in ready and not os.read(0, 4096):
                sources.remove(0)
                self._end("cancelled")
            if woken in ready:
                os.read(woken, 4096)
            if ends_at is not None and time.monotonic() >= ends_at:
                self._end("timed out")
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
        os.set_blocking(pipe, False)
        for _ in range(64):  # what its other processes write after it is not waited for
            try:
                data = os.read(pipe, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            output.write(data)

    def _pause(self, ends_at: float | None) -> float | None:
        if self._kill_at is not None:
            return TURN
        return None if ends_at is None else max(ends_at - time.monotonic(), 0.0)

    def _end(self, why: str) -> None:
        """Tell all processes to end, and kill them after the grace time."""
        if not self._why:
            self._why = why
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, number)
            except OSError:
                continue

    def _kill_rest(self, main: int) -> None:
        """End the processes that the command has left, until there is none."""
        number: int = signal.SIGTERM
        kill_at = self._kill_at or time.monotonic() + self._grace
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            if time.monotonic() >= kill_at:
                number = signal.SIGKILL
            self._signal(number)
            time.sleep(TURN / 4)

    def _outcome(self, code: int) -> dict[str, Any]:
        if self._why:
            return {"state": self._why, "reason": ""}
        if code == 0:
            return {"state": "ended", "reason": "exit code 0"}
        if code > 0:
            return {"state": "failed", "reason": f"exit code {code}"}
        return {"state": "failed", "reason": f"ended by {signal.Signals(-code).name}"}

    def _write(self, report: dict[str, Any]) -> None:
        new = self._report.with_suffix(".new")
        new.write_text(json.dumps(report))
        new.replace(self._report)


if __name__ == "__main__":
    own = f"{os.getpid()}-{start_time(os.getpid())}"
    given = json.loads(sys.argv[1])
    os.environ["HQ_JOB_ID"] = own  # UM-Bridge's job scripts name their file by it
    given["report"] = given["report"].replace("{id}", own)
    JobWatcher(given).run()
