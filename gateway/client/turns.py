"""The client's limit on calls in flight: each ModelServer has one Turns, at which additional calls wait."""

import asyncio
from types import TracebackType

from gateway.client.errors import Refused
from gateway.core.errors import Reason


class Turns:
    """A context manager for calls, which enter it in the order of their arrival.

    At most `most` calls run concurrently (0: no limit), and at most `most_waiting` calls wait (None: no limit).
    `address` is the server's address, for the error message."""

    def __init__(self, most: int, most_waiting: int | None, address: str) -> None:
        self.most = most
        self._address = address
        self._free = asyncio.Semaphore(most) if most else None
        self._most_waiting = most_waiting
        self._waiting = 0

    async def __aenter__(self) -> None:
        """Wait for the call's turn.

        Raises:
            Refused: the maximum number of waiting calls is reached.
        """
        if self._free is None:
            return
        if not self._free.locked():
            await self._free.acquire()  # does not wait: a slot is free
            return
        if self._most_waiting is not None and self._waiting >= self._most_waiting:
            text = f"{self._waiting} calls of this client wait for their turn, the most that `max_waiting` allows"
            text = f"{self._address}: {text}, while {self.most} are in flight (`max_in_flight`)"
            raise Refused(text, Reason.OVERLOADED.status, Reason.OVERLOADED, self._address)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._free is not None:
            self._free.release()
