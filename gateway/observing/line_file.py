"""A file or a standard stream that receives only complete lines (LineFile), and a thread that writes lines there
(LineWriter), so a full pipe or a slow disk never blocks the event loop."""

import logging
import os
import select
import threading
from queue import SimpleQueue

from gateway.core.log_limit import LogLimit
from gateway.core.messages import Buffer

log = logging.getLogger(__name__)


STANDARD = {"stdout": 1, "stderr": 2}
"""The file descriptors of the standard streams."""


class LineFile:
    """The file at `path`, in append mode, or `stdout` or `stderr`. Use a LineFile in one thread; only `reopen` is
    thread-safe.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.written_lines = 0
        """The number of lines that the last `write` wrote."""
        self._file = _opened(path)
        self._is_to_reopen = False
        self._is_torn = False
        """True if the file ends with an incomplete line that cannot be cut off. The next write then starts with a
        newline."""

    @property
    def has_colours(self) -> bool:
        """True if the output is a terminal, and colors are not disabled (https://no-color.org)."""
        return os.isatty(self._file) and not os.environ.get("NO_COLOR")

    def reopen(self) -> None:
        """Reopen the file before the next write, because a log rotation program might have renamed it."""
        self._is_to_reopen = self.path not in STANDARD

    def write(self, text: bytes) -> None:
        """Write complete lines, and record their number. If writing fails, cut off the incomplete line. If cutting is
        impossible (in a pipe, or after another process has written more lines), end the line before the next write.

        Raises:
            OSError: the lines cannot be written, or the file cannot be reopened.
        """
        self.written_lines = 0
        if self._is_to_reopen:
            self._is_to_reopen = False
            self._reopen()
        if self._is_torn:
            _write(self._file, b"\n")
            self._is_torn = False
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[_write(self._file, rest) :]
        except OSError:
            written = text[: len(text) - len(rest)]
            self.written_lines = written.count(b"\n")
            begun = len(written) - written.rfind(b"\n") - 1
            self._is_torn = bool(begun) and not _is_cut_off(self._file, begun)
            raise

    def close(self) -> None:
        """Close the file; a standard stream stays open."""
        if self.path not in STANDARD:
            os.close(self._file)

    def _reopen(self) -> None:
        new = _opened(self.path)
        old, self._file = self._file, new
        self._is_torn = False
        os.close(old)


def _opened(path: str) -> int:
    if path in STANDARD:
        return STANDARD[path]
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _write(file: int, data: Buffer) -> int:
    """Write as many bytes as possible with one call, and return their number."""
    while True:
        try:
            return os.write(file, data)
        except BlockingIOError:  # another process made the shared pipe non-blocking
            select.select((), (file,), ())


def _is_cut_off(file: int, size: int) -> bool:
    """Cut off the last `size` written bytes if they are at the end of a regular file. Return True if they were cut
    off."""
    try:
        end = os.lseek(file, 0, os.SEEK_CUR)
        if end != os.fstat(file).st_size:
            return False
        os.ftruncate(file, end - size)
    except OSError:
        return False
    return True


MOST_WAITING = 20_000
"""Maximum number of waiting lines. The writer drops and counts additional lines."""


class LineWriter:
    """Writes to `path`: `stdout`, `stderr`, or a file in append mode.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.dropped = 0
        """Number of lines lost because too many were waiting, or because writing failed."""
        self._file = LineFile(path)
        self._waiting = 0
        self._batches: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._is_closed = False
        self._too_many = 0
        """Number of lines dropped because too many were waiting, and not yet reported in the log."""
        self._lines = LogLimit(log)
        self._thread: threading.Thread | None = None

    @property
    def has_colours(self) -> bool:
        """True if the output is a terminal, and colors are not disabled."""
        return self._file.has_colours

    def write(self, text: bytes, lines: int) -> None:
        """Schedule the writing of `text`, which contains this number of `lines`, without blocking."""
        if self._is_closed or self._waiting + lines > MOST_WAITING:
            # The writer's thread logs the loss, because standard error could be the blocked stream.
            self.dropped += lines
            self._too_many += lines
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
            self._thread.start()
        self._waiting += lines
        self._batches.put((text, lines))

    def reopen(self) -> None:
        """Reopen the file before the next write, because a log rotation program might have renamed it."""
        self._file.reopen()

    def close(self, seconds: float = 1.0) -> None:
        """Write the waiting lines for at most `seconds`. After that, write nothing."""
        self._is_closed = True
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            text, lines = batch
            try:
                self._file.write(text)
            except OSError as error:
                dropped = lines - self._file.written_lines
                self.dropped += dropped
                self._log_dropped(dropped, error.strerror or "writing failed")
            self._waiting -= lines
            if too_many := self._too_many:
                self._too_many -= too_many
                self._log_dropped(too_many, "writing is too slow")
        self._file.close()

    def _log_dropped(self, lines: int, why: str) -> None:
        self._lines.write(self._file.path, logging.WARNING, "lines of the access log dropped: %d; %s", lines, why)
