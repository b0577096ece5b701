"""Reads the output of a job from the file that the engine writes."""

import os
from collections.abc import Iterator
from pathlib import Path

SHOWN = 2000
"""The number of bytes at the end of the output that errors and log lines quote."""
READ = 16384
"""The maximum number of bytes that are read for the log at a time."""


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
