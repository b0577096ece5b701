"""Reads cassette files line by line, and appends to them."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from gateway.assembly.server_info import INFO
from gateway.tools.cassettes.entries import CassetteError, Entry, check_header, entry_line, header_line, read_entry

LONGEST_LINE = 2**30
"""Maximum length of a line in the file, in bytes."""
LARGEST_ENTRY = 2**28
"""Maximum size of a recorded entry, including its tensors and messages, in bytes. Encoded in base64, an entry of this
size is shorter than LONGEST_LINE."""
_LONGEST_HEADER = 2**16


def read(path: Path, on_cut: Callable[[str], None] = lambda text: None) -> Iterator[tuple[int, Entry]]:
    """Yield each entry of a recording with its line number. If the last line does not end with a newline, the recording
    was interrupted. The function skips this incomplete line, and reports it to `on_cut`.

    Raises:
        CassetteError: the file is unreadable or is not a recording, or a line is malformed (the message contains the
            file and the line).
    """
    number = 1
    try:
        with path.open("rb") as file:
            check_header(file.readline(_LONGEST_HEADER))
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise CassetteError(f"the line is longer than {LONGEST_LINE} bytes")
                if not line.endswith(b"\n"):
                    on_cut(f"{path}:{number}: the last line is incomplete, so it is left out")
                    return
                yield number, read_entry(line)
    except OSError as error:
        raise CassetteError(f"{path}: {error.strerror}") from error
    except CassetteError as error:
        raise CassetteError(f"{path}:{number}: {error}") from None


class CassetteFile:
    """A file of recorded requests and responses, to which new entries are appended. Only the owner can read a new file,
    because it contains client data. If the disk is full, the class removes the incomplete entry at the end of the file.

    Raises:
        CassetteError: the file cannot be opened, or exists and is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
            try:
                self.size = self._whole_lines()
                if not self.size:
                    self._write(header_line(f"{INFO.name} {INFO.version}"))
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise CassetteError(f"{path}: {error.strerror}") from error

    def _whole_lines(self) -> int:
        """Move to the end of the last complete line, and truncate the file there. Return the remaining size, in
        bytes."""
        if not self._file.seek(0, os.SEEK_END):
            return 0
        self._file.seek(0)
        try:
            check_header(self._file.read(_LONGEST_HEADER).partition(b"\n")[0])
        except CassetteError as error:
            raise CassetteError(f"{self.path}:1: {error}") from None
        end = self._file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _LONGEST_HEADER)
            self._file.seek(start)
            found = self._file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        self._file.truncate(end)
        return self._file.seek(end)

    def append(self, entry: Entry, most: int) -> bool:
        """Write an entry, and return True. If the file would exceed `most` bytes, write nothing, and return False.

        Raises:
            OSError: writing fails.
            TypeError: as in `entry_line`.
        """
        line = entry_line(entry)
        if self.size + len(line) > most:
            return False
        self._write(line)
        return True

    def _write(self, line: bytes) -> None:
        """Write a complete line after the existing lines, or nothing."""
        self._file.seek(self.size)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            with suppress(OSError):  # the next line overwrites the rest; a reader ignores it
                self._file.truncate(self.size)
            raise
        self.size += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
