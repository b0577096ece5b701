"""Represents one server that a fleet has started, with its job and the job's output, and logs lines about the server.

    starting -> serving -> draining -> ending
        |          |                     ^
        +----------+---------------------+

In any phase, the server leaves the fleet when the engine reports that its job has ended.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from time import time

from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.servers.consumer import Use
from gateway.servers.engine import JobReport, JobState

log = logging.getLogger("gateway.servers.fleet")
_lines = LogLimit(log, lines=60)


def tell(backend: str, level: int, text: str, *values: object) -> None:
    """Log a line about the servers of `backend`. `text` is a format string for the backend's name and `values`."""
    _lines.write(backend, level, text, backend, *values)


SHOWN = 2000
"""The number of bytes at the end of the output that errors and log lines quote."""
READ = 16384
"""The maximum number of bytes to read for the log at a time."""


class JobOutput:
    """The standard output and standard error of one job, in the file `path`. The methods do not raise errors. If the
    file does not exist, the output is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        """The number of bytes that `new_lines` has returned."""

    def end(self) -> str:
        """Return the last lines, without control characters."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - SHOWN, 0))
                data = file.read(SHOWN)
        except OSError:
            return ""
        if size > SHOWN:
            data = data.partition(b"\n")[2] or data
        text = data.decode("utf-8", "replace").strip()
        return "".join(each if each.isprintable() or each in "\n\t" else " " for each in text)

    def new_lines(self) -> Iterator[str]:
        """Yield the complete new lines since the last call."""
        try:
            size = self.path.stat().st_size
            start = self._read if self._read <= size else 0  # the file starts again when it is full
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read(READ)
        except OSError:
            return
        whole, end, _ = data.rpartition(b"\n")
        if not end and len(data) == READ:
            whole = data
        self._read = start + len(whole) + len(end)
        yield from whole.decode("utf-8", "replace").splitlines()


class ServerPhase(Enum):
    """The phase of a server."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    """The server receives no new calls; calls in flight finish."""
    ENDING = "ending"
    """The gateway or the engine is stopping the server's job."""


@frozen
class JobFailure:
    """The reason why a job ended. `detail` is the end of the job's output, which can contain paths or secrets."""

    text: str
    detail: str = ""


@frozen
class ServerReport:
    """A report on a server, for operators."""

    name: str
    id: str
    """The engine's id for the job; empty before the engine has accepted the job."""
    phase: str
    state: str
    """The state of the job in the engine's report."""
    reason: str
    address: str
    since: float
    """The time at which the job was submitted, in seconds since 1970."""
    calls: int


class StartedServer:
    """One server and its job. `began` is the time at which the job was submitted, on the fleet's clock; `submitted` is
    the same time in seconds since 1970."""

    def __init__(self, name: str, folder: Path, port: int, began: float, submitted: float | None = None) -> None:
        self.name = name
        self.folder = folder
        """The folder for the server's announcement and output."""
        self.port = port
        self.began = began
        self.submitted = time() if submitted is None else submitted
        self.id = ""
        self.phase = ServerPhase.STARTING
        self.report = JobReport(JobState.WAITING)
        self.running_since: float | None = None
        """The time of the engine's first report of the job as running, in seconds since 1970."""
        self.address = ""
        self.use: Use | None = None
        self.unfinished = ""
        """An announced address whose line had no line end in the last check."""
        self.fault = ""
        """The fault in the server's announcement."""
        self.why = ""
        """The reason for draining or stopping the server."""
        self.output = JobOutput(folder / "output")
        self.failure: JobFailure | None = None
        """The reason why the server's job has ended, if the job ended by itself."""
        self.over = asyncio.Event()

    @property
    def label(self) -> str:
        """The name of the job in errors and log lines."""
        return f"job {self.name} ({self.id})" if self.id else f"job {self.name}"

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight."""
        return self.use is None or self.use.is_idle

    @property
    def calls(self) -> int:
        """The number of calls to the server."""
        return 0 if self.use is None else self.use.calls

    @property
    def has_answered(self) -> bool:
        """True if the server has finished a call."""
        return self.use is not None and self.use.calls > self.use.in_flight

    def note(self, report: JobReport) -> None:
        """Record the engine's current report on the job."""
        if report.state is JobState.RUNNING and self.running_since is None:
            self.running_since = time()
        self.report = report

    def fails(self, text: str) -> JobFailure:
        """Record why the job ends or has ended, with the end of its output, and return this failure."""
        self.failure = JobFailure(text, self.output.end())
        return self.failure

    def shown(self) -> ServerReport:
        """Return the report for operators."""
        reason = self.report.reason or self.fault or self.why
        state = self.report.state.value
        return ServerReport(
            self.name, self.id, self.phase.value, state, reason, self.address, self.submitted, self.calls
        )
