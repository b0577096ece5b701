"""Requests that have ended, many at once: what several have in common is looked at once, and their numbers are columns.

A batch is read several times (`finished`). Reading an attribute of each Record costs more than what is then done with
it, so each is read once, here.
"""

from collections.abc import Sequence
from struct import pack
from typing import TypeAlias

import numpy as np
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
        route: str, backend: str, endpoint: str, status: str, reason: str, tries: int, code: int,
        cache: str,
    ) -> None:  # fmt: skip
        self.principal, self.listener, self.operation, self.model = principal, listener, operation, model
        self.in_protocol, self.out_protocol = in_protocol, out_protocol
        self.route, self.backend, self.endpoint = route, backend, endpoint
        self.status, self.reason, self.tries, self.code = status, reason, tries, code
        self.cache = cache


_Fields: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str, str, int, int, str]
"""The arguments of RequestKind."""


class _Kinds(dict[_Fields, RequestKind]):
    def __missing__(self, fields: _Fields) -> RequestKind:
        if len(self) >= MOST_KINDS:
            self.clear()
        kind = self[fields] = RequestKind(*fields)
        return kind


_kinds = _Kinds()


class Batch:
    """Requests in the order of their ends.

    - `records`, `kinds`: of each request.
    - `numbers`: FP64[9, requests], a column for each request; the rows are SECONDS to ENDED.
    """

    __slots__ = ("kinds", "numbers", "records")

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.kinds: list[RequestKind] = []
        kinds, add = _kinds, self.kinds.append
        numbers: list[float] = []
        more = numbers.extend
        for each in records:
            add(
                kinds[
                    each.principal, each.listener, each.in_protocol, each.asked.protocol.name, each.operation,
                    each.model, each.destination.route, each.asked.name or each.destination.backend,
                    each.server.address, each.status, each.reason, each.tries, each.code, each.cache,
                ]
            )  # fmt: skip
            more(
                (
                    each.ended - each.received, each.decode, each.encode, each.upstream, each.queued,
                    each.bytes_in, each.bytes_out, each.retries, each.ended,
                )
            )  # fmt: skip
        # numpy takes four times as long to read a list.
        packed = pack(f"{len(numbers)}d", *numbers)
        self.numbers: NDArray[np.float64] = np.frombuffer(packed).reshape(len(records), 9).T

    def __len__(self) -> int:
        return len(self.records)

    def only(self, places: Sequence[int]) -> "Batch":
        """The requests at these places."""
        found = Batch.__new__(Batch)
        found.records = [self.records[at] for at in places]
        found.kinds = [self.kinds[at] for at in places]
        found.numbers = self.numbers[:, places]
        return found
