"""The allowances of clients that several gateways share, kept in Redis or Valkey.

Each request is one script on the server, which is atomic and uses the server's clock, so that the clocks of the
gateways do not matter. The package `redis` is imported only where a policy names a server.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from gateway.core.log_limit import LogLimit
from gateway.core.redis import connection_pool

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

log = logging.getLogger(__name__)

SECONDS = 0.1
"""The longest that a request waits for the server."""
PAUSE = 1.0
"""The seconds without any question to a server that did not answer."""
# The same bucket as `Allowances`: the value is the time at which it will be full.
_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local interval, spread = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + interval
local wait = full_at - now - spread
if wait > interval * 0.001 then
  return string.format('%.6f', wait)
end
redis.call('SET', KEYS[1], string.format('%.6f', full_at), 'PX', math.ceil((full_at - now) * 1000))
return '0'
"""


class SharedAllowances:
    """The buckets of all clients, as `Allowances` has them, at a Redis server."""

    def __init__(
        self, url: str, prefix: str, interval: float, burst: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self.place = ""
        """Where it is configured, for log lines."""
        self._url = url
        self._prefix = prefix
        self._arguments = (repr(interval), repr(interval * burst))
        self._clock = clock
        self._pool: BlockingConnectionPool | None = None
        self._script: Any = None
        self._asks_from = 0.0
        """No question is sent before this time."""
        self._fails = False
        self._lines = LogLimit(log)

    @property
    def is_reached(self) -> bool:
        """Whether the server answered the last question."""
        return not self._fails

    async def take(self, client: str) -> float | None:
        """Take a token of `client`. Returns 0.0; or, without taking anything, the seconds until there is one; None if
        the server does not answer."""
        now = self._clock()
        if now < self._asks_from:
            return None
        if self._fails:
            self._asks_from = now + PAUSE  # one question is enough to find out whether the server is back
        try:
            async with asyncio.timeout(SECONDS):
                wait = float(await self._take(client))
        except Exception as error:  # redis has errors of its own; others come from the socket and from the timeout
            self._failed(error)
            return None
        if self._fails:
            self._fails, self._asks_from = False, 0.0
            self._lines.write("back", logging.INFO, "%s: Redis answers again; the limit is shared", self.place)
        return wait

    async def _take(self, client: str) -> bytes:
        if self._pool is None:
            from redis.asyncio import Redis

            self._pool = connection_pool(self._url)
            self._script = Redis(connection_pool=self._pool).register_script(_SCRIPT)
        answer: bytes = await self._script(keys=[f"{self._prefix}{client}"], args=self._arguments)
        return answer

    def _failed(self, error: Exception) -> None:
        self._fails, self._asks_from = True, self._clock() + PAUSE
        # The texts of the package's errors name hosts and ports, but no passwords.
        text = (
            f"no answer within {SECONDS:g} s" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        )
        self._lines.write("failed", logging.WARNING, "%s: Redis fails: %s", self.place, text)

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._pool is not None:
            await self._pool.disconnect()
            self._pool = None
