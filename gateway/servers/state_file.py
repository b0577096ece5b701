"""Reads and writes a file with the jobs that a gateway has submitted. If the gateway is killed, the next gateway finds
the jobs in the file.

Even if the file is damaged or incomplete, every job remains known, because each job has a folder with its name. If a
job has only a folder, its id is unknown, and the gateway stops the job.

A separate thread writes the file and removes folders, sequentially. Both can take long, because the folder is often on
a network file system that the cluster nodes share.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import IO, Any

from gateway.servers.engine import EngineError

if sys.platform != "win32":  # the gateway starts no servers on Windows
    import fcntl

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*-[0-9a-f]{8}")
"""The pattern of job names. The gateway rejects other names, because it removes folders with the names of jobs."""


def name_for(backend: str, number: str) -> str:
    """Return the name of a job, which is valid in file names and job names. `number` consists of eight hexadecimal
    digits."""
    return f"{_prefix(backend)}-{number}"


def _prefix(backend: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", backend).lstrip(".-")[:40] or "backend"


@dataclass(frozen=True, slots=True)
class SavedJob:
    """One job in the file."""

    name: str
    id: str = ""
    """The engine's id for the job; empty until the engine has accepted the job."""
    backend: str = ""
    engine: str = ""
    directory: str = ""
    """The folder of the engine's server; empty for the default."""
    fits: str = ""
    """The fingerprint of the job's settings. A gateway with other settings does not adopt the job."""
    port: int = 0
    address: str = ""
    """The server's address (HOST:PORT); empty until the server has announced it."""
    submitted: float = 0.0
    """The time of submission, in seconds since 1970."""


class StateFile:
    """The file `jobs.json` in a folder that only one gateway uses at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._users: set[str] = set()
        self._earlier: dict[str, SavedJob] = {}
        self._jobs: Mapping[str, SavedJob] = {}
        """The jobs to save. Each change replaces the entire map, so the thread always reads a consistent state."""
        self._written: Mapping[str, SavedJob] = self._jobs
        """The jobs in the file."""
        self._is_failing = False
        """True if the last attempt to write the file failed."""
        self._thread = ThreadPoolExecutor(1, "state-file")
        self._writing: Future[None] | None = None
        self._lock: IO[str] | None = None
        self._opening = Lock()

    def used_by(self, backend: str) -> None:
        """Register a backend with jobs in this file. Call this method for all backends before you open the file."""
        self._users.add(backend)

    def job_folder(self, name: str) -> Path:
        """Return the folder of one job."""
        return self.folder / "jobs" / name

    def open(self) -> None:
        """Lock the folder and read the jobs that an earlier gateway left. Any thread can call this method, even
        repeatedly.

        Raises:
            EngineError: another gateway uses the folder, or the folder is not readable and writable.
        """
        with self._opening:
            if self._lock is None:
                lock = self._locked()
                try:
                    self._earlier = {each.name: each for each in self._left()}
                except BaseException:
                    lock.close()
                    raise
                self._jobs = self._written = dict(self._earlier)
                self._lock = lock

    def _locked(self) -> IO[str]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.folder / "lock").open("a")
        except OSError as error:
            text = f"the folder {self.folder} (servers.state) is unusable: {error.strerror}"
            raise EngineError(f"{text}; set `servers.state` to a folder that the gateway can write") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise EngineError(f"the folder {self.folder} (servers.state) is in use by another gateway") from error
        return lock

    def _left(self) -> list[SavedJob]:
        """Return the jobs in the file, and the jobs that have only a folder."""
        file = self.folder / "jobs.json"
        jobs: list[SavedJob] = []
        try:
            jobs = read(file.read_bytes())
        except FileNotFoundError:
            pass
        except ValueError as error:
            # The gateway replaces the file by renaming, so another program changed the file, or the disk is damaged.
            aside = file.with_suffix(".json.unreadable")
            self._move(file, aside)
            text = "%s is unusable (%s): the gateway keeps it as %s, and ends its jobs that have folders here"
            log.error(text, file, error, aside.name)
        except OSError as error:
            raise EngineError(f"{file} cannot be read: {error.strerror}") from error
        known = {each.name for each in jobs}
        return [*jobs, *(SavedJob(each) for each in self._names_of_folders() if each not in known)]

    def _move(self, file: Path, aside: Path) -> None:
        try:
            file.replace(aside)
        except OSError as error:
            raise EngineError(f"{file} cannot be used, nor moved away: {error.strerror}") from error

    def _names_of_folders(self) -> list[str]:
        try:
            return sorted(each.name for each in (self.folder / "jobs").iterdir() if _NAME.fullmatch(each.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EngineError(f"{self.folder / 'jobs'} cannot be read: {error.strerror}") from error

    def left_for(self, backend: str) -> list[SavedJob]:
        """Return the jobs of an earlier gateway that `backend` can adopt, which are the backend's own jobs and jobs of
        backends that no longer exist."""
        return [each for each in self._earlier.values() if self._is_for(backend, each)]

    def _is_for(self, backend: str, job: SavedJob) -> bool:
        if job.backend:
            return job.backend == backend or job.backend not in self._users
        owners = {each for each in self._users if job.name.rpartition("-")[0] == _prefix(each)}
        return backend in owners or not owners

    def take(self, jobs: Iterable[SavedJob]) -> list[SavedJob]:
        """Hand over these jobs of an earlier gateway to the caller, except jobs that another caller has already taken.
        The jobs stay in the file until the caller removes them with `remove`."""
        return [each for each in jobs if self._earlier.pop(each.name, None) is not None]

    async def add(self, job: SavedJob) -> None:
        """Save a job before its submission, and create its folder.

        Raises:
            OSError: the file or the folder is not writable. Do not submit the job.
        """
        self._jobs = {**self._jobs, job.name: job}
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write_with_folder, job.name)

    def change(self, job: SavedJob) -> None:
        """Save new data of a job. The thread writes the data soon. After an error, it repeats the write later."""
        self._jobs = {**self._jobs, job.name: job}
        self._writing = self._thread.submit(self._try_to_write)

    def remove(self, name: str) -> None:
        """Remove an ended job and its folder. The thread writes the file as in `change`."""
        self._jobs = {each: job for each, job in self._jobs.items() if each != name}
        self._writing = self._thread.submit(self._try_to_write)
        self._thread.submit(shutil.rmtree, self.job_folder(name), ignore_errors=True)

    def write_again(self) -> None:
        """Repeat a failed write."""
        if self._written is not self._jobs and (self._writing is None or self._writing.done()):
            self._writing = self._thread.submit(self._try_to_write)

    # In the thread

    def _write_with_folder(self, name: str) -> None:
        self.job_folder(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write()

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._is_failing:
                text = "writing %s failed (%s); the gateway tries again, and the jobs continue"
                log.warning(text, self.folder / "jobs.json", error.strerror)
            self._is_failing = True

    def _write(self) -> None:
        """Write the current jobs, unless the file already contains them."""
        jobs = self._jobs
        if self._lock is None or jobs is self._written:
            return
        file = self.folder / "jobs.json"
        new = file.with_suffix(".new")
        with new.open("w") as opened:
            json.dump([asdict(each) for each in jobs.values()], opened, indent=1)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        self._written, self._is_failing = jobs, False

    def close(self) -> None:
        """Wait for all writes, and release the folder. This method blocks."""
        if self._lock is not None:
            self.write_again()
        self._thread.shutdown()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read(content: bytes) -> list[SavedJob]:
    """Return the jobs in a file. Jobs that another version wrote can have missing or additional members.

    Raises:
        ValueError: the content is not a list of jobs.
    """
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, list):
        raise ValueError(f"a list of jobs expected, not {str(found)[:80]!r}")
    return [_job(each) for each in found]


def _job(entry: Any) -> SavedJob:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"a job with a name expected, not {str(entry)[:80]!r}")
    return SavedJob(name, **{each.name: entry[each.name] for each in fields(SavedJob)[1:] if _has(entry, each)})


def _has(entry: Any, member: Any) -> bool:
    value = entry.get(member.name)
    if member.type is float:
        return type(value) in (int, float) and isfinite(value)
    return type(value) is member.type
