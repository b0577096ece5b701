"""Write lines to a file or a standard stream in a thread, so a full pipe or a slow disk never blocks the event loop."""

import logging
import threading
from queue import SimpleQueue

from gateway.core.log_limit import LogLimit
from gateway.observing.line_file import LineFile

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
"""Maximum number of waiting lines. The writer drops and counts additional lines."""


class LineWriter:
    """Writes to `path`: `stdout`, `stderr`, or a file in append mode.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.dropped = 0
        """Number of lines that the writer lost because too many were waiting, or because writing failed."""
        self._file = LineFile(path)
        self._waiting = 0
        self._batches: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._is_closed = False
        self._too_many = 0
        """Number of lines that were dropped because too many were waiting, and that the log does not report yet."""
        self._lines = LogLimit(log)
        self._thread: threading.Thread | None = None

    @property
    def has_colours(self) -> bool:
        """True if the output is a terminal, and colors are not disabled."""
        return self._file.has_colours

    def write(self, text: bytes, lines: int) -> None:
        """Write `text`, which contains this number of `lines`, soon. Does not block."""
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
