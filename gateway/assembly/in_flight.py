"""Counts requests in flight and detects when the last one ends. Assembly and `runtime.workers.owner` use it."""

import asyncio


class RequestsInFlight:
    """Counts requests in flight and waits until none are left."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def began(self) -> None:
        """Add a request."""
        self._count += 1
        self._none.clear()

    def ended(self) -> None:
        """Remove a request."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def all_ended(self) -> None:
        """Return when the number is 0."""
        await self._none.wait()
