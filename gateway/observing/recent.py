"""The last requests, for the console: the data of the access log, in bounded memory.

Requests stay in the batches in which they arrive, so storing a batch costs the same for any number of requests.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gateway.core.record import OK
from gateway.observing.access_log import LONGEST_SHOWN_NAME, is_probe
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
"""Maximum number of stored requests, and of stored failed requests. Batches are not split, so up to 511 additional
requests can be stored. If all values differ, 1000 requests take 0.8 MB, or 5 MB with the longest names that clients can
choose."""


class RecentRequest(Struct, frozen=True):
    """A completed request. Like the access log, it contains no header values, keys, tensors or error messages.

    `ended` is on the clock `time.monotonic`. `seconds` is the time from the request's arrival to the end of the
    response; `queued` and `upstream` are the parts of this time spent in backend queues and in calls to endpoints.
    `client` is `host:port`. `losses` lists the information that a conversion lost. The other fields are the same as in
    a Record."""

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
        """Return the model's name, cut after 256 characters as in the access log."""
        return self.kind.model[:LONGEST_SHOWN_NAME]


class RecentRequests:
    """The last MOST_RECENT requests, without successful probes. The last MOST_RECENT failed requests are stored
    separately, so successful requests do not push them out. The last MOST_RECENT calls of graph steps are also stored
    separately."""

    def __init__(
        self, every: "_Batches | None" = None, failed: "_Batches | None" = None, steps: "_Batches | None" = None
    ) -> None:
        self._all = every or _Batches()
        self._failed = failed or _Batches()
        self._steps = steps or _Batches()

    def keep(self, batch: Batch) -> None:
        """Store completed requests."""
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

    def keep_steps(self, batch: Batch) -> None:
        """Store completed calls of graph steps."""
        self._steps.add(batch)

    def take(self) -> "RecentRequests":
        """Return the stored requests, to pass to `add` in another process, and remove them here."""
        taken = RecentRequests(self._all, self._failed, self._steps)
        self._all, self._failed, self._steps = _Batches(), _Batches(), _Batches()
        return taken

    def add(self, other: "RecentRequests") -> None:
        """Store the requests that `take` returned in another process."""
        for batch in other._all.batches:
            self._all.add(batch)
        for batch in other._failed.batches:
            self._failed.add(batch)
        for batch in other._steps.batches:
            self._steps.add(batch)

    def numbers(
        self, is_wanted: Callable[[RequestKind], bool], *, with_steps: bool = False
    ) -> tuple[Counter[RequestKind], NDArray[np.float64]]:
        """Return the number of requests of each wanted kind among the last MOST_RECENT requests, and their measurements
        as in `Batch.numbers`. Omit older failed requests, because failures would otherwise seem too frequent. If
        `with_steps` is set, include the last calls of graph steps."""
        kinds: Counter[RequestKind] = Counter()
        found = [np.empty((ENDED + 1, 0))]
        for batch in (*self._all.batches, *(self._steps.batches if with_steps else ())):
            wanted = {kind for kind in set(batch.kinds) if is_wanted(kind)}
            places = [at for at, kind in enumerate(batch.kinds) if kind in wanted] if wanted else []
            kinds.update(map(batch.kinds.__getitem__, places))
            found.append(batch.numbers[:, places])
        return kinds, np.concatenate(found, axis=1)

    def __iter__(self) -> Iterator[RecentRequest]:
        """Yield the requests without duplicates, newest first."""
        return self._sorted(self._all, self._failed)

    def with_steps(self) -> Iterator[RecentRequest]:
        """Yield the requests, and the calls of graph steps, which have no listener."""
        return self._sorted(self._all, self._failed, self._steps)

    def _sorted(self, *kept: Iterable[RecentRequest]) -> Iterator[RecentRequest]:
        seen: set[tuple[str, float]] = set()
        found = sorted(chain(*kept), key=lambda each: each.ended, reverse=True)
        for each in found:
            if (each.id, each.ended) not in seen:
                seen.add((each.id, each.ended))
                yield each


class _Batches:
    """The newest batches, which contain MOST_RECENT requests in total."""

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
    """Return True if requests of this kind ended with an error that the gateway or the protocol reports."""
    return kind.status != OK or kind.code >= 400


def _requests(batch: Batch) -> Iterable[RecentRequest]:
    rows: Any = batch.numbers.tolist()
    for kind, id, client, losses, *row in zip(batch.kinds, batch.ids, batch.clients, batch.losses, *rows, strict=True):
        yield RecentRequest(
            kind,
            id,
            client,
            losses,
            ended=row[ENDED],
            seconds=row[SECONDS],
            queued=row[QUEUED],
            upstream=row[UPSTREAM],
            bytes_in=int(row[BYTES_IN]),
            bytes_out=int(row[BYTES_OUT]),
            retries=int(row[RETRIES]),
        )
