"""Implements `discovery: {files: GLOB}`, which reads files with one address per line, in the format that UM-Bridge
servers on HPC systems use.

The gateway opens and reads the files again in every interval, because only opening a file makes an NFS client query its
server. The gateway ignores modification times, because network file systems cache them. This module does not use change
notifications (inotify), because changes by other machines cause no notifications.
"""

import asyncio
import errno
import glob
import heapq
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.long_work import between_requests
from gateway.servers.discovery.source import MOST_ADDRESSES, CheckAddress, Found, LookupFailedError

log = logging.getLogger(__name__)
_lines = LogLimit(log)

MAX_BYTES = 64 * 2**10
"""The maximum size of one file, in bytes."""
MOST_FILES = MOST_ADDRESSES
"""The maximum number of files."""
MAX_TOTAL = 4 * 2**20
"""The maximum size of all files together, in bytes."""
MOST_BAD_LINES = 100
"""The number of invalid lines after which the gateway ignores the rest of a file."""
EMPTIED = "it is empty, so the gateway keeps its previous addresses; remove the file, or write a line such as `# none`"
LONGEST_TEXT = 100
"""The maximum length of an invalid line in the log, in characters."""


class AddressFiles:
    """Reads the addresses in the files that match `pattern`. Blank lines and lines that begin with `#` are ignored.

    - If a file disappears, its addresses are removed. If a file exists but is unreadable or empty, its last addresses
      stay in use.
    - A file whose text is a prefix of the previous text might be incomplete. The addresses that are now missing are
    removed after two reads with the same text.
    - A last line without a newline might be incomplete, because some programs write a line in several steps. The line
    counts if two consecutive reads find the same text.
    - The gateway ignores a line that `check` rejects, and logs the line once.
    - If the files exceed MOST_FILES or MAX_TOTAL bytes, the gateway reads only the first files, sorted by name, and
    logs one line.
    """

    def __init__(self, backend: str, pattern: str, interval: float, check: CheckAddress) -> None:
        self._backend = backend
        self._pattern = pattern
        self._check = check
        self._contents: dict[str, str] = {}
        """The contents in use, by path."""
        self._last: dict[str, str] = {}
        """The contents at the last read."""
        self._parsed: dict[str, _Parsed] = {}
        """The parsed contents in use, by path."""
        self._told: set[tuple[str, int, str]] = set()
        """The logged problems: file, line (0 for the file itself), text."""
        self._reading: asyncio.Future[FilesRead] | None = None
        self.pause = interval
        self.description = f"files {pattern}"

    async def look(self) -> frozenset[Found]:
        """See `Source.look`. A thread reads the files, because the file system can hang. Only one read runs at a
        time."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().run_in_executor(None, read_files, self._pattern)
            self._reading.add_done_callback(self._read)
        try:
            read = await asyncio.shield(self._reading)
        except OSError as error:
            raise LookupFailedError(f"{error.filename}: {error.strerror}") from error
        contents, unreadable = dict(read.contents), read.unreadable
        problems = {(path, 0, why) for path, why in unreadable.items()}
        if read.left_out:
            problems.add((self._pattern, 0, read.left_out))
        before, counting = self._contents, {path: self._counting(path, text) for path, text in contents.items()}
        problems |= {
            (path, 0, EMPTIED) for path, text in contents.items() if not text.strip() and counting[path] != text
        }
        self._contents = counting | {path: before[path] for path in unreadable if path in before}
        self._last = contents
        await between_requests(self._parse(before))
        found: dict[str, None] = {}
        for path, parsed in self._parsed.items():
            problems |= {(path, *each) for each in parsed.problems}
            found |= dict.fromkeys(parsed.addresses)
        self._tell(problems)
        return frozenset(map(Found, list(found)[: MOST_ADDRESSES + 1]))

    def _parse(self, before: Mapping[str, str]) -> Iterator[None]:
        """Parse the contents that have changed since `before`, one line per step, until the limit of addresses is
        reached."""
        parsed: dict[str, _Parsed] = {}
        found: set[str] = set()
        for path, text in sorted(self._contents.items()):
            if len(found) > MOST_ADDRESSES:
                break
            yield
            now, known = _Parsed(text, is_settled=text == before.get(path)), self._parsed.get(path)
            if known is not None and (known.text, known.is_settled) == (now.text, now.is_settled):
                now = known
            else:
                yield from self._parse_lines(now)
            parsed[path] = now
            found.update(now.addresses)
        self._parsed = parsed

    def _parse_lines(self, parsed: "_Parsed") -> Iterator[None]:
        for number, address in complete_lines(parsed.text, is_settled=parsed.is_settled):
            yield
            if len(parsed.problems) == MOST_BAD_LINES:
                parsed.problems.append((number, f"this is beyond {MOST_BAD_LINES} bad lines, the rest of the file too"))
            if len(parsed.problems) > MOST_BAD_LINES or len(parsed.addresses) > MOST_ADDRESSES:
                return
            if address not in parsed.addresses:
                try:
                    self._check(address)
                except ValueError as error:
                    parsed.problems.append((number, str(error)[: 3 * LONGEST_TEXT]))
                else:
                    parsed.addresses[address] = None

    def _counting(self, path: str, text: str) -> str:
        """Return the content that counts for a file, which is the previous content if the file might be incomplete."""
        before = self._contents.get(path)
        if before is None or not before.startswith(text):
            return text
        return text if text.strip() and self._last.get(path) == text else before

    def _read(self, reading: "asyncio.Future[FilesRead]") -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # retrieve the exception, because no task might wait for it

    def _tell(self, problems: set[tuple[str, int, str]]) -> None:
        """Log the problems that are new since the last read."""
        for path, number, why in sorted(problems - self._told):
            place = f"{path}:{number}" if number else path
            _lines.write(path, logging.WARNING, "backend %r: %s is skipped: %s", self._backend, place, why)
        self._told = problems


class _Parsed:
    """The addresses in one file, and the problems with the file's lines. `is_settled` is True if the previous read
    found the same content."""

    def __init__(self, text: str, *, is_settled: bool) -> None:
        self.text, self.is_settled = text, is_settled
        self.addresses: dict[str, None] = {}
        self.problems: list[tuple[int, str]] = []


@frozen
class FilesRead:
    """The contents of files, and the reasons for failed reads, both by path. `left_out` describes the files beyond the
    limits."""

    contents: Mapping[str, str]
    unreadable: Mapping[str, str]
    left_out: str = ""


def read_files(pattern: str) -> FilesRead:
    """Read the files that match `pattern`.

    Raises:
        OSError: the directory is unreadable, and the files might still exist.
    """
    contents: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    os.scandir(fixed_directory(pattern)).close()
    paths = heapq.nsmallest(MOST_FILES + 1, glob.iglob(pattern, recursive=True))
    left_out = f"more than {MOST_FILES} files, {paths[MOST_FILES]} and later ones" if len(paths) > MOST_FILES else ""
    size = 0
    for path in paths[:MOST_FILES]:
        try:
            text = _content(path)
        except FileNotFoundError:
            continue  # another program removed the file after the directory listing
        except OSError as error:
            unreadable[path] = error.strerror or str(error)
            continue
        size += len(text)
        if size > MAX_TOTAL:
            left_out = f"more than {MAX_TOTAL} bytes in all files, {path} and later ones"
            break
        contents[path] = text
    return FilesRead(contents, unreadable, left_out)


def fixed_directory(pattern: str) -> Path:
    """Return the longest directory in the pattern that contains no wildcard."""
    parts = Path(pattern).parts
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def complete_lines(text: str, *, is_settled: bool) -> Iterator[tuple[int, str]]:
    """Yield the addresses in `text`, the content of a file, with their line numbers. `is_settled` is True if the last
    read found the same content."""
    lines = text.split("\n")
    if not is_settled:
        lines[-1] = ""
    for number, line in enumerate(lines, 1):
        address = line.strip()
        if address and not address.startswith("#"):
            yield number, address


def _content(path: str) -> str:
    # Without O_NONBLOCK, opening a named pipe would block until a writer opens it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes", path)
    return content.decode("utf-8", "replace")
