"""Entries on their way to a sink: at most so many bytes of them wait; what has no room is dropped and counted."""

import asyncio
import logging
import typing
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from gateway.core.log_limit import LogLimit
from gateway.observing.payload_log.entries import Entry

log = logging.getLogger(__name__)

SECONDS = 0.5
"""How long entries are collected, if they are fewer than MOST_AT_ONCE. The thread that writes a batch takes as much of
the interpreter's time to start as ten entries do."""
MOST_AT_ONCE = 2**20
"""Bytes of entries that the sink gets at once, but for one entry at least. As JSON they take up to six times as
many."""


class Sink(typing.Protocol):
    """Where entries go. One batch at a time."""

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        """Send entries. Returns how many were not taken, and why; may take as long as it likes."""

    def reopen(self) -> None:
        """Open the file again, if it is one."""

    async def close(self) -> None:
        """Close what is open."""


class PayloadLogCounts:
    """How many requests and replies were `sent`, so that the sink took them, and `dropped`."""

    def __init__(self) -> None:
        self.sent = self.dropped = 0


class EntryQueue:
    """The entries that wait for `sink`: at most `max_bytes` of memory, those being sent included."""

    def __init__(self, sink: Sink, max_bytes: int, counts: PayloadLogCounts) -> None:
        self.counts = counts
        self.held = 0
        """The bytes of all entries, and those that are reserved."""
        self._sink = sink
        self._most_bytes = max_bytes
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._news, self._enough = asyncio.Event(), asyncio.Event()
        """Whether anything waits, and whether that is a whole batch."""
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._lines = LogLimit(log, lines=1)

    def reserve(self, size: int) -> bool:
        """Take the room of an entry of `size` bytes, which `add` is to follow; whether there is any."""
        if self.held + size > self._most_bytes:
            return False
        self.held += size
        return True

    def add(self, entries: Sequence[Entry]) -> None:
        """Send entries whose room is reserved."""
        self._waiting.extend(entries)
        self._waiting_bytes += sum([each.held for each in entries])
        self._news.set()
        if self._waiting_bytes >= MOST_AT_ONCE:
            self._enough.set()

    def give_up(self, entries: Sequence[Entry]) -> None:
        """Forget entries whose room is reserved, and count them as dropped."""
        self.held -= sum([each.held for each in entries])
        self.counts.dropped += len(entries)

    def drop(self, entries: int) -> None:
        """Count entries that had no room."""
        self.counts.dropped += entries
        text = "payload log: requests and replies are dropped: more than %d bytes of them wait (log.payloads.memory)"
        self._lines.write("room", logging.WARNING, text, self._most_bytes)

    def start(self) -> None:
        """Send what is added, in a task of its own."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def reopen(self) -> None:
        """Open the file of the sink again."""
        self._sink.reopen()

    async def stop(self, seconds: float) -> None:
        """Send what waits once more, for at most `seconds`, and close the sink. If it is cancelled, it can be called
        again."""
        try:
            async with asyncio.timeout(seconds):
                await self.flush()  # after what the task is sending
        except TimeoutError:
            log.warning("payload log: the last requests and replies were not taken within %g s", seconds)
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
        """Send what waits now, and return when the sink has taken it, or will not."""
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
                text = "payload log: %d requests and replies were not taken: %s"
                self._lines.write("lost", logging.WARNING, text, lost, why)
