"""One server that a fleet has started, and its job.

    starting -> serving -> draining -> ending
        |          |                     ^
        +----------+---------------------+

It leaves the fleet from each of these when the engine says that its job is over.
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
    """The phase that a server is in."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    """It gets no new calls; those in flight end."""
    ENDING = "ending"
    """Its job is being ended."""


@frozen
class JobFailure:
    """Why a job has ended. `detail`: the end of its output, which may have paths or secrets in it."""

    text: str
    detail: str = ""


@frozen
class ServerReport:
    """A server, for operators."""

    name: str
    id: str
    """The engine's; empty before it has taken the job."""
    phase: str
    state: str
    """What the engine says of the job."""
    reason: str
    address: str
    since: float
    """Seconds since 1970 at which its job was submitted."""
    calls: int


class StartedServer:
    """One server and its job. `began`: when it was submitted, on the fleet's clock; `submitted`: the same in seconds
    since 1970."""

    def __init__(self, name: str, folder: Path, port: int, began: float, submitted: float | None = None) -> None:
        self.name = name
        self.folder = folder
        """Where it announces itself, and where its output is."""
        self.port = port
        self.began = began
        self.submitted = time() if submitted is None else submitted
        self.id = ""
        self.phase = ServerPhase.STARTING
        self.report = JobReport(JobState.WAITING)
        self.running_since: float | None = None
        """When the engine was first seen to run it, in seconds since 1970."""
        self.address = ""
        self.use: Use | None = None
        self.unfinished = ""
        """An announced address whose line had no end in the last turn."""
        self.fault = ""
        """What is wrong with its announcement."""
        self.why = ""
        """Why it is drained or ended."""
        self.output = JobOutput(folder / "output")
        self.failure: JobFailure | None = None
        """Why its job is over, if it ended by itself."""
        self.over = asyncio.Event()

    @property
    def label(self) -> str:
        """The name of its job in errors and log lines."""
        return f"job {self.name} ({self.id})" if self.id else f"job {self.name}"

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return self.use is None or self.use.is_idle

    @property
    def calls(self) -> int:
        """Calls that it has been given."""
        return 0 if self.use is None else self.use.calls

    @property
    def has_answered(self) -> bool:
        """Whether a call has ended at it."""
        return self.use is not None and self.use.calls > self.use.in_flight

    def note(self, report: JobReport) -> None:
        """Note what the engine says of its job now."""
        if report.state is JobState.RUNNING and self.running_since is None:
            self.running_since = time()
        self.report = report

    def fails(self, text: str) -> JobFailure:
        """Note why its job ends or has ended, with the end of its output."""
        self.failure = JobFailure(text, self.output.end())
        return self.failure

    def shown(self) -> ServerReport:
        """The report that operators see."""
        reason = self.report.reason or self.fault or self.why
        state = self.report.state.value
        return ServerReport(
            self.name, self.id, self.phase.value, state, reason, self.address, self.submitted, self.calls
        )
