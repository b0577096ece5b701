"""Requests that have ended, many at once: what several have in common is looked at once, and their numbers are columns.

A batch is read several times (`finished`). Reading an attribute of each Record costs more than what is then done with
it, so each is read once, here: in a comprehension, where Python finds a slot by its place. In all else no statement of
Python runs for each Record: `map` calls what is written in C.
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
        """With the values of `_fields_of_each`."""
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


def _fields_of_each(records: Sequence[Record]) -> list[_Fields]:
    """The fields of Records that are no measurements. They are read without the properties that Record has for them,
    which would be calls of Python."""
    return [
        (
            each.principal, each.listener, each.in_protocol, (asked := each.asked).protocol.name, each.operation,
            each.model, (way := each.destination).route, way.backend, asked.name, each.server.address, each.status,
            each.reason, each.tries, each.code, each.cache,
        )
        for each in records
    ]  # fmt: skip


def _numbers_of_each(records: Sequence[Record]) -> list[tuple[float, ...]]:
    """The fields that are the rows of `Batch.numbers`, with the time of the arrival for SECONDS."""
    return [
        (
            each.received, each.decode, each.encode, each.upstream, each.queued, each.bytes_in, each.bytes_out,
            each.retries, each.ended,
        )
        for each in records
    ]  # fmt: skip


class Batch:
    """Requests in the order of their ends.

    - `records`, `kinds`: of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("kinds", "numbers", "records")

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.kinds: list[RequestKind] = list(map(_kinds.__getitem__, _fields_of_each(records)))
        read = np.empty(_ROWS * len(records))
        # `struct` takes numbers of Python in half the time that numpy takes.
        pack_into(f"{len(read)}d", read.data, 0, *chain.from_iterable(_numbers_of_each(records)))
        self.numbers: NDArray[np.float64] = read.reshape(len(records), _ROWS).T
        self.numbers[SECONDS] = self.numbers[ENDED] - self.numbers[SECONDS]

    def __len__(self) -> int:
        return len(self.records)

    def only(self, places: Sequence[int]) -> "Batch":
        """The requests at these places."""
        found = Batch.__new__(Batch)
        found.records = [self.records[at] for at in places]
        found.kinds = [self.kinds[at] for at in places]
        found.numbers = self.numbers[:, places]
        return found
