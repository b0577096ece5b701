"""Token buckets of clients in Redis or Valkey, which several gateways share, for `rate_limit`.

Each request runs one script on the server. The script is atomic and uses the server's clock, so the gateways' clocks do
not matter.
"""

from typing import Any

from gateway.policies.shared_server import SharedServer

# Stores a bucket like `Allowances`: the value is the time at which the bucket is full.
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
    """The buckets of all clients, like `Allowances`, but stored on a server."""

    def __init__(self, server: SharedServer, prefix: str, interval: float, burst: int) -> None:
        self._server = server
        self._prefix = prefix
        self._arguments = (repr(interval), repr(interval * burst))
        self._script: Any = None

    async def take(self, client: str) -> float | None:
        """Take a token of `client` and return 0.0. If the bucket is empty, return the seconds until it contains a
        token. Return None if the server does not respond."""
        return await self._server.ask(lambda redis: self._take(redis, client))

    async def _take(self, redis: Any, client: str) -> float:
        if self._script is None:
            self._script = redis.register_script(_SCRIPT)
        keys = [f"{self._prefix}{client}"]
        return float(await self._script(keys=keys, args=self._arguments, client=redis))
