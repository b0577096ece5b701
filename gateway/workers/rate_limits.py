"""The policy `rate_limit` for all workers together: the supervisor has the buckets, and each request that a worker gets
takes from them."""

from collections import Counter
from collections.abc import Iterator

from gateway.assembly.assembly import Assembly
from gateway.core.errors import GatewayError
from gateway.policies.rate_limit import RateLimit
from gateway.workers.channel import Channel, ChannelClosedError


def _rate_limits(assembly: Assembly) -> Iterator[tuple[str, RateLimit]]:
    """The limits of a configuration, each with a name that is the same in all processes."""
    at: Counter[str] = Counter()
    for place, _, state in assembly.policing.states:
        if isinstance(state, RateLimit):
            at[place] += 1
            yield f"{place} {at[place]} {state.settings!r}", state


class RateLimits:
    """The supervisor's side: the limits of the newest configuration, and of the one before, which may stay in use."""

    def __init__(self) -> None:
        self._limits: dict[str, RateLimit] = {}
        self._newest: dict[str, RateLimit] = {}

    def prepare(self, assembly: Assembly) -> None:
        """Have the limits of `assembly`, too. Those that stay go on as they are."""
        before = self._newest
        self._newest = {name: self._limits.get(name, each) for name, each in _rate_limits(assembly)}
        self._limits = before | self._newest

    def take(self, name: str, client: str) -> float | None:
        """Take a request. Returns 0, or the seconds to wait; None if there is no such limit, as while the configuration
        changes."""
        limit = self._limits.get(name)
        return None if limit is None else limit.take(client)


def share_rate_limits(channel: Channel, assembly: Assembly) -> None:
    """A worker's side: let the limits of `assembly` take from the supervisor's."""
    for name, each in _rate_limits(assembly):
        each.share(_AtSupervisor(channel, name))


class _AtSupervisor:
    """The buckets of one limit."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    async def take(self, client: str) -> float | None:
        """As SharedAllowances'."""
        try:
            found: float | None = await self._channel.ask("take_request", self._name, client)
        except (ChannelClosedError, GatewayError):
            return None
        return found
