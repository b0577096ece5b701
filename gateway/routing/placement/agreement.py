"""Coordinates the model loads of several gateways in front of the same servers.

Without a shared store, the gateways use rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
increase hit rates"). For each model, every gateway sorts the servers by a hash of the model's and the server's name. As
a result, all gateways get the same order. A server that joins or leaves changes the order for only a small fraction of
the models.

With Redis or Valkey, a gateway holds a lease on a model's name while it loads the model. A lease is a key whose value
is the gateway's name, and which expires after LEASE_SECONDS unless the gateway renews it during the load. If a gateway
stops, its lease therefore expires soon. A gateway that finds another gateway's lease waits until that lease has ended,
and then queries the servers for the model again. While Redis does not respond, each gateway decides alone, by
rendezvous hashing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from secrets import token_hex
from time import monotonic
from typing import Any, Protocol, TypeVar

from gateway.core.tasks import spawn

log = logging.getLogger(__name__)


def rendezvous(model: str, address: str) -> int:
    """Return the weight of a server for a model.

    If several servers are equally suitable, the server with the largest weight loads the model."""
    joined = f"{model}\0{address}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big")


class LoadCoordinator(Protocol):
    """Decides which one of several gateways in front of the same servers loads a model."""

    @property
    def is_shared(self) -> bool:
        """True if other gateways also claim models. In this case, another gateway might have loaded a model shortly
        before this gateway claimed it."""

    async def claim(self, model: str, address: str) -> bool:
        """Return whether this gateway can load the model on the server at `address` now. If it can, no other gateway
        loads the model on any server until `release`."""

    async def release(self, model: str, address: str) -> None:
        """Release the claim after the load has ended."""

    async def close(self) -> None:
        """Close the LoadCoordinator. Do not call `claim` afterward."""


class LocalCoordinator:
    """A LoadCoordinator without a shared store.

    Each gateway loads the models that its clients request. If two gateways with the same information about the servers
    load a model at the same time, `rendezvous` makes them choose the same server."""

    is_shared = False

    async def claim(self, model: str, address: str) -> bool:
        """See `LoadCoordinator.claim`. The result is always True."""
        return True

    async def release(self, model: str, address: str) -> None:
        """See `LoadCoordinator.release`."""

    async def close(self) -> None:
        """See `LoadCoordinator.close`."""


T = TypeVar("T")


SECONDS = 0.5
"""The maximum time that a load waits for a response from Redis, in seconds."""
PAUSE = 5.0
"""The time for which the gateway stops using Redis after Redis did not respond, in seconds."""
LEASE_SECONDS = 15.0
RENEWED_SECONDS = 5.0
LOOK_SECONDS = 0.25
"""The interval between two checks of another gateway's lease, in seconds."""
PATIENCE_SECONDS = 10.0
"""The maximum time that a gateway waits for another gateway's lease to end before it queries the servers for their
models, in seconds."""

_LEASE = round(LEASE_SECONDS * 1000)
_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisClient(Protocol):
    """The commands of `redis.asyncio.Redis` that this module uses."""

    def set(self, name: str, value: str, *, px: int, nx: bool) -> Awaitable[Any]:
        """Send SET with PX and NX."""

    def exists(self, name: str) -> Awaitable[Any]:
        """Send EXISTS."""

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> Awaitable[Any]:
        """Send EVAL."""

    async def aclose(self) -> None:
        """Close the connections."""


class RedisAgreement:
    """A LoadCoordinator that uses leases.

    `fleet` is a name that all gateways in front of the same servers share and that no other group uses."""

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
        """The time before which the gateway does not use Redis."""
        self._fails = False

    async def claim(self, model: str, address: str) -> bool:
        """Return whether this gateway can load the model now.

        If another gateway has held the lease, the result is False, because that gateway might have loaded the model.
        While Redis does not respond, the result is always True."""
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
        """Release the lease after the load has ended."""
        if (renewal := self._renewals.pop(model, None)) is not None:
            renewal.cancel()
            key, value = self._key(model), f"{self._name} {address}"
            await self._asked(lambda: self._client.eval(_RELEASE, 1, key, value), default=0)

    async def close(self) -> None:
        """Close the connections to Redis. The remaining leases expire by themselves."""
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
        """Return the response from Redis, or `default` while Redis does not respond."""
        if self._clock() < self._asks_from:
            return default
        try:
            async with asyncio.timeout(SECONDS):
                answer = await ask()
        except Exception as error:  # redis raises its own errors; others come from the socket and the timeout
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
            # The package's error messages contain hosts and ports, but no passwords.
            is_late = isinstance(error, TimeoutError)
            why = f"no answer within {SECONDS:g} s" if is_late else f"{type(error).__name__}: {error}"
            text = (
                "placement.redis of %r: Redis fails: %s; until it answers, each gateway chooses by rendezvous hashing"
            )
            log.warning(text, self._fleet, why)
