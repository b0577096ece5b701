"""Completed requests in batches, which `finished` builds for the log, the metrics and the counters. Values that several
requests share are processed once; measurements are stored as columns of numbers.

Each Record is read when its request ends, while the Record is still in the processor's caches, and is then released.
Building a batch executes no Python statement per request, because slices, `chain` and `struct` are implemented in C.
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
"""Maximum number of cached kinds. Without this limit, the number of kinds would be unlimited, because clients choose
model names."""

SECONDS, DECODE, ENCODE, UPSTREAM, QUEUED, BYTES_IN, BYTES_OUT, RETRIES, ENDED = range(9)
"""The rows of `Batch.numbers`: `Record.seconds`, and the fields of the same names."""


class RequestKind(Struct, eq=False):
    """The fields of Records that are not measurements and that many requests share, in the order of Record's fields.
    Each combination of values has one object, so objects can be compared and looked up by identity."""

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
"""A function that returns the RequestKind with these values."""

read: Callable[[Record], tuple[Any, ...]] = astuple
"""A function that returns the fields of a Record, in the order of their declaration."""

_fields = Record.__struct_fields__
KIND = slice(_fields.index("read_for") + 1)
"""The fields of a RequestKind."""
OWN = slice(KIND.stop, _fields.index("losses") + 1)
"""The fields that differ from request to request."""
WIDTH = OWN.stop - OWN.start
"""The number of fields in OWN."""
_NUMBERS = ENDED + 1
_ID, _CLIENT, _LOSSES = range(_NUMBERS, WIDTH)


class Batch:
    """Completed requests, in the order in which they ended.

    - `kinds`, `ids`, `clients`, `losses`: the values of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("clients", "ids", "kinds", "losses", "numbers")

    def __init__(self, kinds: Sequence[RequestKind], own: list[Any]) -> None:
        """Create a batch of one or more requests from the kind of each request, and from the OWN fields of one request
        after another."""
        self.kinds = kinds
        self.ids: Sequence[str] = own[_ID::WIDTH]
        self.clients: Sequence[str] = own[_CLIENT::WIDTH]
        self.losses: Sequence[tuple[str, ...]] = own[_LOSSES::WIDTH]
        self.numbers: NDArray[np.float64] = np.empty((_NUMBERS, len(kinds)))
        rows = [own[at::WIDTH] for at in range(_NUMBERS)]
        # `struct` converts Python numbers in half the time that numpy needs.
        pack_into(f"{self.numbers.size}d", self.numbers.data, 0, *chain.from_iterable(rows))
        self.numbers[SECONDS] = self.numbers[ENDED] - self.numbers[SECONDS]

    def __len__(self) -> int:
        return len(self.kinds)

    def only(self, places: Sequence[int]) -> "Batch":
        """Return the requests at these positions."""
        found = Batch.__new__(Batch)
        found.kinds = [self.kinds[at] for at in places]
        found.ids = [self.ids[at] for at in places]
        found.clients = [self.clients[at] for at in places]
        found.losses = [self.losses[at] for at in places]
        found.numbers = self.numbers[:, places]
        return found
