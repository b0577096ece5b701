"""Queries a Redis or Valkey server that several gateways share, for `cache` and `rate_limit`. It imports the package
`redis` at the first query.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.core.log_limit import LogLimit
from gateway.core.redis import connection_pool

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

T = TypeVar("T")

log = logging.getLogger(__name__)

SECONDS = 0.1
"""Maximum time that a request waits for the server, in seconds."""
PAUSE = 1.0
"""The time for which the gateway sends no queries to a server that did not respond, in seconds."""


class SharedServer:
    """The server at `url`. `place` is the configuration entry that contains the URL, for log lines."""

    def __init__(self, url: str, place: Callable[[], str], clock: Callable[[], float] = monotonic) -> None:
        self._url = url
        self._place = place
        self._clock = clock
        self._pool: BlockingConnectionPool | None = None
        self._client: Any = None
        self._asks_from = 0.0
        """The time before which the gateway sends no queries."""
        self.is_reached = True
        """True if the server responded to the last query."""
        self._lines = LogLimit(log)

    async def ask(self, question: Callable[[Any], Awaitable[T]]) -> T | None:
        """Call `question` with a `redis.asyncio.Redis` and return the result, or None if the server does not
        respond."""
        now = self._clock()
        if now < self._asks_from:
            return None
        if not self.is_reached:
            self._asks_from = now + PAUSE  # one query is enough to detect that the server is back
        try:
            async with asyncio.timeout(SECONDS):
                found = await question(self._connected())
        except Exception as error:  # redis raises its own errors; others come from the socket and the timeout
            self._failed(error)
            return None
        if not self.is_reached:
            self.is_reached, self._asks_from = True, 0.0
            self._lines.write("back", logging.INFO, "%s: Redis answers again", self._place())
        return found

    def _connected(self) -> Any:
        if self._pool is None:
            from redis.asyncio import Redis

            self._pool = connection_pool(self._url)
            self._client = Redis(connection_pool=self._pool)
        return self._client

    def _failed(self, error: Exception) -> None:
        self.is_reached, self._asks_from = False, self._clock() + PAUSE
        # The package's error messages contain hosts and ports, but no passwords.
        text = (
            f"no response within {SECONDS:g} s"
            if isinstance(error, TimeoutError)
            else f"{type(error).__name__}: {error}"
        )
        self._lines.write("failed", logging.WARNING, "%s: Redis fails: %s", self._place(), text)

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._pool is not None:
            await self._pool.disconnect()
            self._pool = None
