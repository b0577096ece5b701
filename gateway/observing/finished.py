"""Passes completed requests to the readers: the access log, the metrics and the status. `gateway/assembly/observing.py`
connects the readers."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from gateway.core.record import OK, Record
from gateway.observing.batches import KIND, OWN, WIDTH, Batch, RequestKind, kind_with, read

log = logging.getLogger(__name__)

BATCH = 512
"""Maximum number of requests in a batch. Most of the work on a batch takes the same time for any batch size: with
batches a quarter as large, each request would cost 1.5 times as much. Larger batches would block the event loop for too
long. With this size, each reader needs less than 0.5 ms per batch, and each reader reads in a different iteration of
the loop."""
SECONDS = 0.1
"""Maximum time that a completed request waits to be read, in seconds."""

_FIRST_OR_FULL = frozenset({1, BATCH})
"""The numbers of collected requests that start a timer or end a batch. Both numbers are reached exactly, because
requests arrive one at a time, and a full list is replaced before the next request is added."""
_NOT_READ = (None,) * WIDTH

Reader: TypeAlias = Callable[[Batch], None]
"""A function that receives a batch of completed requests."""


class FinishedRecords:
    """Collects completed requests, and passes them to `readers` in batches, after SECONDS or after BATCH requests. A
    request in a batch costs half as much as a request on its own, and no response waits for the readers."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self._kinds: list[Any] = []
        self._own: list[Any] = []
        """The RequestKind and the OWN fields of one request after another; None for requests in `_failed`."""
        self._failed: list[tuple[int, Record]] = []
        """Failed requests, with their positions. These requests are read later, because if the client disconnects, the
        duration of its call is recorded only after the call's end."""
        self._unread: deque[tuple[Reader, Batch]] = deque()
        """The unread batches in order, and for each batch, the readers that have not read it."""
        self._is_timed = False
        """True if a timer is running that will pass on the collected requests."""
        self._has_turn = False
        """True if a reader will read in the next iteration of the loop."""

    def add(self, record: Record) -> None:
        """Store a completed request."""
        kinds, own = self._kinds, self._own
        if record.status == OK:
            fields = read(record)
            kinds.append(kind_with[fields[KIND]])
            own += fields[OWN]
        else:
            self._failed.append((len(kinds), record))
            kinds.append(None)
            own += _NOT_READ
        if len(kinds) in _FIRST_OR_FULL:
            self._first_or_full()

    def _first_or_full(self) -> None:
        if len(self._kinds) >= BATCH:
            full = self._collected()
            self._read_all()  # so at most two batches are kept, regardless of how long an iteration takes
            self._to_read(*full)
            self._plan_turn()
        elif not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(SECONDS, self._in_time)

    def _in_time(self) -> None:
        self._is_timed = False
        self.flush()

    def _plan_turn(self) -> None:
        """If a batch is unread, schedule one reader to read it in the next iteration of the loop."""
        if self._unread and not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        if self._unread:
            self._read_next()
        self._plan_turn()

    def flush(self) -> None:
        """Pass on the collected requests."""
        self._to_read(*self._collected())
        self._read_all()

    def _collected(self) -> tuple[list[RequestKind], list[Any]]:
        """Return the collected requests, and start a new collection."""
        kinds, own, failed = self._kinds, self._own, self._failed
        self._kinds, self._own, self._failed = [], [], []
        for at, record in failed:
            fields = read(record)
            kinds[at] = kind_with[fields[KIND]]
            own[at * WIDTH : (at + 1) * WIDTH] = fields[OWN]
        return kinds, own

    def _to_read(self, kinds: list[RequestKind], own: list[Any]) -> None:
        """Queue a batch for the readers. Log errors instead of raising them, so they do not affect the response to the
        last request."""
        if not kinds:
            return
        try:
            batch = Batch(kinds, own)
        except Exception:
            log.exception("metrics and logs lack %d finished requests", len(kinds))
        else:
            self._unread.extend((read, batch) for read in self.readers)

    def _read_all(self) -> None:
        while self._unread:
            self._read_next()

    def _read_next(self) -> None:
        read, batch = self._unread.popleft()
        try:
            read(batch)
        except Exception:
            log.exception("a reader of finished requests failed")
