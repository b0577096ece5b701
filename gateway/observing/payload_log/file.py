"""The payload log as a file: one line per event, in the JSON Event Format of CloudEvents."""

from collections.abc import Sequence
from functools import partial

from gateway.observing.line_file import LineFile
from gateway.observing.own_thread import in_own_thread
from gateway.observing.payload_log.entries import Entry, EventForm, event
from gateway.observing.payload_log.events import structured


class PayloadFile:
    """A Sink that appends to the file at `path`. Raises OSError if the file cannot be opened."""

    def __init__(self, path: str, form: EventForm) -> None:
        self._file = LineFile(path)
        self._form = form
        self._is_writing = False

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        """Append the events of `batch`."""
        self._is_writing = True
        return await in_own_thread("payload-log", partial(self._write, batch))

    def _write(self, batch: Sequence[Entry]) -> tuple[int, str]:
        try:
            self._file.write(b"".join([structured(event(each, self._form)) + b"\n" for each in batch]))
        except OSError as error:
            lost = len(batch) - self._file.written_lines
            return lost, f"{self._file.path}: {error.strerror or 'writing failed'}"
        finally:
            self._is_writing = False
        return 0, ""

    def reopen(self) -> None:
        """Reopen the file before the next write."""
        self._file.reopen()

    async def close(self) -> None:
        """Close the file, unless an abandoned thread is still writing to it: another file could soon get the same file
        descriptor."""
        if not self._is_writing:
            self._file.close()
