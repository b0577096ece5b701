"""The access log: one line for each request.

Lines are made of many records at once (`finished`), and handed to a thread that writes them. Made in the thread, they
would take the event loop's turns away.
"""

from collections.abc import Sequence
from random import random
from time import monotonic, time

from gateway.core.record import OK, Record
from gateway.observing.access_lines import Render
from gateway.observing.writer import LineWriter


class AccessLog:
    """Writes a line for each record.

    - `sample`: the share of successful requests that have a line. All others have one.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self._render = render
        self._sample = sample

    def write(self, records: Sequence[Record]) -> None:
        """Write the lines of requests that have ended."""
        if self._sample < 1:
            records = [each for each in records if _has_failed(each) or random() < self._sample]
        if records:
            self.writer.write(self._render(records, time() - monotonic()), len(records))

    def close(self) -> None:
        """Write everything that is not written yet."""
        self.writer.close()


def _has_failed(record: Record) -> bool:
    return record.status != OK or record.code >= 400
