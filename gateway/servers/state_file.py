"""The jobs that a gateway has submitted, in a file that the next gateway reads if this one is killed."""

import fcntl
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from gateway.servers.engine import EngineError


@dataclass(frozen=True, slots=True)
class SavedJob:
    """One job as the file has it."""

    name: str
    id: str
    """The engine's."""
    backend: str
    engine: str
    fits: str
    """What it was started from; a gateway that would start another thing does not adopt it."""
    port: int
    address: str
    """HOST:PORT; empty until the server has announced itself."""
    submitted: float
    """Seconds since 1970."""


class StateFile:
    """The file `jobs.json` in a folder that one gateway at a time uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.earlier: list[SavedJob] = []
        """Jobs of an earlier gateway that nobody has taken yet."""
        self._jobs: dict[str, SavedJob] = {}
        self._lock: IO[str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the folder is this gateway's."""
        return self._lock is not None

    def open(self) -> None:
        """Lock the folder and read what an earlier gateway has left.

        Raises:
            EngineError: another gateway uses the folder, or it cannot be written.
        """
        if self._lock is not None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise EngineError(f"the folder {self.folder} (servers.state) cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise EngineError(f"the folder {self.folder} (servers.state) is in use by another gateway") from error
        self._lock = lock
        self.earlier = self._read()
        self._jobs = {each.name: each for each in self.earlier}

    def _read(self) -> list[SavedJob]:
        try:
            return [SavedJob(**each) for each in json.loads((self.folder / "jobs.json").read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            # Written by rename only, so this is no half-written file: somebody else has changed it.
            raise EngineError(f"{self.folder / 'jobs.json'} cannot be read: {error}") from error

    def put(self, job: SavedJob) -> None:
        """Remember `job`, in place of what is known by its name."""
        self._jobs[job.name] = job
        self._write(self._jobs.values())

    def remove(self, name: str) -> None:
        """Forget a job that is over."""
        if self._jobs.pop(name, None) is not None:
            self._write(self._jobs.values())

    def _write(self, jobs: Collection[SavedJob]) -> None:
        if self._lock is None:
            return
        file = self.folder / "jobs.json"
        new = file.with_suffix(".new")
        with new.open("w") as opened:
            json.dump([asdict(each) for each in jobs], opened, indent=1)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)

    def close(self) -> None:
        """Leave the folder to others."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
