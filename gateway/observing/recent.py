"""The last requests, for the console: what the access log tells of each, in bounded memory.

They are kept as the batches in which they came, so that keeping them costs the same for any number of them.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.core.record import OK
from gateway.observing.access_lines import LONGEST_NAME
from gateway.observing.access_log import is_probe
from gateway.observing.batches import (
    BYTES_IN,
    BYTES_OUT,
    ENDED,
    QUEUED,
    RETRIES,
    SECONDS,
    UPSTREAM,
    Batch,
    RequestKind,
)

MOST_RECENT = 1000
"""Requests that are kept, and as many that failed. A batch is kept whole, and up to 511 more with it. 1000 requests
that come one by one take 0.8 MB, and with the longest names that clients may choose 5 MB."""


class RecentRequest(Struct, frozen=True):
    """A request that has ended. It has no values of headers, no keys, no tensors and no text of an error, as the access
    log has none.

    `ended`: on the clock `time.monotonic`. `seconds`: from its arrival to the end of the reply; `queued` and `upstream`
    are those of them in queues of backends and for calls to endpoints. `client`: `host:port`. `losses`: what a
    translation lost. The others are as in a Record.
    """

    kind: RequestKind
    id: str
    client: str
    losses: tuple[str, ...]
    ended: float
    seconds: float
    queued: float
    upstream: float
    bytes_in: int
    bytes_out: int
    retries: int

    @property
    def model(self) -> str:
        """The model's name, cut after 256 characters as in the access log."""
        return self.kind.model[:LONGEST_NAME]


class RecentRequests:
    """The last MOST_RECENT requests, and the last MOST_RECENT that failed: many that succeed do not push these out.
    Probes that succeeded are left out."""

    def __init__(self) -> None:
        self._all = _Batches()
        self._failed = _Batches()

    def keep(self, batch: Batch) -> None:
        """Keep requests that have ended."""
        kinds = set(batch.kinds)
        probes = {kind for kind in kinds if is_probe(kind) and not has_failed(kind)}
        failed = {kind for kind in kinds if has_failed(kind)}
        if probes:
            places = [at for at, kind in enumerate(batch.kinds) if kind not in probes]
            if not places:
                return
            batch = batch.only(places)
        self._all.add(batch)
        if failed:
            self._failed.add(batch.only([at for at, kind in enumerate(batch.kinds) if kind in failed]))

    def take(self) -> "RecentRequests":
        """Take what is kept, for `add` of another process, and begin anew."""
        taken = RecentRequests()
        taken._all, self._all = self._all, taken._all
        taken._failed, self._failed = self._failed, taken._failed
        return taken

    def add(self, other: "RecentRequests") -> None:
        """Keep what `other` has kept."""
        for batch in other._all.batches:
            self._all.add(batch)
        for batch in other._failed.batches:
            self._failed.add(batch)

    def numbers(self, is_wanted: Callable[[RequestKind], bool]) -> tuple[Counter[RequestKind], NDArray[np.float64]]:
        """How many of the last MOST_RECENT requests are of each kind that is wanted, and their numbers as in
        `Batch.numbers`. The failed ones that are kept longer are left out: with them failures would seem frequent."""
        kinds: Counter[RequestKind] = Counter()
        found = [np.empty((ENDED + 1, 0))]
        for batch in self._all.batches:
            wanted = {kind for kind in set(batch.kinds) if is_wanted(kind)}
            places = [at for at, kind in enumerate(batch.kinds) if kind in wanted] if wanted else []
            kinds.update(map(batch.kinds.__getitem__, places))
            found.append(batch.numbers[:, places])
        return kinds, np.concatenate(found, axis=1)

    def __iter__(self) -> Iterator[RecentRequest]:
        """The requests, each once, the newest first."""
        seen: set[tuple[str, float]] = set()
        found = sorted([*self._all, *self._failed], key=lambda each: each.ended, reverse=True)
        for each in found:
            if (each.id, each.ended) not in seen:
                seen.add((each.id, each.ended))
                yield each


class _Batches:
    """The newest batches that have MOST_RECENT requests together."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self._size = 0

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._size += len(batch)
        while self._size - len(self.batches[0]) >= MOST_RECENT:
            self._size -= len(self.batches.popleft())

    def __iter__(self) -> Iterator[RecentRequest]:
        for batch in self.batches:
            yield from _requests(batch)


def has_failed(kind: RequestKind) -> bool:
    """Whether requests of this kind ended with an error, of the gateway's or of the wire's own."""
    return kind.status != OK or kind.code >= 400


def _requests(batch: Batch) -> Iterable[RecentRequest]:
    rows: Any = batch.numbers.tolist()
    for kind, id, client, losses, *row in zip(batch.kinds, batch.ids, batch.clients, batch.losses, *rows, strict=True):
        sizes = int(row[BYTES_IN]), int(row[BYTES_OUT]), int(row[RETRIES])
        yield RecentRequest(kind, id, client, losses, row[ENDED], row[SECONDS], row[QUEUED], row[UPSTREAM], *sizes)
