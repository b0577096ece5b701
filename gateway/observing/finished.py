"""Requests that have ended, on their way to those who read their Records: the access log, the metrics, the status."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from gateway.core.record import Record
from gateway.observing.batches import Batch

log = logging.getLogger(__name__)

BATCH = 128
"""Records that are handed over at once. That takes about as long as answering a few requests."""
SECONDS = 0.1
"""The longest that a record waits."""

Reader: TypeAlias = Callable[[Batch], None]
"""What reads the Records of requests that have ended."""


class FinishedRecords:
    """Collects Records and hands them to `readers` in batches: after SECONDS, or BATCH records. Reading many at once
    costs half of reading each when it ends, and no reply waits for it."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self._records: list[Record] = []
        self._is_timed = False
        """A timer is set that hands over what is collected."""

    def add(self, record: Record) -> None:
        """Observe a request that has ended."""
        records = self._records
        records.append(record)
        if len(records) >= BATCH:
            self.flush()
        elif not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(SECONDS, self._in_time)

    def _in_time(self) -> None:
        self._is_timed = False
        self.flush()

    def flush(self) -> None:
        """Hand over what has been collected."""
        records, self._records = self._records, []
        if not records:
            return
        batch = Batch(records)
        for read in self.readers:
            try:
                read(batch)
            except Exception:
                log.exception("a reader of requests that have ended failed")
