"""Tracing: which requests are sampled, and the finished ones on their way to the collector.

Each request gets a TraceContext. Only a sampled one notes spans. When it has ended, its Record is put into a queue of
bounded length, which a background task empties every few seconds: spans are made of the Records and sent in a thread
(`otlp`). Nothing waits for the collector; what the queue has no room for is dropped and counted.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from gateway.core.log_limit import LogLimit
from gateway.core.protocol import Protocol
from gateway.core.record import Record
from gateway.core.spans import Span, TraceContext, read_context
from gateway.core.types import Message
from gateway.observing.recording import OnStart

log = logging.getLogger(__name__)
_lines = LogLimit(log)

MOST_WAITING = 2048
"""Records that may wait to be sent, and that are sent at once."""

_LONGEST_PATH = 1024
"""Characters of a path that are kept and sent."""

Export: TypeAlias = Callable[[Sequence[Record]], str]
"""Sends the spans of finished Records, which takes long. Returns why it failed; empty if it did not."""


class Tracing:
    """The tracing of one gateway.

    - `sample`: the share of the traces that begin here which are sampled. Requests with a valid `traceparent` are
      sampled as it says.
    - `interval`: seconds between two batches.
    """

    def __init__(self, export: Export, sample: float, interval: float) -> None:
        self._export = export
        self._sample = sample
        self._interval = interval
        self._waiting: list[Record] = []
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """Requests whose spans were not sent: the queue was full, or the collector did not take them."""
        self.sent = 0
        """Requests whose spans the collector took."""

    def starts(self, *, has_tls: bool) -> OnStart:
        """What begins the traces of a listener's requests."""
        return partial(self._start, has_tls)

    def _start(self, has_tls: bool, record: Record, message: Message, protocol: Protocol) -> None:
        """Find the request's place in its trace. If it is sampled, spans are noted from now on."""
        context = record.context = read_context(record.traceparent, message.headers.raw, self._sample)
        if isinstance(context, TraceContext) and context.is_sampled:
            record.observers = (*record.observers, self.observe)
            root = Span("request", None, record.received)
            root.id = context.id
            root.facts = {
                "method": message.method,
                "path": message.path[:_LONGEST_PATH],
                "pattern": message.pattern,
                "transport": protocol.transport,
                "tls": has_tls,
            }
            record.events = [root] if record.events is None else [root, *record.events]

    def observe(self, record: Record) -> None:
        """Queue the Record of a sampled request that has ended."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(record)
        else:
            self.dropped += 1

    def start(self) -> None:
        """Send what is queued every `interval` seconds, in a task of its own."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, seconds: float) -> None:
        """Send what is queued once more, for at most `seconds`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        try:
            async with asyncio.timeout(seconds):
                await self.flush()
        except TimeoutError:
            log.warning("tracing: the collector did not take the last spans within %g s", seconds)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.flush()

    async def flush(self) -> None:
        """Send what is queued now, and return when the collector has answered."""
        async with self._sending:
            batch, self._waiting = self._waiting, []
            if not batch:
                return
            why_not = await asyncio.to_thread(self._export, batch)
            if why_not:
                self.dropped += len(batch)
                text = "tracing: the spans of %d requests could not be sent: %s"
                _lines.write("tracing", logging.WARNING, text, len(batch), why_not)
            else:
                self.sent += len(batch)
