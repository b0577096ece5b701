"""The order `longest_first` of a queue: which calls take long is learned from those that have ended.

Calls of one kind take about as long as each other: those of one model, version and operation with equal parameters,
such as UM-Bridge's `config`. The waiting calls whose kind took longest so far go first: if a long call begins last,
the other servers are idle until it ends.

Clients still take turns, as in the fair queue. Within a client the longest kind takes the place of turns over models:

    client A   fine (1 s): a2       coarse (20 ms): a1 a3      next: a2 (A), b1 (B), a1 (A), b2 (B), a3 (A)
    client B   coarse (20 ms): b1 b2

Equally long calls: the one that joined first. A kind that no call has ended of is taken to be as long as the calls of
its model with other parameters. If there are none either, it goes first: it is known soonest so, and as long as all
others have ended and it has not, it is the longest.

A call is passed over at most `passed_over` times: by so many calls of its client that joined later. Then it is next.
"""

from bisect import bisect, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import inf
from typing import Generic, TypeAlias, TypeVar
from zlib import crc32

from gateway.core.types import ParameterValue, Request
from gateway.routing.queue import FairQueue, Fits, SlotTimes, Waiter, sooner

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Model: TypeAlias = tuple[str, str, str]
"""A model's name, its version, and the operation."""
CallKind: TypeAlias = tuple[Model, int]
"""The model and a checksum of the parameters, which calls have in common that take about as long as each other."""

MOST_KINDS = 1024
"""How many kinds, and how many models, are remembered: those of which a call has ended last."""
NEWEST_SHARE_OF_KIND = 0.25
"""The share of the newest measurement in the mean time of a kind. It is large: the first calls of a server that loads
or compiles something are not remembered for long."""


LONGEST_TEXT = 4096
"""Characters of a parameter that count as a whole. Of a longer one its length and its ends do: a large `config` is not
read again for each call that waits or ends."""
_END = LONGEST_TEXT // 2


def kind_of(request: Request) -> CallKind:
    """The kind of a call. It is the same in all processes of a gateway."""
    parameters = {} if request.unread is not None else request.parameters
    told = [(name, _counted(each)) for name, each in sorted(parameters.items())]
    checksum = crc32(repr(told).encode()) if told else 0
    return (request.model, request.version, request.operation.value), checksum


def _counted(parameter: ParameterValue) -> object:
    """The part of a parameter that counts."""
    if not isinstance(parameter, str) or len(parameter) <= LONGEST_TEXT:
        return parameter
    return len(parameter), parameter[:_END], parameter[-_END:]


class _Means(Generic[K]):
    """Exponentially weighted means by key, of the MOST_KINDS keys that were added to last."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: OrderedDict[K, float] = OrderedDict()

    def add(self, key: K, seconds: float) -> None:
        mean = self.by_key.pop(key, seconds)
        self.by_key[key] = mean + NEWEST_SHARE_OF_KIND * (seconds - mean)
        if len(self.by_key) > MOST_KINDS:
            self.by_key.popitem(last=False)


class KindTimes(SlotTimes):
    """How long calls hold a slot: of all together, and of each kind."""

    __slots__ = ("_kinds", "_models")

    def __init__(self) -> None:
        super().__init__()
        self._kinds: _Means[CallKind] = _Means()
        self._models: _Means[Model] = _Means()

    def __len__(self) -> int:
        """How many kinds are known."""
        return len(self._kinds.by_key)

    def add(self, seconds: float, request: Request) -> None:
        """As SlotTimes'."""
        super().add(seconds, request)
        kind = kind_of(request)
        self._kinds.add(kind, seconds)
        self._models.add(kind[0], seconds)

    def of(self, kind: CallKind) -> float:
        """The seconds that a call of this kind is expected to take; infinite if nothing is known."""
        seconds = self._kinds.by_key.get(kind)
        return self._models.by_key.get(kind[0], inf) if seconds is None else seconds

    def adopt(self, other: SlotTimes) -> None:
        """Know what `other` has learned about kinds, of the backend that had the same name before."""
        if isinstance(other, KindTimes):
            self._kinds.by_key.update(other._kinds.by_key)
            self._models.by_key.update(other._models.by_key)


class LongestFirstQueue(FairQueue[T]):
    """A FairQueue whose clients have their calls in lines by kind; that of the longest is served first."""

    def __init__(
        self,
        name: str,
        limit: int,
        until: Callable[[int], float | None],
        seconds_of: Callable[[CallKind], float],
        passed_over: int,
    ) -> None:
        super().__init__(name, limit, until)
        self._seconds_of: Callable[..., float] = seconds_of
        self._passed_over = passed_over
        self._last = 0
        self._numbers: dict[Waiter[T], int] = {}
        """In which order the waiters have joined."""
        self._overtakers: dict[str, list[int]] = {}
        """The numbers of each client's calls that were served before its oldest waiting one, and joined later. Those
        that joined after another waiting one are the last of them."""

    def join(self, client: str, line: Hashable) -> Waiter[T]:
        """As the FairQueue's."""
        waiter = super().join(client, line)
        self._last += 1
        self._numbers[waiter] = self._last
        return waiter

    def place(self, client: str, line: Hashable) -> int:
        """As the FairQueue's, by what is known now, and if no shorter call has been passed over too often."""
        entry = self._clients.get(client)
        if entry is None:
            return len(self._clients) + 1
        seconds = self._seconds_of(line)
        turn = sum(len(waiters) for each, waiters in entry.lines.items() if self._seconds_of(each) >= seconds)
        return turn + sooner({name: each.waiting for name, each in self._clients.items()}, client, turn) + 1

    def leave(self, client: str, line: Hashable, waiter: Waiter[T]) -> None:
        """As the FairQueue's."""
        super().leave(client, line, waiter)
        self._numbers.pop(waiter, None)
        self._forget(client)

    def next(self, fits: Fits | None = None) -> Waiter[T] | None:
        """As the FairQueue's."""
        while (found := self._first(fits)) is not None:
            client, line = found
            entry = self._clients[client]
            waiters = entry.lines[line]
            waiter = waiters.popleft()
            number = self._numbers.pop(waiter)
            self._clients.move_to_end(client)
            self._removed(client, entry, line, waiters)
            self._forget(client)
            if not waiter.done():  # cancelled already, but its task has not called `leave` yet
                if client in self._overtakers:
                    insort(self._overtakers[client], number)
                return waiter
        return None

    def _first(self, fits: Fits | None) -> tuple[str, Hashable] | None:
        for client in self._clients:
            if (line := self._first_line(client, fits)) is not None:
                return client, line
        return None

    def _first_line(self, client: str, fits: Fits | None) -> Hashable | None:
        """The line whose first waiter is next among those of the client that `fits` takes; None if there is none."""
        lines = self._clients[client].lines
        first = {line: self._numbers[waiters[0]] for line, waiters in lines.items() if fits is None or fits(line)}
        if not first:
            return None
        oldest = min(first, key=first.__getitem__)
        overtakers = self._overtakers.setdefault(client, [])
        del overtakers[: bisect(overtakers, first[oldest])]
        if len(overtakers) >= self._passed_over:
            return oldest
        return max(first, key=lambda line: (self._seconds_of(line), -first[line]))

    def _forget(self, client: str) -> None:
        """Forget the overtakers of a client that has no waiting calls."""
        if client not in self._clients:
            self._overtakers.pop(client, None)
