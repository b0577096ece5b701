"""A queue of entries for a sink. The queue limits the bytes of waiting entries, and drops and counts entries above the
limit."""

import asyncio
import logging
import typing
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from gateway.core.log_limit import LogLimit
from gateway.observing.payload_log.events import Entry

log = logging.getLogger(__name__)

SECONDS = 0.5
"""Seconds for which the queue collects entries of less than MOST_AT_ONCE bytes. Starting the thread that writes a batch
takes as much interpreter time as ten entries."""
MOST_AT_ONCE = 2**20
"""Maximum bytes of entries in a batch for the sink; only a single entry can be larger. As JSON, the entries can take up
to six times as many bytes."""


class Sink(typing.Protocol):
    """The destination of entries, which receives one batch at a time."""

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        """Send entries, and return the number of entries that were not accepted, and the reason. The call can take any
        amount of time."""

    def reopen(self) -> None:
        """Reopen the file, if the sink is a file."""

    async def close(self) -> None:
        """Close the file or the connections."""


class PayloadLogCounts:
    """The numbers of requests and responses that the sink accepted (`sent`) and that were lost (`dropped`)."""

    def __init__(self) -> None:
        self.sent = self.dropped = 0


class EntryQueue:
    """The waiting entries for `sink`. Together with the entries being sent, they take at most `max_bytes` of memory."""

    def __init__(self, sink: Sink, max_bytes: int, counts: PayloadLogCounts) -> None:
        self.counts = counts
        self.held = 0
        """The bytes of all entries plus the reserved bytes."""
        self._sink = sink
        self._most_bytes = max_bytes
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._news, self._enough = asyncio.Event(), asyncio.Event()
        """Events that are set while an entry waits, and while a full batch waits."""
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._lines = LogLimit(log, lines=1)

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes for an entry that `add` will queue. Return False if the bytes exceed the limit."""
        if self.held + size > self._most_bytes:
            return False
        self.held += size
        return True

    def add(self, entries: Sequence[Entry]) -> None:
        """Queue entries whose bytes are reserved."""
        self._waiting.extend(entries)
        self._waiting_bytes += sum([each.held for each in entries])
        self._news.set()
        if self._waiting_bytes >= MOST_AT_ONCE:
            self._enough.set()

    def give_up(self, entries: Sequence[Entry]) -> None:
        """Drop entries whose bytes are reserved, and count them as dropped."""
        self.held -= sum([each.held for each in entries])
        self.counts.dropped += len(entries)

    def drop(self, entries: int) -> None:
        """Count entries as dropped because they exceed the capacity."""
        self.counts.dropped += entries
        text = "payload log: dropping requests and replies: more than %d bytes of them wait (log.payloads.memory)"
        self._lines.write("room", logging.WARNING, text, self._most_bytes)

    def start(self) -> None:
        """Start a task that sends the queued entries."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reopen(self) -> None:
        """Reopen the sink's file, if it has one."""
        self._sink.reopen()

    async def stop(self, seconds: float) -> None:
        """Send the waiting entries a last time, for at most `seconds`, and close the sink. If this call is cancelled,
        the caller can repeat it."""
        try:
            async with asyncio.timeout(seconds):
                await self.flush()  # waits for the entries that the task is sending
        except TimeoutError:
            log.warning("payload log: the receiver did not take the last requests and replies within %g s", seconds)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.counts.dropped += len(self._waiting)
        self._waiting.clear()
        if not self._is_closed:
            self._is_closed = True
            await self._sink.close()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await self._enough.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send the waiting entries now, and return when the sink has accepted or rejected them."""
        async with self._sending:
            self._news.clear()
            self._enough.clear()
            while self._waiting:
                await self._send(self._next_batch())

    def _next_batch(self) -> list[Entry]:
        batch: list[Entry] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].held <= MOST_AT_ONCE):
            size += self._waiting[0].held
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return batch

    async def _send(self, batch: Sequence[Entry]) -> None:
        lost, why = len(batch), "the gateway has ended"
        try:
            lost, why = await self._sink.send(batch)
        except Exception as error:
            log.exception("the payload log failed")
            why = type(error).__name__
        finally:
            self.held -= sum(each.held for each in batch)
            self.counts.sent += len(batch) - lost
            self.counts.dropped += lost
            if lost:
                text = "payload log: lost %d requests and replies: %s"
                self._lines.write("lost", logging.WARNING, text, lost, why)
