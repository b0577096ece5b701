"""The Redis or Valkey server that several gateways share, as requests ask it. The package `redis` is imported with the
first question."""

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
"""The longest that a request waits for the server."""
PAUSE = 1.0
"""The seconds without any question to a server that did not answer."""


class SharedServer:
    """The server at `url`. `place` tells where it is configured, for log lines."""

    def __init__(self, url: str, place: Callable[[], str], clock: Callable[[], float] = monotonic) -> None:
        self._url = url
        self._place = place
        self._clock = clock
        self._pool: BlockingConnectionPool | None = None
        self._client: Any = None
        self._asks_from = 0.0
        """No question is sent before this time."""
        self.is_reached = True
        """Whether the server answered the last question."""
        self._lines = LogLimit(log)

    async def ask(self, question: Callable[[Any], Awaitable[T]]) -> T | None:
        """The answer to `question`, which gets a `redis.asyncio.Redis`; None if the server does not answer."""
        now = self._clock()
        if now < self._asks_from:
            return None
        if not self.is_reached:
            self._asks_from = now + PAUSE  # one question is enough to find out whether the server is back
        try:
            async with asyncio.timeout(SECONDS):
                found = await question(self._connected())
        except Exception as error:  # redis has errors of its own; others come from the socket and from the timeout
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
        # The texts of the package's errors name hosts and ports, but no passwords.
        text = (
            f"no answer within {SECONDS:g} s" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        )
        self._lines.write("failed", logging.WARNING, "%s: Redis fails: %s", self._place(), text)

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._pool is not None:
            await self._pool.disconnect()
            self._pool = None
