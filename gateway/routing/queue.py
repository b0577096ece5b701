"""Who is next when every endpoint of a backend is busy."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from gateway.core.errors import Reason, refusal

T = TypeVar("T")


class FairQueue(Generic[T]):
    """One FIFO per key, served round robin, so that no key's backlog holds up another's.

    A waiter is a future of the T (the slot) that it will be given.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._turns: OrderedDict[Hashable, deque[asyncio.Future[T]]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, key: Hashable) -> "asyncio.Future[T]":
        """A new waiter at the end of `key`'s line.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED, overloaded, if `limit` are waiting already.
        """
        if self._waiting >= self._limit:
            text = f"backend {self._name!r}: {self._waiting} calls are waiting already; try again later"
            raise refusal(Reason.OVERLOADED, text)
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._turns.setdefault(key, deque()).append(waiter)
        self._waiting += 1
        return waiter

    def leave(self, key: Hashable, waiter: "asyncio.Future[T]") -> None:
        """Give the place up: the client has gone."""
        line = self._turns.get(key)
        if line is None or waiter not in line:
            return
        line.remove(waiter)
        self._waiting -= 1
        if not line:
            del self._turns[key]

    def next(self) -> "asyncio.Future[T] | None":
        """Take the waiter whose turn it is off the queue; None if nobody waits."""
        while self._turns:
            waiter = self._pop()
            if not waiter.done():  # done: cancelled, and its task has not run yet to leave
                return waiter
        return None

    def _pop(self) -> "asyncio.Future[T]":
        key, line = next(iter(self._turns.items()))
        waiter = line.popleft()
        self._waiting -= 1
        if line:
            self._turns.move_to_end(key)
        else:
            del self._turns[key]
        return waiter
