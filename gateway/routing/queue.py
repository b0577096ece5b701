"""Who is next when every endpoint of a backend is busy.

Clients take turns, and within a client its models do: how many calls or model names a client sends changes nothing for
the others. What waits of one client and model is served in the order of its arrival.

A client may have one more call waiting while it has fewer than there are free places. So a client that is alone can
fill half of the queue, and the next one half of what is left; where n clients ask for more than they can get, each of
them comes to have a share of 1/(n + 1), and as much stays free for those who come. (Shared buffers of network switches
are divided like this: Choudhury and Hahne, "Dynamic queue length thresholds in a shared memory ATM switch", with a
factor of 1.)
"""

import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeAlias, TypeVar

from gateway.core.errors import Reason, refusal

T = TypeVar("T")

Line: TypeAlias = deque[asyncio.Future[T]]


class _Client(Generic[T]):
    """The calls of one client, by model; the model whose turn it is comes first."""

    __slots__ = ("lines", "waiting")

    def __init__(self) -> None:
        self.lines: OrderedDict[str, Line[T]] = OrderedDict()
        self.waiting = 0


class FairQueue(Generic[T]):
    """At most `limit` waiters. A waiter is a future of the T (the slot) that it will be given."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._clients: OrderedDict[str, _Client[T]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, client: str, model: str) -> "asyncio.Future[T]":
        """A new waiter at the end of the client's line for `model`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED, overloaded, if the client has as many waiting as there are free places.
        """
        line = self._clients.get(client)
        own = line.waiting if line else 0
        if own >= self._limit - self._waiting:
            text = f"backend {self._name!r}: {self._waiting} calls are waiting already, {own} of them from this client"
            raise refusal(Reason.OVERLOADED, f"{text}; try again later")
        if line is None:
            line = self._clients[client] = _Client()
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        line.lines.setdefault(model, deque()).append(waiter)
        line.waiting += 1
        self._waiting += 1
        return waiter

    def leave(self, client: str, model: str, waiter: "asyncio.Future[T]") -> None:
        """Give the place up: the client has gone."""
        line = self._clients.get(client)
        waiters = line.lines.get(model) if line else None
        if line is None or waiters is None or waiter not in waiters:
            return
        waiters.remove(waiter)
        self._left(client, line, model, waiters)

    def next(self) -> "asyncio.Future[T] | None":
        """Take the waiter whose turn it is off the queue; None if nobody waits."""
        while self._clients:
            client, line = next(iter(self._clients.items()))
            model, waiters = next(iter(line.lines.items()))
            waiter = waiters.popleft()
            line.lines.move_to_end(model)
            self._clients.move_to_end(client)
            self._left(client, line, model, waiters)
            if not waiter.done():  # done: cancelled, and its task has not run yet to leave
                return waiter
        return None

    def _left(self, client: str, line: _Client[T], model: str, waiters: Line[T]) -> None:
        """One of `waiters` has been taken out."""
        self._waiting -= 1
        line.waiting -= 1
        if not waiters:
            del line.lines[model]
        if not line.lines:
            del self._clients[client]
