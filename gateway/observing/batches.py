"""Requests that have ended, many at once: what several have in common is looked at once, and their numbers are columns.

A Record is read when its request ends, while it is in the processor's caches, and is then free. A batch is made of what
was read without a statement of Python for each request: `zip` and `struct` are written in C.
"""

from collections.abc import Sequence
from itertools import chain
from struct import pack_into
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.core.record import Record

MOST_KINDS = 4096
"""Kinds that are kept. Clients choose names of models, so there is no end to them."""

SECONDS, DECODE, ENCODE, UPSTREAM, QUEUED, BYTES_IN, BYTES_OUT, RETRIES, ENDED = range(9)
"""The rows of `Batch.numbers`: `Record.seconds`, and the fields of the same names."""

_ROWS = 9


class RequestKind:
    """What many requests have in common: the fields of their Records that are no measurements. There is one object for
    each combination, so that it can be compared and looked up by its identity."""

    __slots__ = (
        "backend", "cache", "code", "endpoint", "in_protocol", "listener", "model", "operation", "out_protocol",
        "principal", "reason", "route", "status", "tries",
    )  # fmt: skip

    def __init__(
        self, principal: str, listener: str, in_protocol: str, out_protocol: str, operation: str, model: str,
        route: str, first_backend: str, asked: str, endpoint: str, status: str, reason: str, tries: int, code: int,
        cache: str,
    ) -> None:  # fmt: skip
        """With the values that `read` looks it up by."""
        self.principal, self.listener, self.operation, self.model = principal, listener, operation, model
        self.in_protocol, self.out_protocol = in_protocol, out_protocol
        self.route, self.backend, self.endpoint = route, asked or first_backend, endpoint
        self.status, self.reason, self.tries, self.code = status, reason, tries, code
        self.cache = cache


_Fields: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str, str, str, int, int, str]
"""The arguments of RequestKind."""


class _Kinds(dict[_Fields, RequestKind]):
    def __missing__(self, fields: _Fields) -> RequestKind:
        if len(self) >= MOST_KINDS:
            self.clear()
        kind = self[fields] = RequestKind(*fields)
        return kind


_kinds = _Kinds()


EndedRequest: TypeAlias = tuple[
    RequestKind, str, str, tuple[str, ...], float, float, float, float, float, int, int, int, float
]
"""What a batch keeps of a request: its kind, id, client and losses, and its column of `Batch.numbers`."""


def read(record: Record) -> EndedRequest:
    """What a batch keeps of a request that has ended. Names are read without the properties that Record has for them,
    which would be calls of Python."""
    asked, way = record.asked, record.destination
    return (
        _kinds[
            record.principal, record.of_listener.listener, record.in_protocol, asked.protocol.name, record.operation,
            record.model, way.route, way.backend, asked.name, record.server.address, record.status, record.reason,
            record.tries, record.code, record.cache
        ],
        record.id, record.client, record.losses, record.ended - record.received, record.decode, record.encode,
        record.upstream, record.queued, record.bytes_in, record.bytes_out, record.retries, record.ended,
    )  # fmt: skip


class Batch:
    """Requests in the order of their ends.

    - `kinds`, `ids`, `clients`, `losses`: of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("clients", "ids", "kinds", "losses", "numbers")

    def __init__(self, requests: Sequence[EndedRequest]) -> None:
        """With one request at least."""
        self.kinds: Sequence[RequestKind]
        self.ids: Sequence[str]
        self.clients: Sequence[str]
        self.losses: Sequence[tuple[str, ...]]
        self.kinds, self.ids, self.clients, self.losses, *columns = zip(*requests, strict=True)
        self.numbers: NDArray[np.float64] = np.empty((_ROWS, len(requests)))
        # `struct` takes numbers of Python in half the time that numpy takes.
        pack_into(f"{self.numbers.size}d", self.numbers.data, 0, *chain.from_iterable(columns))

    def __len__(self) -> int:
        return len(self.kinds)

    def only(self, places: Sequence[int]) -> "Batch":
        """The requests at these places."""
        found = Batch.__new__(Batch)
        found.kinds = [self.kinds[at] for at in places]
        found.ids = [self.ids[at] for at in places]
        found.clients = [self.clients[at] for at in places]
        found.losses = [self.losses[at] for at in places]
        found.numbers = self.numbers[:, places]
        return found
