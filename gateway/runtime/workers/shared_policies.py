"""Policies whose state applies to all workers together, such as `rate_limit`.

The supervisor has the states, and each request of a worker takes from them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gateway.assembly.assembly import Assembly
from gateway.core.errors import GatewayError
from gateway.policies.places import SharedState, states_of_principal
from gateway.runtime.workers.channel import Channel, ChannelClosedError


def _states(assembly: Assembly) -> Iterator[tuple[str, SharedState]]:
    """Yield the shared states of a configuration, with names that are the same in all processes."""
    at: Counter[str] = Counter()
    for place, _, state in assembly.policing.states:
        if isinstance(state, SharedState):
            at[place] += 1
            yield f"{place} {at[place]} {state.settings!r}", state


class SharedPolicies:
    """The supervisor's side, with the states of the newest configuration and of the previous one, which might stay in
    use."""

    def __init__(self) -> None:
        self._states: dict[str, SharedState] = {}
        self._newest: dict[str, SharedState] = {}

    def prepare(self, assembly: Assembly) -> None:
        """Add the states of `assembly`. Existing states continue unchanged."""
        before = self._newest
        self._newest = {name: self._states.get(name, each) for name, each in _states(assembly)}
        self._states = before | self._newest

    def of_principal(self, name: str) -> list[tuple[str, str, Mapping[str, object]]]:
        """For the newest configuration, return each policy with its place and its state for one principal."""
        names = ((each.place.rpartition(" "), each) for each in self._newest.values())
        return states_of_principal(((place, policy, each) for (place, _, policy), each in names), name)

    def take(self, name: str, client: str) -> float | None:
        """Take a request.

        Return 0, or the seconds to wait. Return None if the state does not exist, for example while the configuration
        changes."""
        state = self._states.get(name)
        return None if state is None else state.take(client)


def share_policies(channel: Channel, assembly: Assembly) -> None:
    """On a worker's side, make the shared states of `assembly` take from the supervisor's states."""
    for name, each in _states(assembly):
        each.share(_AtSupervisor(channel, name))


class _AtSupervisor:
    """One state of the supervisor."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    async def take(self, client: str) -> float | None:
        """Same as in Shared."""
        try:
            found: float | None = await self._channel.ask("take_request", self._name, client)
        except (ChannelClosedError, GatewayError):
            return None
        return found
