"""Detect changes of a configuration's files by polling. `gateway.cli.reloading` uses it for reloads.

The check follows symbolic links: Kubernetes changes the files of a ConfigMap or Secret by replacing a link to their
folder (`..data`), which causes no notification about the file itself.
"""

import os
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import TypeAlias

from gateway.config.document import MAX_BYTES
from gateway.config.scalars import named_files

Stamp: TypeAlias = tuple[str, int, int, int] | None
"""The state of a file: its real path, inode, modification time in nanoseconds, and size. None if the file does not
exist."""
Look: TypeAlias = Mapping[Path, Stamp]


def look(files: Iterable[Path]) -> Look:
    """Return the current state of each file."""
    return {path: _stamp(path) for path in files}


def look_at_all(config: Path) -> Look:
    """Return the state of a configuration file, and of the files that it references with `${file:PATH}`."""
    found = {config: _stamp(config)}  # taken before the file is read, so the next check sees a change in between
    try:
        with config.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    return {**look(named_files(text)), **found}


def _stamp(path: Path) -> Stamp:
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None
    return real, found.st_ino, found.st_mtime_ns, found.st_size


class Watched:
    """Compares file states. A change counts only when two consecutive states are equal, so an incomplete file is not
    loaded."""

    def __init__(self, loaded: Look) -> None:
        self._loaded = self._last = loaded

    @property
    def files(self) -> Set[Path]:
        """The files to check."""
        return self._loaded.keys()

    def loaded(self, found: Look) -> None:
        """Store the state of the files directly before they were loaded, even if they were invalid."""
        self._loaded = self._last = found

    def has_changed(self, found: Look) -> bool:
        """Return True if the files have changed since the last load, but not since the previous check."""
        is_settled, self._last = found == self._last, found
        return is_settled and found != self._loaded

    def differs(self, found: Look) -> bool:
        """Return True if the files have changed since the last load, even if they are still changing."""
        return found != self._loaded
