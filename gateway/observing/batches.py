"""Requests that have ended, many at once: what several have in common is looked at once, and their numbers are columns.

A Record is read when its request ends, while it is in the processor's caches, and is then free. A batch of many is made
without a statement of Python for each: slices, `chain` and `struct` are written in C.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from struct import pack_into
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from gateway.core.record import Record

MOST_KINDS = 4096
"""Kinds that are kept. Clients choose names of models, so there is no end to them."""

SECONDS, DECODE, ENCODE, UPSTREAM, QUEUED, BYTES_IN, BYTES_OUT, RETRIES, ENDED = range(9)
"""The rows of `Batch.numbers`: `Record.seconds`, and the fields of the same names."""


class RequestKind(Struct, eq=False):
    """The fields of Records that are no measurements and that many requests have in common, in their order. There is
    one object for each combination, so that it can be compared and looked up by its identity."""

    listener: str
    in_protocol: str
    principal: str
    operation: str
    model: str
    route: str
    backend: str
    out_protocol: str
    endpoint: str
    status: str
    reason: str
    tries: int
    code: int
    cache: str
    read_for: str


class _Kinds(dict[tuple[Any, ...], RequestKind]):
    def __missing__(self, key: tuple[Any, ...]) -> RequestKind:
        if len(self) >= MOST_KINDS:
            self.clear()
        kind = self[key] = RequestKind(*key)
        return kind


kind_with: Mapping[tuple[Any, ...], RequestKind] = _Kinds()
"""The RequestKind with these values."""

read: Callable[[Record], tuple[Any, ...]] = astuple
"""The fields of a Record, in their order."""

_fields = Record.__struct_fields__
KIND = slice(_fields.index("read_for") + 1)
"""Those that a RequestKind has."""
OWN = slice(KIND.stop, _fields.index("losses") + 1)
"""Those that differ from request to request."""
WIDTH = OWN.stop - OWN.start
"""The number of those in OWN."""
_NUMBERS = ENDED + 1
_ID, _CLIENT, _LOSSES = range(_NUMBERS, WIDTH)


class Batch:
    """Requests in the order of their ends.

    - `kinds`, `ids`, `clients`, `losses`: of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("clients", "ids", "kinds", "losses", "numbers")

    def __init__(self, kinds: Sequence[RequestKind], own: list[Any]) -> None:
        """With the kind of each request, of one at least, and the fields in OWN, one request after the other."""
        self.kinds = kinds
        self.ids: Sequence[str] = own[_ID::WIDTH]
        self.clients: Sequence[str] = own[_CLIENT::WIDTH]
        self.losses: Sequence[tuple[str, ...]] = own[_LOSSES::WIDTH]
        self.numbers: NDArray[np.float64] = np.empty((_NUMBERS, len(kinds)))
        rows = [own[at::WIDTH] for at in range(_NUMBERS)]
        # `struct` takes numbers of Python in half the time that numpy takes.
        pack_into(f"{self.numbers.size}d", self.numbers.data, 0, *chain.from_iterable(rows))
        self.numbers[SECONDS] = self.numbers[ENDED] - self.numbers[SECONDS]

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
