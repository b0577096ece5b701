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

PROBES = frozenset({"live", "ready", "health"})
"""The operations by which others ask again and again how the gateway is. They have no route."""
MOST_PROBES = 1024
"""Clients, listeners and operations whose last outcome is remembered."""


class AccessLog:
    """Writes a line for each record.

    - `sample`: the share of successful requests that have a line. All others have one.

    Of PROBES from one client, the first one has a line, and each whose outcome differs from that of the one before.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self._render = render
        self._sample = sample
        self._probes: dict[tuple[str, ...], tuple[str, int, str]] = {}
        """The outcome of the last probe, by client, listener, wire form and operation."""

    def write(self, records: Sequence[Record]) -> None:
        """Write the lines of requests that have ended."""
        shown = [each for each in records if each.route or each.operation not in PROBES or self._is_news(each)]
        if self._sample < 1:
            shown = [each for each in shown if self._is_kept(each)]
        if shown:
            self.writer.write(self._render(shown, time() - monotonic()), len(shown))

    def _is_kept(self, record: Record) -> bool:
        is_probe = not record.route and record.operation in PROBES
        return is_probe or record.status != OK or record.code >= 400 or random() < self._sample

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

    def close(self) -> None:
        """Write everything that is not written yet."""
        self.writer.close()
