"""Defines the interface of an engine, which runs, monitors and stops jobs. A job is one model server. `jobs` calls the
engines in `engines`."""

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
    """The job receives no more calls, but some of its processes still exist."""
    ENDED = "ended"
    """The job's processes have exited with code 0."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    """The engine stopped the job at its time limit."""
    LOST = "lost"
    """The engine never had a record of the job, or no longer has one."""

    @property
    def is_over(self) -> bool:
        """True if the job has ended and will not run again."""
        return self not in (JobState.WAITING, JobState.RUNNING, JobState.ENDING)


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one job. None means that the engine or the job script sets the value."""

    cpus: int | None = None
    gpus: int | None = None
    memory: int | None = None
    """Memory, in bytes."""
    seconds: float | None = None
    """The walltime in seconds, after which the engine stops the job."""
    options: tuple[str, ...] = ()
    """Additional options in the engine's syntax, such as `--partition=gpu` for sbatch."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model server for an engine to run."""

    name: str
    """The name that operators see in the engine's job list."""
    command: tuple[str, ...]
    """A program with its arguments, or the absolute path of a job script."""
    is_script: bool
    """True if `command` is a job script. The engine should honor its `#SBATCH` or `#HQ` lines."""
    folder: Path
    """The working folder, which must exist and be visible to the nodes of a cluster."""
    output: Path
    """The file for the job's standard output and standard error, in a folder for this job only. The nodes must also see
    this folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the job receives in addition to the engine's variables."""
    resources: Resources = Resources()

    @property
    def program(self) -> tuple[str, ...]:
        """The program to run. For a script that is not executable, the program is bash, because batch systems also run
        such scripts."""
        return ("bash", *self.command) if self.is_script and not os.access(self.command[0], os.X_OK) else self.command


@dataclass(frozen=True, slots=True)
class JobReport:
    """The engine's report on a job."""

    state: JobState
    reason: str = ""
    """The reason for the state, in the engine's words, such as `Resources`, `NODE_FAIL` or `exit code 3`. The reason
    can be empty."""
    host: str | None = None
    """The machine on which the job runs; None if unknown."""
    ends: float | None = None
    """The time (in seconds since 1970) at which the engine will stop the job; None if the job has no time limit."""


class EngineError(Exception):
    """The engine is unreachable, or rejects a job. The message contains the engine's name, the request, and the
    engine's own message."""


class RefusedError(EngineError):
    """The engine rejects this kind of job. A retry is pointless until the script or the configuration changes."""


class Engine(Protocol):
    """Runs model servers as jobs: processes on this machine, or batch-system jobs. All methods can raise EngineError,
    and never block the event loop."""

    async def submit(self, job: Job) -> str:
        """Start `job`, immediately or when the engine has capacity, and return the engine's id for the job."""

    async def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Return a map from job names to job ids, for jobs whose submission was interrupted because the gateway
        stopped. An engine whose jobs end when their output folders are removed returns an empty map."""

    async def reports(self, ids: Collection[str]) -> Mapping[str, JobReport]:
        """Return a report for each id. The method sends one query to the engine."""

    async def cancel(self, ids: Collection[str]) -> None:
        """Stop these jobs with all their processes, and remove waiting jobs from the queue. Jobs that have already
        ended cause no error."""

    async def close(self) -> None:
        """Detach from the engine. If the engine can keep jobs, jobs that were not cancelled continue."""
