"""Requests that have ended, on their way to those who read what became of them: the access log, the metrics, the
status."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from gateway.core.record import OK, Record
from gateway.observing.batches import KIND, OWN, WIDTH, Batch, RequestKind, kind_with, read

log = logging.getLogger(__name__)

BATCH = 512
"""Requests that are handed over at once. With batches a quarter as large, each request costs 1.5 times as much: most of
what is done with a batch takes the same time for any size. With larger ones the event loop would stand still for too
long: each reader needs less than half a millisecond for a batch, and they read in different turns of the loop."""
SECONDS = 0.1
"""The longest that a request waits."""

_FIRST_OR_FULL = frozenset({1, BATCH})
"""The numbers of collected requests with which there is something to do. Each is reached: requests are added one by
one, and a full list is replaced before anything is done with it."""
_NOT_READ = (None,) * WIDTH

Reader: TypeAlias = Callable[[Batch], None]
"""What is told of requests that have ended."""


class FinishedRecords:
    """Collects requests that have ended and hands them to `readers` in batches: after SECONDS, or BATCH requests. Many
    at once cost half of each by itself, and no reply waits for it."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self._kinds: list[Any] = []
        self._own: list[Any] = []
        """The RequestKind of each, and its fields in OWN, one request after the other; None for those in `_failed`."""
        self._failed: list[tuple[int, Record]] = []
        """Those that failed, with their places. They are read later: of a call whose client has left, it is noted after
        its end how long it took."""
        self._unread: deque[tuple[Reader, Batch]] = deque()
        """Who has yet to read which batch, in order."""
        self._is_timed = False
        """A timer is set that hands over what is collected."""
        self._has_turn = False
        """A reader will read in the next turn of the loop."""

    def add(self, record: Record) -> None:
        """Observe a request that has ended."""
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
            self._read_all()  # so that no more than two batches are kept, however long a turn of the loop is
            self._to_read(*full)
            self._plan_turn()
        elif not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(SECONDS, self._in_time)

    def _in_time(self) -> None:
        self._is_timed = False
        self.flush()

    def _plan_turn(self) -> None:
        """If somebody has to read, let one reader read in the next turn of the loop."""
        if self._unread and not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        if self._unread:
            self._read_next()
        self._plan_turn()

    def flush(self) -> None:
        """Hand over what has been collected."""
        self._to_read(*self._collected())
        self._read_all()

    def _collected(self) -> tuple[list[RequestKind], list[Any]]:
        """Take the collected records, and begin anew."""
        kinds, own, failed = self._kinds, self._own, self._failed
        self._kinds, self._own, self._failed = [], [], []
        for at, record in failed:
            fields = read(record)
            kinds[at] = kind_with[fields[KIND]]
            own[at * WIDTH : (at + 1) * WIDTH] = fields[OWN]
        return kinds, own

    def _to_read(self, kinds: list[RequestKind], own: list[Any]) -> None:
        """Make a batch of these for the readers. No error of that reaches the reply of the request that was last."""
        if not kinds:
            return
        try:
            batch = Batch(kinds, own)
        except Exception:
            log.exception("%d requests that have ended are not counted and not logged", len(kinds))
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
            log.exception("a reader of requests that have ended failed")
