"""`discovery: {files: GLOB}`: files with one address a line, as UM-Bridge's servers on HPC systems write them.

The files are read again in every interval, whatever their times of modification say: on network file systems these are
cached, notifications of changes (inotify) do not arrive from other machines, and opening a file is what makes a client
of NFS ask its server.
"""

import asyncio
import errno
import glob
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.core.log_limit import LogLimit
from gateway.servers.discovery.source import CheckAddress, Found, LookupFailedError

log = logging.getLogger(__name__)
_lines = LogLimit(log)

MAX_BYTES = 64 * 2**10
"""The most bytes of one file."""
EMPTIED = "it is empty; its addresses from before are kept until it is removed, or has a line such as `# none`"
LONGEST_TEXT = 100
"""Characters of a bad line that are logged."""


class AddressFiles:
    """The addresses in the files that match `pattern`. Blank lines and lines that begin with `#` are left out.

    - A file that disappears takes its addresses with it. One that is there but cannot be read, or is empty, keeps them.
    - A file that got shorter at its end may still be written: what is missing is gone once it is so in two looks.
    - A last line without a newline may still be written: it counts once it is the same in two looks. (`echo` writes a
      whole line at once, but not every program does.)
    - A line that is no address, as `check` says, is logged once and left out.
    """

    def __init__(self, backend: str, pattern: str, interval: float, check: CheckAddress) -> None:
        self._backend = backend
        self._pattern = pattern
        self._check = check
        self._contents: dict[str, str] = {}
        """The contents that count, by path."""
        self._last: dict[str, str] = {}
        """The contents at the last look."""
        self._told: set[tuple[str, int, str]] = set()
        """The problems that were logged: file, line (0: the file itself), text."""
        self._reading: asyncio.Future[tuple[dict[str, str], dict[str, str]]] | None = None
        self.pause = interval
        self.description = f"files {pattern}"

    async def look(self) -> frozenset[Found]:
        """As in Source. The file system is asked in a thread, one at a time: it may hang."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().run_in_executor(None, read_files, self._pattern)
            self._reading.add_done_callback(self._read)
        try:
            contents, unreadable = await asyncio.shield(self._reading)
        except OSError as error:
            raise LookupFailedError(f"{error.filename}: {error.strerror}") from error
        problems = {(path, 0, why) for path, why in unreadable.items()}
        before, counting = self._contents, {path: self._counting(path, text) for path, text in contents.items()}
        problems |= {
            (path, 0, EMPTIED) for path, text in contents.items() if not text.strip() and counting[path] != text
        }
        self._contents = counting | {path: before[path] for path in unreadable if path in before}
        self._last = contents
        found = set()
        for path, text in sorted(self._contents.items()):
            for number, address in complete_lines(text, before.get(path)):
                try:
                    self._check(address)
                except ValueError as error:
                    problems.add((path, number, str(error)[: 3 * LONGEST_TEXT]))
                else:
                    found.add(Found(address))
        self._tell(problems)
        return frozenset(found)

    def _counting(self, path: str, text: str) -> str:
        """The content of a file that counts: that from before as long as it may still be written again."""
        before = self._contents.get(path)
        if before is None or not before.startswith(text):
            return text
        return text if text.strip() and self._last.get(path) == text else before

    def _read(self, reading: "asyncio.Future[tuple[dict[str, str], dict[str, str]]]") -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # nobody may wait for it any more

    def _tell(self, problems: set[tuple[str, int, str]]) -> None:
        """Log the problems that were not there in the last look."""
        for path, number, why in sorted(problems - self._told):
            place = f"{path}:{number}" if number else path
            _lines.write(path, logging.WARNING, "backend %r: %s is skipped: %s", self._backend, place, why)
        self._told = problems


def read_files(pattern: str) -> tuple[dict[str, str], dict[str, str]]:
    """The contents of the files that match `pattern`, and why some could not be read, both by path.

    Raises:
        OSError: the directory cannot be read. (The files are not gone, but nobody knows.)
    """
    contents: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    os.scandir(fixed_directory(pattern)).close()
    for path in glob.iglob(pattern, recursive=True):
        try:
            contents[path] = _content(path)
        except FileNotFoundError:
            pass  # it has gone since the directory was read
        except OSError as error:
            unreadable[path] = error.strerror or str(error)
    return contents, unreadable


def fixed_directory(pattern: str) -> Path:
    """The directory in which a pattern's first wildcard, or its file, is looked for."""
    parts = Path(pattern).parts
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def complete_lines(text: str, before: str | None) -> Iterator[tuple[int, str]]:
    """The addresses in a file with the content `text`, each with the number of its line. `before` is its content at the
    last look; None if it was not there."""
    lines = text.split("\n")
    if text != before and lines:
        lines[-1] = ""
    for number, line in enumerate(lines, 1):
        address = line.strip()
        if address and not address.startswith("#"):
            yield number, address


def _content(path: str) -> str:
    # Without O_NONBLOCK opening a named pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes", path)
    return content.decode("utf-8", "replace")
