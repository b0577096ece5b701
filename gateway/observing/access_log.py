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
PROBES = frozenset({"live", "ready", "health"})
"""The operations by which others ask again and again how the gateway is. They have no route."""
MOST_PROBES = 1024
"""Clients, listeners and operations whose last outcome is remembered."""
SECONDS = 0.1
"""The longest that a line waits before it is handed to the writer."""


class AccessLog:
    """An observer that writes a line for each record.

    - `sample`: the share of successful requests that have a line. All others have one.

    Of PROBES from one client, the first one has a line, and each whose outcome differs from that of the one before.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self.render = render
        self.sample = sample
        self._records: list[Record] = []
        self._probes: dict[tuple[str, ...], tuple[str, int, str]] = {}
        """The outcome of the last probe, by client, listener, wire form and operation."""
        self._times = Times()
        self._loop = asyncio.get_running_loop()

    def observe(self, record: Record) -> None:
        """Write the line of `record` soon."""
        if not record.route and record.operation in PROBES:
            if not self._is_news(record):
                return
        elif self.sample < 1 and record.status == OK and record.code < 400 and random() >= self.sample:
            return
        records = self._records
        records.append(record)
        if len(records) == 1:
            self._loop.call_later(SECONDS, self.flush)
        elif len(records) >= BATCH:
            self.flush()

    def _is_news(self, probe: Record) -> bool:
        """Whether it has another outcome than the client's probe before it."""
        host = probe.client.rpartition(":")[0]
        key, outcome = (
            (host, probe.listener, probe.in_protocol, probe.operation),
            (probe.status, probe.code, probe.reason),
        )
        if self._probes.get(key) == outcome:
            return False
        if len(self._probes) >= MOST_PROBES:
            self._probes.clear()
        self._probes[key] = outcome
        return True

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
