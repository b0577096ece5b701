"""Requests that have ended, on their way to those who read their Records: the access log, the metrics, the status."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from gateway.core.record import Record
from gateway.observing.batches import Batch

log = logging.getLogger(__name__)

BATCH = 512
"""Records that are handed over at once. A batch of a quarter of these costs half as much again for each record: most of
what is done with a batch is the same for any size. Each reader needs less than half a millisecond, and they read in
different turns of the event loop."""
SECONDS = 0.1
"""The longest that a record waits."""

_FIRST_OR_FULL = frozenset({1, BATCH})
"""The numbers of collected records with which there is something to do."""

Reader: TypeAlias = Callable[[Batch], None]
"""What reads the Records of requests that have ended."""


class FinishedRecords:
    """Collects Records and hands them to `readers` in batches: after SECONDS, or BATCH records. Reading many at once
    costs half of reading each when it ends, and no reply waits for it."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self._records: list[Record] = []
        self._unread: deque[tuple[Reader, Batch]] = deque()
        """Who has yet to read which batch, in order."""
        self._is_timed = False
        """A timer is set that hands over what is collected."""

    def add(self, record: Record) -> None:
        """Observe a request that has ended."""
        records = self._records
        records.append(record)
        if len(records) in _FIRST_OR_FULL:
            self._first_or_full()

    def _first_or_full(self) -> None:
        loop = asyncio.get_running_loop()
        if len(self._records) >= BATCH:
            self._read_all()  # so that no more than two batches are kept, however long a turn of the loop is
            self._collected()
            loop.call_soon(self._take_turn)
        elif not self._is_timed:
            self._is_timed = True
            loop.call_later(SECONDS, self._in_time)

    def _in_time(self) -> None:
        self._is_timed = False
        self.flush()

    def _take_turn(self) -> None:
        """Let one reader read, and the next one in the next turn of the loop."""
        if self._unread:
            self._read_next()
        if self._unread:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def flush(self) -> None:
        """Hand over what has been collected."""
        self._collected()
        self._read_all()

    def _collected(self) -> None:
        """Make a batch of what has been collected."""
        records, self._records = self._records, []
        if records:
            batch = Batch(records)
            self._unread.extend((read, batch) for read in self.readers)

    def _read_all(self) -> None:
        while self._unread:
            self._read_next()

    def _read_next(self) -> None:
        read, batch = self._unread.popleft()
        try:
            read(batch)
        except Exception:
            log.exception("a reader of requests that have ended failed")
