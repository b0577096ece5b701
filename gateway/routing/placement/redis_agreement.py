"""Gateways in front of one fleet agree through Redis or Valkey who loads a model: by a lease of the model's name.

A lease is a key with the name of the gateway that has it, for LEASE_SECONDS; it is renewed while the load goes on, so
that one of a gateway that has ended is over soon. A gateway that finds a lease of another one waits until that is over,
and then asks the servers again who holds the model. While Redis does not answer, each gateway decides by itself, by
rendezvous hashing (`agreement`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import token_hex
from time import monotonic
from typing import Any, Protocol, TypeVar

from gateway.core.tasks import spawn

T = TypeVar("T")

log = logging.getLogger(__name__)

SECONDS = 0.5
"""The longest that a load waits for an answer of Redis."""
PAUSE = 5.0
"""The seconds without any question to a Redis that did not answer."""
LEASE_SECONDS = 15.0
RENEWED_SECONDS = 5.0
LOOK_SECONDS = 0.25
"""Seconds between two looks at the lease of another gateway."""
PATIENCE_SECONDS = 10.0
"""For how long a gateway waits for the lease of another one before it asks the servers what they have."""

_LEASE = round(LEASE_SECONDS * 1000)
_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisClient(Protocol):
    """The commands that are used of `redis.asyncio.Redis`."""

    def set(self, name: str, value: str, *, px: int, nx: bool) -> Awaitable[Any]:
        """SET, with PX and NX."""

    def exists(self, name: str) -> Awaitable[Any]:
        """EXISTS."""

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> Awaitable[Any]:
        """EVAL."""

    async def aclose(self) -> None:
        """Close the connections."""


class RedisAgreement:
    """A LoadCoordinator by leases. `fleet` is the same name in all gateways in front of one fleet, and of no other."""

    is_shared = True

    def __init__(
        self,
        client: RedisClient,
        fleet: str,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._clock = clock
        self._sleep = sleep
        self._name = token_hex(8)
        self._renewals: dict[str, asyncio.Task[None]] = {}
        self._asks_from = 0.0
        """No question is sent before this time."""
        self._fails = False

    async def claim(self, model: str, address: str) -> bool:
        """Whether this gateway may load the model now. False after another one has had the lease: it may have loaded
        the model meanwhile. Always True while Redis does not answer."""
        key, value = self._key(model), f"{self._name} {address}"
        taken = await self._asked(lambda: self._client.set(key, value, px=_LEASE, nx=True), default=True)
        if taken:
            if not self._fails:
                self._renewals[model] = spawn(self._renew(key, value))
            return True
        until = self._clock() + PATIENCE_SECONDS
        while self._clock() < until and await self._asked(lambda: self._client.exists(key), default=False):
            await self._sleep(LOOK_SECONDS)
        return False

    async def release(self, model: str, address: str) -> None:
        """End the lease: the load has ended."""
        if (renewal := self._renewals.pop(model, None)) is not None:
            renewal.cancel()
            key, value = self._key(model), f"{self._name} {address}"
            await self._asked(lambda: self._client.eval(_RELEASE, 1, key, value), default=0)

    async def close(self) -> None:
        """Close the connections to Redis. Leases that are left end by themselves."""
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()
        with suppress(Exception):
            await self._client.aclose()

    def _key(self, model: str) -> str:
        return f"{self._fleet}:load:{model}"

    async def _renew(self, key: str, value: str) -> None:
        while True:
            await self._sleep(RENEWED_SECONDS)
            await self._asked(lambda: self._client.eval(_RENEW, 1, key, value, str(_LEASE)), default=0)

    async def _asked(self, ask: Callable[[], Awaitable[T]], default: T) -> T | Any:
        """The answer of Redis, or `default` while it does not answer."""
        if self._clock() < self._asks_from:
            return default
        try:
            async with asyncio.timeout(SECONDS):
                answer = await ask()
        except Exception as error:  # redis has errors of its own; others come from the socket and from the timeout
            self._failed(error)
            return default
        if self._fails:
            self._fails = False
            log.info("placement.redis of %r: Redis answers again; the gateways agree by it", self._fleet)
        return answer

    def _failed(self, error: Exception) -> None:
        self._asks_from = self._clock() + PAUSE
        if not self._fails:
            self._fails = True
            # The texts of the package's errors name hosts and ports, but no passwords.
            is_late = isinstance(error, TimeoutError)
            why = f"no answer within {SECONDS:g} s" if is_late else f"{type(error).__name__}: {error}"
            text = "placement.redis of %r: Redis fails: %s; until it answers each gateway chooses by rendezvous hashing"
            log.warning(text, self._fleet, why)
