"""Requests that have ended, many at once: what several have in common is looked at once, and their numbers are columns.

A Record is read when its request ends, while it is in the processor's caches, and is then free. A batch is made of what
was read of many, which is one list, without a statement of Python for each request: slices, `zip`, `map` and `struct`
are written in C.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from struct import pack_into
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from gateway.core.record import Record

MOST_KINDS = 4096
"""Kinds that are kept. Clients choose names of models, so there is no end to them."""

SECONDS, DECODE, ENCODE, UPSTREAM, QUEUED, BYTES_IN, BYTES_OUT, RETRIES, ENDED = range(9)
"""The rows of `Batch.numbers`: `Record.seconds`, and the fields of the same names."""


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
        """With the values that a Batch looks it up by."""
        self.principal, self.listener, self.operation, self.model = principal, listener, operation, model
        self.in_protocol, self.out_protocol = in_protocol, out_protocol
        self.route, self.backend, self.endpoint = route, asked or first_backend, endpoint
        self.status, self.reason, self.tries, self.code = status, reason, tries, code
        self.cache = cache


_Key: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str, str, str, int, int, str]
"""The arguments of RequestKind."""


class _Kinds(dict[_Key, RequestKind]):
    def __missing__(self, key: _Key) -> RequestKind:
        if len(self) >= MOST_KINDS:
            self.clear()
        kind = self[key] = RequestKind(*key)
        return kind


_kinds = _Kinds()


read: Callable[[Record], tuple[Any, ...]] = astuple
"""What a batch is made of: the WIDTH fields of a request that has ended, in their order."""

WIDTH = len(Record.__struct_fields__)
_places = {name: place for place, name in enumerate(Record.__struct_fields__)}

_NEEDED = (
    "asked", "bytes_in", "bytes_out", "cache", "client", "code", "decode", "destination", "encode", "ended", "id",
    "in_protocol", "losses", "model", "of_listener", "operation", "principal", "queued", "reason", "received",
    "retries", "server", "status", "tries", "upstream",
)  # fmt: skip
"""The fields that a batch is made of."""

_listener, _out_protocol = attrgetter("listener"), attrgetter("protocol.name")
_route, _backend, _name, _address = map(attrgetter, ("route", "backend", "name", "address"))


class Batch:
    """Requests in the order of their ends.

    - `kinds`, `ids`, `clients`, `losses`: of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("clients", "ids", "kinds", "losses", "numbers")

    def __init__(self, fields: list[Any]) -> None:
        """With what was read of each request, one after the other; of one at least."""
        of = {name: fields[_places[name] :: WIDTH] for name in _NEEDED}
        self.ids: Sequence[str] = of["id"]
        self.clients: Sequence[str] = of["client"]
        self.losses: Sequence[tuple[str, ...]] = of["losses"]
        keys = zip(
            of["principal"], map(_listener, of["of_listener"]), of["in_protocol"], map(_out_protocol, of["asked"]),
            of["operation"], of["model"], map(_route, of["destination"]), map(_backend, of["destination"]),
            map(_name, of["asked"]), map(_address, of["server"]), of["status"], of["reason"], of["tries"], of["code"],
            of["cache"], strict=True,
        )  # fmt: skip
        self.kinds: Sequence[RequestKind] = list(map(_kinds.__getitem__, keys))
        rows = (
            of["received"], of["decode"], of["encode"], of["upstream"], of["queued"], of["bytes_in"], of["bytes_out"],
            of["retries"], of["ended"],
        )  # fmt: skip
        self.numbers: NDArray[np.float64] = np.empty((len(rows), len(self.ids)))
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
