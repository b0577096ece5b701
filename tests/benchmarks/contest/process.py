"""What a server's process takes: CPU and memory, with its threads and the processes that it started."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path


class Watched:
    """A process with its children as they are now: no server here starts any under load."""

    def __init__(self, pid: int) -> None:
        self._pids = family(pid)
        self._clocks = [_cpu_clock(each) for each in self._pids]

    def cpu(self) -> float:
        """Seconds, user and system, threads that have ended included."""
        return sum(map(time.clock_gettime, self._clocks))

    def forget_peak(self) -> None:
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """The most bytes of resident memory since `forget_peak`, each process's added."""
        return sum(_status(pid, "VmHWM") for pid in self._pids)


def family(pid: int) -> list[int]:
    """A process, its children, their children and so on."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _cpu_clock(pid: int) -> int:
    """/proc/PID/stat has the same, but ticks every 10 ms only."""
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(ctypes.c_int(pid), ctypes.byref(clock)):
        raise OSError(error, os.strerror(error))
    return clock.value


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) * 1024
