"""Policies whose state all workers share, such as `rate_limit`.

The supervisor keeps the states. For each request, a worker takes a token from a state in the supervisor.
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
    """Runs in the supervisor, and keeps the states of the newest and the previous configuration, because the previous
    one might still be in use."""

    def __init__(self) -> None:
        self._states: dict[str, SharedState] = {}
        self._newest: dict[str, SharedState] = {}

    def prepare(self, assembly: Assembly) -> None:
        """Add the states of `assembly`. Existing states stay unchanged."""
        before = self._newest
        self._newest = {name: self._states.get(name, each) for name, each in _states(assembly)}
        self._states = before | self._newest

    def of_principal(self, name: str) -> list[tuple[str, str, Mapping[str, object]]]:
        """For each policy of the newest configuration, return its location, its name, and its state for one
        principal."""
        names = ((each.place.rpartition(" "), each) for each in self._newest.values())
        return states_of_principal(((place, policy, each) for (place, _, policy), each in names), name)

    def take(self, name: str, client: str) -> float | None:
        """Take permission for one request from a state.

        Return the seconds to wait, which can be 0. Return None if the state does not exist, for example while the
        configuration changes."""
        state = self._states.get(name)
        return None if state is None else state.take(client)


def share_policies(channel: Channel, assembly: Assembly) -> None:
    """In a worker, replace the shared states of `assembly` with the supervisor's states."""
    for name, each in _states(assembly):
        each.share(_AtSupervisor(channel, name))


class _AtSupervisor:
    """A state that the supervisor keeps."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    async def take(self, client: str) -> float | None:
        """See Shared."""
        try:
            found: float | None = await self._channel.ask("take_request", self._name, client)
        except (ChannelClosedError, GatewayError):
            return None
        return found
