"""The access log: one line for each request.

The log makes lines from a batch of requests in one step (`finished`), collects them for a moment, and passes them to a
thread that writes them. Whenever that thread wakes up, it takes the interpreter from the event loop, which costs as
much as hundreds of lines. Therefore, the thread wakes up rarely, and does not make the lines itself.
"""

import asyncio
from random import random
from time import monotonic, time

from gateway.core.record import OK
from gateway.observing.access_lines import Render
from gateway.observing.batches import Batch, RequestKind
from gateway.observing.writer import LineWriter

PROBES = frozenset({"live", "ready", "health"})
"""The operations that check the gateway's state periodically, without a route."""
MOST_PROBES = 1024
"""Maximum number of combinations of client, listener and operation whose last probe result is stored."""


SECONDS = 0.1
"""Maximum time for which lines are collected, in seconds."""
MOST_COLLECTED = 2**20
"""Maximum bytes of collected lines. Larger amounts are passed on immediately."""


class AccessLog:
    """Writes a line for each record.

    - `sample`: the fraction of successful requests that get a line. All failed requests get one.

    For a client that sends PROBES, only the first probe gets a line, and every probe whose result differs from the
    previous one.
    """

    def __init__(self, writer: LineWriter, render: Render, sample: float = 1.0) -> None:
        self.writer = writer
        self._render = render
        self._sample = sample
        self._collected: list[bytes] = []
        self._size = self._lines = 0
        """The bytes and the number of the collected lines."""
        self._probes: dict[tuple[str, ...], tuple[str, int, str]] = {}
        """The result of the last probe, by client, listener, protocol and operation."""

    def write(self, batch: Batch) -> None:
        """Write the lines of completed requests."""
        shown = self._shown(batch)
        if not len(shown):
            return
        if not self._collected:
            asyncio.get_running_loop().call_later(SECONDS, self.flush)
        text = self._render(shown, time() - monotonic())
        self._collected.append(text)
        self._size += len(text)
        self._lines += len(shown)
        if self._size >= MOST_COLLECTED:
            self.flush()

    def _shown(self, batch: Batch) -> Batch:
        """Return the requests of a batch that get a line."""
        probes = {kind for kind in set(batch.kinds) if is_probe(kind)}
        if not probes and self._sample == 1:
            return batch
        of_clients = enumerate(zip(batch.kinds, batch.clients, strict=True))
        places = [at for at, (kind, client) in of_clients if kind not in probes or self._is_news(kind, client)]
        if self._sample < 1:
            places = [at for at in places if batch.kinds[at] in probes or self._is_kept(batch.kinds[at])]
        return batch.only(places)

    def flush(self) -> None:
        """Pass the collected lines to the thread."""
        if self._collected:
            self.writer.write(b"".join(self._collected), self._lines)
        self._collected = []
        self._size = self._lines = 0

    def _is_kept(self, kind: RequestKind) -> bool:
        return kind.status != OK or kind.code >= 400 or random() < self._sample

    def _is_news(self, probe: RequestKind, client: str) -> bool:
        """Return True if the result of `probe` differs from the client's previous probe."""
        host = client.rpartition(":")[0]
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
        """Write all waiting lines."""
        self.flush()
        self.writer.close()


def is_probe(kind: RequestKind) -> bool:
    """Return True if requests of this kind only check the gateway's state."""
    return not kind.route and kind.operation in PROBES
