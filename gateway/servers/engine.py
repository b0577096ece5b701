"""The interface of an engine, which runs jobs, tells what became of them, and ends them. A job is one model server."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol


class JobState(Enum):
    """The state of a job, as its engine reports it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "being ended"
    """It takes no more calls, and some of its processes are still there."""
    ENDED = "ended"
    """It ended by itself, with exit code 0."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    """The engine ended it, because its time was over."""
    LOST = "lost"
    """The engine does not know it (any more)."""

    @property
    def is_over(self) -> bool:
        """The job will not run (again)."""
        return self not in (JobState.WAITING, JobState.RUNNING, JobState.ENDING)


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one job, as far as the engine and its job script do not say it."""

    cpus: int | None = None
    gpus: int | None = None
    memory: int | None = None
    """Bytes."""
    seconds: float | None = None
    """The walltime: the engine ends the job then."""
    options: tuple[str, ...] = ()
    """Further options in the engine's own words, such as `--partition=gpu` for sbatch."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model server for an engine to run."""

    name: str
    """For people who look at the engine's list of jobs."""
    command: tuple[str, ...]
    """A program with its arguments; for a job script its absolute path alone."""
    is_script: bool
    """`command` is a job script, whose `#SBATCH` or `#HQ` lines the engine should respect."""
    folder: Path
    """The working folder, which exists; nodes of a cluster must see it too."""
    output: Path
    """The file for what the job prints, both streams, in a folder of the job's own, which nodes must see too."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the job gets beside those of the engine."""
    resources: Resources = Resources()

    @property
    def program(self) -> tuple[str, ...]:
        """The program to run: bash for a script that is not executable, which batch systems run all the same."""
        return ("bash", *self.command) if self.is_script and not os.access(self.command[0], os.X_OK) else self.command


@dataclass(frozen=True, slots=True)
class JobReport:
    """An engine's report on a job."""

    state: JobState
    reason: str = ""
    """Why, in the engine's own words (`Resources`, `NODE_FAIL`, `exit code 3`); empty if it says nothing."""
    host: str | None = None
    """The machine that it runs on; None if that is unknown."""
    ends: float | None = None
    """The time (seconds since 1970) at which the engine will end the job; None if it has no end."""


class EngineError(Exception):
    """The engine cannot be reached, or refuses a job; the text says which engine, what was asked and its own words."""


class RefusedError(EngineError):
    """The engine will not run such a job: asking again is no use before its script, or the configuration, changes."""


class Engine(Protocol):
    """Runs model servers as jobs: processes of this machine, or jobs of a batch system. All methods raise EngineError;
    none blocks the event loop."""

    async def submit(self, job: Job) -> str:
        """Start `job`, at once or when the engine has room. Returns the engine's own id of it."""

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        """The ids of jobs by their names, for those whose submission was cut off by the end of a gateway. An engine
        where such jobs end with the folder of their output finds none."""

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        """A report for each of the ids, in one question to the engine."""

    async def cancel(self, ids: Collection[str]) -> None:
        """End these jobs with all their processes, also those that wait. Jobs that are over are no error."""

    async def close(self) -> None:
        """Leave the engine. Jobs that were not cancelled go on where the engine can keep them."""
