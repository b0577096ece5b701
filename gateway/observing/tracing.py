"""Tracing: select the requests to sample, and queue the completed ones for the collector.

Each request gets a TraceContext. Only a sampled request records spans. When the request has ended, its Record goes into
a bounded queue. Every few seconds, a background task empties the queue; a thread then creates spans from the Records
and sends them (`otlp`). No request waits for the collector. If the queue is full, the gateway drops and counts the
Record.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from gateway.core.log_limit import LogLimit
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.record import Record
from gateway.core.spans import Span, TraceContext, read_context
from gateway.core.surviving import log_and_continue
from gateway.observing.own_thread import in_own_thread
from gateway.observing.recording import Traces

log = logging.getLogger(__name__)
_lines = LogLimit(log, lines=1)

MOST_WAITING = 2048
"""Maximum number of Records in the queue, and of Records in a batch."""
MOST_SPANS_WAITING = 32_768
"""Maximum number of spans of waiting Records, because some requests have hundreds of spans."""

_LONGEST_PATH = 1024
"""Maximum number of characters of a path to store and send."""

Export: TypeAlias = Callable[[Sequence[Record]], str]
"""A blocking function that sends the spans of completed Records. Returns the reason if it failed, or an empty
string."""


class TraceCounts:
    """The numbers of sampled requests whose spans the collector accepted (`sent`), and whose spans were lost because
    too many were waiting or the collector did not accept them (`dropped`). Mirrored calls count in addition to client
    requests."""

    def __init__(self) -> None:
        self.sent = self.dropped = 0


class Tracing:
    """The tracing of one gateway.

    - `sample`: the fraction of the traces that start at the gateway to sample. For requests with a valid `traceparent`,
      its flag decides.
    - `interval`: seconds between two batches.
    - `counts`: the counts of sent and dropped requests.
    """

    def __init__(self, export: Export, sample: float, interval: float, counts: TraceCounts | None = None) -> None:
        self._export = export
        self._sample = sample
        self._interval = interval
        self.counts = counts or TraceCounts()
        self._waiting: list[Record] = []
        self._spans = 0
        """The number of waiting spans."""
        self._without_room = 0
        """Number of requests that were dropped since the last log line because the queue was full."""
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def of_listener(self, *, has_tls: bool) -> Traces:
        """Return the object that begins the traces of a listener's requests."""
        return Traces(self._sample, partial(self._begin, has_tls))

    def _begin(self, has_tls: bool, record: Record, message: Message, protocol: Protocol) -> None:
        """Read the trace context of a request. If the request is sampled, start recording its spans."""
        context = record.context = read_context(record.traceparent, message.headers.raw, 1)
        if isinstance(context, TraceContext) and context.is_sampled:
            record.trace_with(self.observe)
            root = Span("request", None, record.received)
            root.id = context.id
            root.facts = {
                "method": message.method,
                "path": message.path[:_LONGEST_PATH],
                "pattern": message.pattern,
                "transport": protocol.transport,
                "tls": has_tls,
            }
            record.events, record.is_timed = [root], True

    def observe(self, record: Record) -> None:
        """Queue the Record of a completed sampled request."""
        spans = len(record.events or ())
        if len(self._waiting) < MOST_WAITING and self._spans + spans <= MOST_SPANS_WAITING:
            self._waiting.append(record)
            self._spans += spans
        else:
            self.counts.dropped += 1
            self._without_room += 1

    def start(self) -> None:
        """Send the queued Records every `interval` seconds, in a separate task."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, seconds: float) -> None:
        """Send the queued Records a last time, for at most `seconds`."""
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
            with log_and_continue("sending spans"):
                await self.flush()

    async def flush(self) -> None:
        """Send the queued Records now, and return when the collector has responded."""
        async with self._sending:
            batch, self._waiting, self._spans = self._waiting, [], 0
            if not batch:
                return
            try:
                why_not = await _exported(self._export, batch)
            except asyncio.CancelledError:
                self.counts.dropped += len(batch)
                raise
            if why_not:
                self.counts.dropped += len(batch)
                lost, self._without_room = len(batch) + self._without_room, 0
                text = "tracing: sending the spans of %d requests failed: %s"
                _lines.write("tracing", logging.WARNING, text, lost, why_not)
            else:
                self.counts.sent += len(batch)
                self._tell_of_lack_of_room()

    def _tell_of_lack_of_room(self) -> None:
        if self._without_room:
            text = "tracing: dropped the spans of %d requests: more than %d requests or %d spans waited"
            _lines.write("room", logging.WARNING, text, self._without_room, MOST_WAITING, MOST_SPANS_WAITING)
            self._without_room = 0


async def _exported(export: Export, batch: Sequence[Record]) -> str:
    """Run `export` in a thread for which the process does not wait when it exits, because a collector might never
    respond."""
    try:
        return await in_own_thread("tracing", partial(export, batch))
    except Exception as error:
        log.exception("tracing failed")
        return type(error).__name__
