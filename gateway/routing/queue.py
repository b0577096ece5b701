"""The fair queue of calls that wait while every endpoint of a backend is busy. `waiting` uses this module.

Clients take turns in round-robin order. The models of one client also take turns in round-robin order, and the calls
for one model are served first come, first served. Therefore, a client that sends more calls or more model names does
not delay the turns of other clients.

    client A   model x: a1 a3      next: a1 (A, x), b1 (B, x), a2 (A, y), b2 (B, x), a3 (A, x)
               model y: a2
    client B   model x: b1 b2

The queue accepts a call while its client has fewer waiting calls than the queue has free slots. A single client can
fill half of the queue, and the next client half of the rest. If n clients all send more calls than the queue accepts,
each client ends up with 1/(n + 1) of the queue, and the same amount stays free for new clients. Network switches divide
shared buffers in the same way, by dynamic thresholds with a factor of 1 (Choudhury and Hahne, "Dynamic queue length
thresholds in a shared memory ATM switch").

Invariants: every client in the queue has a waiting call, no line is empty, and `_waiting` is the sum over all clients.
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
"""A waiting call: a future for its slot."""
Waiters: TypeAlias = deque[Waiter[T]]
"""A line of one client's waiting calls for the same resource, oldest first.

In this module, the resource is a model.
"""
Fits: TypeAlias = Callable[[Hashable], bool]
"""Returns whether the waiters in a line can use the free slot."""


NEWEST_SHARE = 0.1
"""The weight of the newest measurement in the mean time that calls hold slots."""


@frozen
class QueueSettings:
    """The limits of a queue. `length` is the maximum number of waiting calls.

    `timeout` is the maximum time that a call waits, in seconds; None means no limit. `wait_for_endpoints` is the
    maximum time that a call waits for the first endpoint, in seconds; None means that calls do not wait."""

    length: int = 1000
    timeout: float | None = None
    wait_for_endpoints: float | None = None


class SlotTimes:
    """The time for which calls hold a slot: an exponentially weighted mean, in which the newest call has the weight
    NEWEST_SHARE."""

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None
        """The mean, in seconds; None before the first call has ended."""

    def add(self, seconds: float) -> None:
        """Add the time for which a call has held its slot."""
        self.mean = seconds if self.mean is None else self.mean + NEWEST_SHARE * (seconds - self.mean)

    def until(self, place: int, slots: int) -> float | None:
        """Estimate the time until the call at this queue position (1 is the next one) gets one of `slots`, in seconds.
        Return None if the mean is unknown."""
        return self.mean * place / slots if self.mean is not None and slots else None


class _Client(Generic[T]):
    """The lines of one client, in the order of their turns."""

    __slots__ = ("lines", "waiting")

    def __init__(self) -> None:
        self.lines: OrderedDict[Hashable, Waiters[T]] = OrderedDict()
        self.waiting = 0


def _unknown(place: int) -> float | None:
    return None


class FairQueue(Generic[T]):
    """The queue of at most `limit` calls that wait for a free slot of a backend, in one line per client and model.

    `until` estimates the time until the waiter at a position (1 is the next one) gets its slot, in seconds, or returns
    None."""

    def __init__(self, name: str, limit: int, until: Callable[[int], float | None] = _unknown) -> None:
        self._name = name
        self._limit = limit
        self._until = until
        self._clients: OrderedDict[str, _Client[T]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, client: str, line: Hashable) -> Waiter[T]:
        """Add a waiter to `line`, behind the client's other waiters.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the client already has at least as many waiting calls as
                the queue has free slots. `retry_after` is the estimated time until the queue can accept a call from
                this client.
        """
        entry = self._clients.get(client)
        own = entry.waiting if entry else 0
        if own >= self._limit - self._waiting:
            text = f"backend {self._name!r}: {self._waiting} of {self._limit} places in the queue (queue.length) taken"
            missing = own - (self._limit - self._waiting) + 1
            # Every call that leaves the queue frees a queue slot. If it is this client's, it also reduces the client's
            # waiting calls.
            turns = len(self._clients)
            leaving = math.ceil(missing * turns / (turns + 1)) if own else missing
            if own:
                text += f", {own} by this client, which can take only as many as are free"
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
        """Return the queue position that a new call would have if no other calls arrived. At position 1, a call is the
        next one to get a slot.

        A client's n-th call waits for the first n - 1 calls of every other client, and for the n-th call of each client
        whose turn is sooner. The same applies to the lines within a client."""
        entry = self._clients.get(client)
        if entry is None:
            return len(self._clients) + 1
        own = len(entry.lines.get(line, ()))
        if len(self._clients) == len(entry.lines) == 1 and own:
            return own + 1
        turn = own + _sooner({name: len(waiters) for name, waiters in entry.lines.items()}, line, own)
        return turn + _sooner({name: each.waiting for name, each in self._clients.items()}, client, turn) + 1

    def longest(self, most: int) -> list[tuple[str, int]]:
        """Return the `most` clients with the most waiting calls, and the number of each client's calls."""
        counts = ((name, each.waiting) for name, each in self._clients.items())
        return nlargest(most, counts, key=lambda count: count[1])

    def leave(self, client: str, line: Hashable, waiter: Waiter[T]) -> None:
        """Remove a waiter whose client has disconnected."""
        entry = self._clients.get(client)
        waiters = entry.lines.get(line) if entry else None
        if entry is None or waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._removed(client, entry, line, waiters)

    def next(self, fits: Fits | None = None) -> Waiter[T] | None:
        """Remove and return the waiter whose turn is next in the lines that `fits` accepts (None: all lines). Return
        None if these lines contain no waiter."""
        while (found := self._first(fits)) is not None:
            client, line = found
            entry = self._clients[client]
            waiters = entry.lines[line]
            waiter = waiters.popleft()
            entry.lines.move_to_end(line)
            self._clients.move_to_end(client)
            self._removed(client, entry, line, waiters)
            if not waiter.done():  # already cancelled, but its task has not called `leave` yet
                return waiter
        return None

    def _first(self, fits: Fits | None) -> tuple[str, Hashable] | None:
        """Return the client and the line whose turn is next among the lines that `fits` accepts."""
        for client, entry in self._clients.items():
            for line in entry.lines:
                if fits is None or fits(line):
                    return client, line
        return None

    def fail(self, error: Callable[[], Exception], fits: Fits | None = None) -> None:
        """Remove all waiters, or the waiters in lines that `fits` accepts. Each waiter gets its own `error`."""
        while (waiter := self.next(fits)) is not None:
            waiter.set_exception(error())

    def _removed(self, client: str, entry: _Client[T], line: Hashable, waiters: Waiters[T]) -> None:
        """Update the counts after the removal of one of `waiters`."""
        self._waiting -= 1
        entry.waiting -= 1
        if not waiters:
            del entry.lines[line]
        if not entry.lines:
            del self._clients[client]


def overloaded(text: str, seconds: float | None) -> GatewayError:
    """Return the error for a call that exceeds the backend's capacity. `seconds` is the estimated time until capacity
    is free."""
    return GatewayError(Reason.OVERLOADED.status, Reason.OVERLOADED, text, retry_after=seconds or 1.0)


def _sooner(waiting: dict[K, int], own: K, turn: int) -> int:
    """Return the number of other owners' waiters that come before waiter number `turn` (0 is the first) of `own`.

    `waiting` maps each owner to its number of waiters, in the order of turns. An owner `own` that `waiting` does not
    contain comes last.
    """
    count, is_before = 0, True
    for name, number in waiting.items():
        if name == own:
            is_before = False
        else:
            count += min(number, turn + is_before)
    return count
