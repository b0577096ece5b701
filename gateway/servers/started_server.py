"""One server that a fleet has started, and its job.

    starting -> serving -> draining -> ending
        |          |                     ^
        +----------+---------------------+

In any phase, the server leaves the fleet when the engine reports that its job has ended.
"""

import asyncio
from enum import Enum
from pathlib import Path
from time import time

from gateway.core.frozen import frozen
from gateway.servers.consumer import Use
from gateway.servers.engine import JobReport, JobState
from gateway.servers.job_output import JobOutput


class ServerPhase(Enum):
    """The phase of a server."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    """The server gets no new calls; calls in flight finish."""
    ENDING = "ending"
    """The server's job is being stopped."""


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
    """The engine's id; empty before the engine has accepted the job."""
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
        """The folder for its announcement and its output."""
        self.port = port
        self.began = began
        self.submitted = time() if submitted is None else submitted
        self.id = ""
        self.phase = ServerPhase.STARTING
        self.report = JobReport(JobState.WAITING)
        self.running_since: float | None = None
        """When the engine first reported it as running, in seconds since 1970."""
        self.address = ""
        self.use: Use | None = None
        self.unfinished = ""
        """An announced address whose line had no end in the last check."""
        self.fault = ""
        """The fault in its announcement."""
        self.why = ""
        """The reason why it is drained or stopped."""
        self.output = JobOutput(folder / "output")
        self.failure: JobFailure | None = None
        """The reason why its job has ended, if it ended by itself."""
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
        """Record why the job ends or has ended, with the end of its output."""
        self.failure = JobFailure(text, self.output.end())
        return self.failure

    def shown(self) -> ServerReport:
        """Return the report for operators."""
        reason = self.report.reason or self.fault or self.why
        state = self.report.state.value
        return ServerReport(
            self.name, self.id, self.phase.value, state, reason, self.address, self.submitted, self.calls
        )
