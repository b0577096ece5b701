"""Runs a job on its node and ends it, with all its processes, when its lease goes.

For engines that cannot be told to end a job. The gateway copies this file beside the job's other files, which the node
sees too, and the engine starts it as `python watcher.py FOLDER`. It needs Linux and Python 3.8, and nothing else: nodes
need not have the gateway. In FOLDER are

- `job.json`: `command` (a list), `output` (the file for what it prints), `seconds` (its time, or null),
- `lease`: the seconds within which the gateway changes this file (or `keep`, if it need not), and anything that
  changes. A lease that is removed ends the job at once; one that is not renewed in time ends it because the gateway is
  dead.
- `state.json`, which the watcher writes: `host`, `started`, `ending` (a Why) while it ends the job, and when that is
  over `ended` (seconds since 1970), `why` (a Why), `exit_code` and `signal`. While the job runs, the file's time
  changes every few seconds.

A job runs once. If the engine starts it again after its node died, it ends at once: the gateway has replaced it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
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


class Why:
    """Why a job is over: the values of `why`."""

    ITSELF = "it ended by itself"
    CANCELLED = "cancelled"
    ABANDONED = "the gateway that started it does not answer"
    TIME = "its time was over"
    ENGINE = "the engine ended it"
    AGAIN = "its worker was lost"
    NOT_STARTED = "its command cannot be started"


CHECK = 0.5
"""Seconds between two looks at the lease."""
BEAT = 10.0
"""Seconds between two signs of life in the time of `state.json`."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
HURRY = 2.0
"""The same where the engine itself ends the job: it does not wait long."""
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PR_SET_CHILD_SUBREAPER = 36


class LeaseFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._changed = time.monotonic()

    def lost(self) -> str | None:
        """Why the job has to end; None while the lease holds. A file system that fails ends no job by itself: only
        the time since the last change that was seen counts, which needs no clocks that agree."""
        try:
            text = self._path.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return Why.CANCELLED
        except OSError:
            text = self._text
        now = time.monotonic()
        if text != self._text:
            self._text, self._changed = text, now
        try:
            seconds = float(text.split(maxsplit=1)[0])
        except (ValueError, IndexError):
            return None  # `keep`, or a file that is being written
        return Why.ABANDONED if now - self._changed > seconds else None


def write_state(folder: Path, **state: Any) -> None:
    """Replace `state.json` as a whole, so that nobody reads half of it."""
    unfinished = folder / "state.new"
    try:
        unfinished.write_text(json.dumps(state), "utf-8")
        unfinished.replace(folder / "state.json")
    except OSError as error:
        print(f"watcher: cannot write {folder}/state.json: {error}", file=sys.stderr)


def descendants() -> list[int]:
    """All processes below this one. As their subreaper it stays above those whose parents are gone."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    reached = [os.getpid()]
    while reached:
        below = children.get(reached.pop(), [])
        found += below
        reached += below
    return found


def signal_all(number: int) -> bool:
    """Whether there was a process left to signal."""
    left = descendants()
    for process in left:
        with contextlib.suppress(OSError):
            os.kill(process, number)
    return bool(left)


class WatchedRun:
    """One run of a command, from its start until none of its processes is left."""

    def __init__(self, command: list[str], output: str, mask: Any) -> None:
        with open(output, "ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            )

    def reap(self) -> int | None:
        """The exit code of the command (negative for a signal); None while it runs."""
        code = self._process.poll()
        if code is not None:  # only now: what it leaves behind is reaped without its Popen
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
        return code

    def end(self, grace: float) -> int | None:
        """End all processes. Returns the command's exit code."""
        until = time.monotonic() + grace
        signal_all(signal.SIGTERM)
        while signal_all(0):
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
            self.reap()
            if time.monotonic() > until:
                signal_all(signal.SIGKILL)
            if time.monotonic() > until + 2 * grace:
                break  # a process that SIGKILL does not end hangs in the kernel
        return self.reap()


def watch(folder: Path) -> int:
    """Run the job of `folder`. Returns the exit code for the engine."""
    lease = LeaseFile(folder / "lease")
    state: dict[str, Any] = {"host": socket.gethostname(), STARTED: None}

    def over(why: str, code: int | None) -> int:
        number = -code if code is not None and code < 0 else None
        exit_code = code if number is None else None
        write_state(folder, **state, ended=time.time(), why=why, exit_code=exit_code, signal=number)
        if why == Why.CANCELLED:
            return 0
        if why == Why.ITSELF and code is not None:
            return code if code >= 0 else 128 - code
        return 1

    if (folder / "state.json").exists():
        return over(Why.AGAIN, None)
    if lease.lost():
        return over(Why.CANCELLED, None)
    job = json.loads((folder / "job.json").read_text("utf-8"))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        run = WatchedRun(job["command"], job["output"], mask)
    except OSError as error:
        return over(f"{Why.NOT_STARTED}: {error}", None)
    state[STARTED] = time.time()
    write_state(folder, **state)
    began = beat = time.monotonic()
    why = None
    while why is None:
        came = signal.sigtimedwait(SIGNALS, CHECK)
        now = time.monotonic()
        if run.reap() is not None:
            why = Why.ITSELF
        elif came is not None and came.si_signo != signal.SIGCHLD:
            why = Why.ENGINE
        elif job["seconds"] is not None and now - began > job["seconds"]:
            why = Why.TIME
        else:
            why = lease.lost()
        if why is None and now - beat > BEAT:
            beat = now
            with contextlib.suppress(OSError):
                os.utime(folder / "state.json")
    write_state(folder, **state, **{ENDING: why})
    return over(why, run.end(HURRY if why == Why.ENGINE else GRACE))


if __name__ == "__main__":
    sys.exit(watch(Path(sys.argv[1])))
