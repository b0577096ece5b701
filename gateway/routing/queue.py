"""The fair queue of calls that wait while every endpoint of a backend is busy.

Order: round robin over clients, within a client round robin over its models, within a model first come, first served.
However many calls or model names one client sends, the others' turns come as often.

    client A   model x: a1 a3      next: a1 (A, x), b1 (B, x), a2 (A, y), b2 (B, x), a3 (A, x)
               model y: a2
    client B   model x: b1 b2

Space: a call is accepted while its client has fewer calls waiting than there are free places. A client that is alone
can fill half of the queue, the next one half of the rest. With n clients that ask for more than they can get, each ends
up with 1/(n + 1) of the places, and as many stay free for newcomers. This is the division of shared buffers in network
switches by dynamic thresholds with a factor of 1 (Choudhury and Hahne, "Dynamic queue length thresholds in a shared
memory ATM switch").

Invariants: a client without waiting calls is not kept, nor is a line without any; `_waiting` is the sum over all
clients.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from heapq import nlargest
from typing import Generic, TypeAlias, TypeVar

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import frozen

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Waiter: TypeAlias = asyncio.Future[T]
"""A waiting call: a future of the slot that it will be given."""
Waiters: TypeAlias = deque[Waiter[T]]
"""A line: waiting calls of one client that are alike, the oldest first. Here those for one model."""
Fits: TypeAlias = Callable[[Hashable], bool]
"""Whether the waiters in a line can be given the slot that is free."""


NEWEST_SHARE = 0.1
"""The share of the newest measurement in the mean time for which slots are held."""


@frozen
class QueueSettings:
    """`length`: the most calls that may wait. `timeout`: the seconds that each may wait; None: any time.
    `wait_for_endpoints`: the same while there is no endpoint; None: calls do not wait then."""

    length: int = 1000
    timeout: float | None = None
    wait_for_endpoints: float | None = None


class SlotTimes:
    """How long calls hold a slot: an exponentially weighted mean, of which the newest call has NEWEST_SHARE."""

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None
        """Seconds; None if no call has ended yet."""

    def add(self, seconds: float) -> None:
        """Note the time for which a call held its slot."""
        self.mean = seconds if self.mean is None else self.mean + NEWEST_SHARE * (seconds - self.mean)

    def until(self, place: int, slots: int) -> float | None:
        """The estimated seconds until the call at this place of a queue (1: the next one) has one of `slots`; None if
        nothing is known."""
        return self.mean * place / slots if self.mean is not None and slots else None


class _Client(Generic[T]):
    """The lines of one client. The one whose turn it is comes first."""

    __slots__ = ("lines", "waiting")

    def __init__(self) -> None:
        self.lines: OrderedDict[Hashable, Waiters[T]] = OrderedDict()
        self.waiting = 0


def _unknown(place: int) -> float | None:
    return None


class FairQueue(Generic[T]):
    """The queue of a backend without free slots: at most `limit` waiting calls, with one line per client.

    `until` estimates the seconds until the waiter at a place (1: the next one) gets its slot; None if nothing is known.
    """

    def __init__(self, name: str, limit: int, until: Callable[[int], float | None] = _unknown) -> None:
        self._name = name
        self._limit = limit
        self._until = until
        self._clients: OrderedDict[str, _Client[T]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, client: str, line: Hashable) -> Waiter[T]:
        """Add a waiter behind the client's others in `line`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the client has as many waiting as there are free places; its
                `retry_after` is the estimated time until one is free for it.
        """
        entry = self._clients.get(client)
        own = entry.waiting if entry else 0
        if own >= self._limit - self._waiting:
            text = f"backend {self._name!r}: {self._waiting} of {self._limit} places in the queue (queue.length) taken"
            missing = own - (self._limit - self._waiting) + 1
            # Every call that leaves the queue frees a place. If it is this client's, it also has one less waiting.
            turns = len(self._clients)
            leaving = math.ceil(missing * turns / (turns + 1)) if own else missing
            if own:
                text += f", {own} by this client, which may have as many calls waiting as there are free places"
            raise overloaded(f"{text}; try again later", self._until(leaving))
        if entry is None:
            entry = self._clients[client] = _Client()
        waiter: Waiter[T] = asyncio.get_running_loop().create_future()
        waiters = entry.lines.get(line)
        if waiters is None:
            waiters = entry.lines[line] = deque()
        waiters.append(waiter)
        entry.waiting += 1
        self._waiting += 1
        return waiter

    def place(self, client: str, line: Hashable) -> int:
        """The place that a new call would have if no others came: 1 if it would be the next to get a slot.

        A call that is the n-th of its client waits for the first n - 1 of all other clients, and for the n-th of those
        whose turn is sooner. The same holds for the lines of a client.
        """
        entry = self._clients.get(client)
        if entry is None:
            return len(self._clients) + 1
        own = len(entry.lines.get(line, ()))
        if len(self._clients) == len(entry.lines) == 1 and own:
            return own + 1
        turn = own + _sooner({name: len(waiters) for name, waiters in entry.lines.items()}, line, own)
        return turn + _sooner({name: each.waiting for name, each in self._clients.items()}, client, turn) + 1

    def longest(self, most: int) -> list[tuple[str, int]]:
        """The clients with the most waiting calls, at most so many of them, and the number of these calls."""
        counts = ((name, each.waiting) for name, each in self._clients.items())
        return nlargest(most, counts, key=lambda count: count[1])

    def leave(self, client: str, line: Hashable, waiter: Waiter[T]) -> None:
        """Remove a waiter whose client has gone."""
        entry = self._clients.get(client)
        waiters = entry.lines.get(line) if entry else None
        if entry is None or waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._removed(client, entry, line, waiters)

    def next(self, fits: Fits | None = None) -> Waiter[T] | None:
        """Remove and return the waiter whose turn it is among those in lines that `fits` takes (None: all); None if
        nobody waits there."""
        while (found := self._first(fits)) is not None:
            client, line = found
            entry = self._clients[client]
            waiters = entry.lines[line]
            waiter = waiters.popleft()
            entry.lines.move_to_end(line)
            self._clients.move_to_end(client)
            self._removed(client, entry, line, waiters)
            if not waiter.done():  # cancelled already, but its task has not called `leave` yet
                return waiter
        return None

    def _first(self, fits: Fits | None) -> tuple[str, Hashable] | None:
        """The client whose turn it is, and the line whose turn it is among its own that `fits` takes."""
        for client, entry in self._clients.items():
            for line in entry.lines:
                if fits is None or fits(line):
                    return client, line
        return None

    def fail(self, error: Callable[[], Exception], fits: Fits | None = None) -> None:
        """Remove all waiters, or those in lines that `fits` takes; each gets an `error` of its own."""
        while (waiter := self.next(fits)) is not None:
            waiter.set_exception(error())

    def _removed(self, client: str, entry: _Client[T], line: Hashable, waiters: Waiters[T]) -> None:
        """Update the counts after one of `waiters` was removed."""
        self._waiting -= 1
        entry.waiting -= 1
        if not waiters:
            del entry.lines[line]
        if not entry.lines:
            del self._clients[client]


def overloaded(text: str, seconds: float | None) -> GatewayError:
    """The error for a call that the backend has no room for, with the estimated seconds until it has."""
    return GatewayError(Reason.OVERLOADED.status, Reason.OVERLOADED, text, retry_after=seconds or 1.0)


def _sooner(waiting: dict[K, int], own: K, turn: int) -> int:
    """How many waiters of others are served before waiter number `turn` (0: the first) of `own`. `waiting` has their
    numbers in the order of their turns; `own` comes last if it is not among them."""
    count, is_before = 0, True
    for name, number in waiting.items():
        if name == own:
            is_before = False
        else:
            count += min(number, turn + is_before)
    return count
