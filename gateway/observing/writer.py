"""Writes lines to a file or a standard stream in a thread, so that a full pipe or a slow disk never stops the event
loop."""

import logging
import os
import select
import threading
from queue import SimpleQueue

from gateway.core.log_limit import LogLimit
from gateway.core.types import Buffer

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
"""Lines that wait to be written. Further ones are dropped and counted."""

STANDARD = {"stdout": 1, "stderr": 2}
"""The file descriptors of the standard streams."""


class LineWriter:
    """Writes to `path`: `stdout`, `stderr`, or a file that is appended to.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped = 0
        """Lines that were not written because too many waited, or because writing failed."""
        self._file = _opened(path)
        self._waiting = 0
        self._batches: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._is_to_reopen = False
        self._is_closed = False
        self._is_torn = False
        """Whether a part of a line was written that cannot be cut off: what comes next begins with a line end."""
        self._written_lines = 0
        """Lines of the last text that were written."""
        self._too_many = 0
        """Lines dropped because too many waited, which the log does not tell of yet."""
        self._lines = LogLimit(log)
        self._thread: threading.Thread | None = None

    @property
    def has_colours(self) -> bool:
        """Whether it is a terminal, and nobody asked for no colours (https://no-color.org)."""
        return os.isatty(self._file) and not os.environ.get("NO_COLOR")

    def write(self, text: bytes, lines: int) -> None:
        """Write `text`, which has so many lines, soon. Does not block."""
        if self._is_closed or self._waiting + lines > MOST_WAITING:
            # The thread logs it: standard error may be what stands still.
            self.dropped += lines
            self._too_many += lines
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
            self._thread.start()
        self._waiting += lines
        self._batches.put((text, lines))

    def reopen(self) -> None:
        """Open the file again before the next lines: it may have been renamed by a program that rotates logs."""
        self._is_to_reopen = self.path not in STANDARD

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits, for at most so many seconds, and nothing more after that."""
        self._is_closed = True
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            text, lines = batch
            try:
                if self._is_to_reopen:
                    self._is_to_reopen = False
                    self._reopen()
                self._write(text)
            except OSError as error:
                dropped = lines - self._written_lines
                self.dropped += dropped
                self._log_dropped(dropped, error.strerror or "it cannot be written")
            self._waiting -= lines
            if too_many := self._too_many:
                self._too_many -= too_many
                self._log_dropped(too_many, "it is written too slowly")
        if self.path not in STANDARD:
            os.close(self._file)

    def _write(self, text: bytes) -> None:
        """Write whole lines, and note how many. If that fails, what was written of a line is cut off again. Where it
        cannot be, in a pipe or before lines of another process, it is ended before the next lines."""
        self._written_lines = 0
        if self._is_torn:
            _write(self._file, b"\n")
            self._is_torn = False
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[_write(self._file, rest) :]
        except OSError:
            written = text[: len(text) - len(rest)]
            self._written_lines = written.count(b"\n")
            begun = len(written) - written.rfind(b"\n") - 1
            self._is_torn = bool(begun) and not _is_cut_off(self._file, begun)
            raise

    def _reopen(self) -> None:
        new = _opened(self.path)
        old, self._file = self._file, new
        self._is_torn = False
        os.close(old)

    def _log_dropped(self, lines: int, why: str) -> None:
        self._lines.write(self.path, logging.WARNING, "lines of the access log dropped: %d; %s", lines, why)


def _opened(path: str) -> int:
    if path in STANDARD:
        return STANDARD[path]
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _write(file: int, data: Buffer) -> int:
    """Write some bytes. How many."""
    while True:
        try:
            return os.write(file, data)
        except BlockingIOError:  # another process made the pipe that we share non-blocking
            select.select((), (file,), ())


def _is_cut_off(file: int, size: int) -> bool:
    """Whether the last `size` bytes that were written could be cut off: they are the end of a file."""
    try:
        end = os.lseek(file, 0, os.SEEK_CUR)
        if end != os.fstat(file).st_size:
            return False
        os.ftruncate(file, end - size)
    except OSError:
        return False
    return True
