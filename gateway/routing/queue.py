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

Invariants: a client without waiting calls is not kept, nor is a model without any; `_waiting` is the sum over all
clients.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from gateway.core.errors import Reason, refusal

T = TypeVar("T")

Waiters: TypeAlias = deque[asyncio.Future[T]]
"""The waiting calls of one client and model, the oldest first."""


class _Client(Generic[T]):
    """The waiting calls of one client, by model. The model whose turn it is comes first."""

    __slots__ = ("models", "waiting")

    def __init__(self) -> None:
        self.models: OrderedDict[str, Waiters[T]] = OrderedDict()
        self.waiting = 0


class FairQueue(Generic[T]):
    """A queue of at most `limit` waiters. A waiter is a future of the slot (T) that it will be given."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._clients: OrderedDict[str, _Client[T]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, client: str, model: str) -> "asyncio.Future[T]":
        """Add a waiter behind the client's others for `model`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the client has as many waiting as there are free places.
        """
        entry = self._clients.get(client)
        own = entry.waiting if entry else 0
        if own >= self._limit - self._waiting:
            text = f"backend {self._name!r}: {self._waiting} calls are waiting already, {own} of them from this client"
            raise refusal(Reason.OVERLOADED, f"{text}; try again later")
        if entry is None:
            entry = self._clients[client] = _Client()
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        entry.models.setdefault(model, deque()).append(waiter)
        entry.waiting += 1
        self._waiting += 1
        return waiter

    def leave(self, client: str, model: str, waiter: "asyncio.Future[T]") -> None:
        """Remove a waiter whose client has gone."""
        entry = self._clients.get(client)
        waiters = entry.models.get(model) if entry else None
        if entry is None or waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._removed(client, entry, model, waiters)

    def next(self) -> "asyncio.Future[T] | None":
        """Remove and return the waiter whose turn it is; None if nobody waits."""
        while self._clients:
            client, entry = next(iter(self._clients.items()))
            model, waiters = next(iter(entry.models.items()))
            waiter = waiters.popleft()
            entry.models.move_to_end(model)
            self._clients.move_to_end(client)
            self._removed(client, entry, model, waiters)
            if not waiter.done():  # cancelled already, but its task has not called `leave` yet
                return waiter
        return None

    def fail(self, error: Callable[[], Exception]) -> None:
        """Remove all waiters; each gets an `error` of its own."""
        while (waiter := self.next()) is not None:
            waiter.set_exception(error())

    def _removed(self, client: str, entry: _Client[T], model: str, waiters: Waiters[T]) -> None:
        """Update the counts after one of `waiters` was removed."""
        self._waiting -= 1
        entry.waiting -= 1
        if not waiters:
            del entry.models[model]
        if not entry.models:
            del self._clients[client]
