"""The access log: one line for each request.

While requests are answered their records are only appended to a list. Lines are made of it in batches, after `SECONDS`
or `BATCH` records, and handed to a thread that writes them. A whole batch takes about as long as answering a few
requests; made in the thread, it would take the loop's turns away.
"""

import asyncio
from random import random
from time import monotonic, time

from gateway.core.record import OK, Record
from gateway.observing.access_lines import Render, Times
from gateway.observing.writer import LineWriter

BATCH = 128
"""Records of which lines are made at once."""
SECONDS = 0.1
"""The longest that a line waits before it is handed to the writer."""


class AccessLog:
    """An observer that writes a line for each record.

    - `sample`: the share of successful requests that have a line. All others have one.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self.render = render
        self.sample = sample
        self._records: list[Record] = []
        self._times = Times()
        self._loop = asyncio.get_running_loop()

    def observe(self, record: Record) -> None:
        """Write the line of `record` soon."""
        if self.sample < 1 and record.status == OK and record.code < 400 and random() >= self.sample:
            return
        records = self._records
        records.append(record)
        if len(records) == 1:
            self._loop.call_later(SECONDS, self.flush)
        elif len(records) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand the lines of all records to the writer."""
        records = self._records
        if not records:
            return
        self._records = []
        since_1970, written, render = time() - monotonic(), self._times.written, self.render
        lines = [render(record, written(since_1970 + record.ended)) for record in records]
        self.writer.write(b"".join(lines), len(lines))

    def close(self) -> None:
        """Write everything that is not written yet."""
        self.flush()
        self.writer.close()
