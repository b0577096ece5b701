"""Implements `discovery: {register: {...}}`: servers register themselves with the gateway, and renew their leases."""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from time import monotonic

from gateway.core.frozen import frozen
from gateway.core.surviving import log_and_continue
from gateway.servers.discovery.source import MOST_ADDRESSES, Found

MOST_LEASES = MOST_ADDRESSES
"""The maximum number of leases of one backend."""


class TooManyLeasesError(Exception):
    """A backend already has MOST_LEASES leases."""


@frozen
class Lease:
    """The registration of one address until `ends_at`. `seconds` is the granted duration, in seconds."""

    id: str
    address: str
    seconds: float
    ends_at: float


class Leases:
    """The leases of one backend, each at most `longest` seconds long. `place` converts an address to a key, which is
    the same for all spellings of the address, and raises ValueError if the address is invalid. Each key has at most one
    lease."""

    def __init__(
        self,
        longest: float,
        place: Callable[[str], Hashable],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._longest = longest
        self._place = place
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._ids: dict[Hashable, str] = {}

    @property
    def found(self) -> frozenset[Found]:
        """The registered addresses."""
        return frozenset(Found(lease.address) for lease in self._leases.values())

    @property
    def next_end(self) -> float | None:
        """The time at which the next lease expires; None if there are no leases."""
        return min((lease.ends_at for lease in self._leases.values()), default=None)

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._leases

    def take(self, address: str, seconds: float | None = None) -> Lease:
        """Grant a lease for `address`, or renew its current lease, and return the lease. The lease lasts `seconds`
        seconds, or `longest` seconds if `seconds` is longer or None.

        Raises:
            ValueError: the address is invalid.
            TooManyLeasesError: the lease would be new, and the backend already has MOST_LEASES leases.
        """
        place = self._place(address)
        self.expire()
        lease_id = self._ids.get(place)
        if lease_id is not None:
            return self.renew(lease_id, seconds)
        if len(self._leases) >= MOST_LEASES:
            raise TooManyLeasesError
        lease_id = self._ids[place] = secrets.token_hex(16)
        return self._grant(lease_id, address, seconds)

    def renew(self, lease_id: str, seconds: float | None = None) -> Lease:
        """Renew the lease, starting now. Raise KeyError if the id is unknown or expired."""
        self.expire()
        return self._grant(lease_id, self._leases[lease_id].address, seconds)

    def inherit(self, other: "Leases") -> None:
        """Take over the leases of `other`, which uses the same clock, except leases of addresses that are invalid for
        this object. The leases keep their end times."""
        for lease in other._leases.values():
            with suppress(ValueError):
                self._ids[self._place(lease.address)] = lease.id
                self._leases[lease.id] = lease

    def end(self, lease_id: str) -> None:
        """End a lease. Do nothing if the id is unknown."""
        if lease_id in self._leases:
            del self._ids[self._place(self._leases.pop(lease_id).address)]

    def expire(self) -> None:
        """End the leases that have expired."""
        now = self._clock()
        for lease in [lease for lease in self._leases.values() if lease.ends_at <= now]:
            self.end(lease.id)

    def _grant(self, lease_id: str, address: str, seconds: float | None) -> Lease:
        granted = self._longest if seconds is None else min(seconds, self._longest)
        lease = self._leases[lease_id] = Lease(lease_id, address, granted, self._clock() + granted)
        return lease


async def _any_address(address: str) -> None:
    """Accept every address."""


class Registrations:
    """The registered servers of one backend. The callback of `on_change` receives their addresses after every change,
    including the expiry of a lease. Anyone with `token` can register. `check` raises ValueError if an address is not
    allowed."""

    def __init__(
        self,
        token: str,
        leases: Leases,
        clock: Callable[[], float] = monotonic,
        check: Callable[[str], Awaitable[None]] = _any_address,
    ) -> None:
        self._token = token.encode()
        self._leases = leases
        self._clock = clock
        self.check = check
        """A check of an address, which callers must await before `take`."""
        self._report: Callable[[frozenset[Found]], None] = lambda found: None
        self._timer: asyncio.TimerHandle | None = None

    def on_change(self, report: Callable[[frozenset[Found]], None]) -> None:
        """Set the callback that receives the addresses after every change."""
        self._report = report

    def allows(self, token: str) -> bool:
        """Return whether `token` is correct. The comparison takes constant time."""
        return hmac.compare_digest(token.encode(), self._token)

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._leases

    def take(self, address: str, seconds: float | None) -> Lease:
        """See `Leases.take`."""
        lease = self._leases.take(address, seconds)
        self._changed()
        return lease

    def renew(self, lease_id: str, seconds: float | None) -> Lease:
        """See `Leases.renew`."""
        lease = self._leases.renew(lease_id, seconds)
        self._changed()
        return lease

    def end(self, lease_id: str) -> None:
        """See `Leases.end`."""
        self._leases.end(lease_id)
        self._changed()

    def inherit(self, other: "Registrations") -> None:
        """See `Leases.inherit`. Do nothing if the token differs, because the servers could not renew their leases."""
        if self._token == other._token:
            self._leases.inherit(other._leases)
            self._changed()

    def close(self) -> None:
        """Stop the timer that expires leases."""
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self) -> None:
        self._leases.expire()
        with log_and_continue("taking over the servers that registered"):
            self._report(self._leases.found)
        self.close()
        if (end := self._leases.next_end) is not None:
            seconds = max(end - self._clock(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._changed)
