"""The states of policies, one for each entry of a policy in the configuration.

One entry under `policies:` wraps several Handlers: for a backend's calls and streams, or for a route's clients of each
protocol. All these Handlers share one state.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from gateway.core.frozen import frozen

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T", bound="PolicyState")


class PolicyState:
    """The state of one entry under `policies:`. The policy's function `state(settings)` returns the state for these
    settings."""

    place: str
    """The entry's location in log lines: `NAME POLICY` on a route, or `backends.NAME POLICY`."""
    keeps_answers: ClassVar[bool] = False
    """True if the state stores responses that `clear` removes."""

    def status(self) -> Mapping[str, object]:
        """Return the part of this state that `/status` shows, as JSON. The METRICS are also computed from this JSON, in
        another thread."""
        raise NotImplementedError

    def of_principal(self, name: str) -> Mapping[str, object] | None:
        """Return the part of this state that concerns one principal, as JSON, or None if the state has no such part."""
        return None

    async def close(self, seconds: float) -> None:
        """Close the state's connections, if any. Work outside requests can continue for at most `seconds` seconds."""

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """After a reload, take over counts or stored data from the previous state of this entry. `is_unchanged` is True
        if the configuration on which stored responses depend is unchanged."""

    def clear(self) -> None:
        """Remove all stored responses."""


class SharedState(PolicyState):
    """A state that all workers share. The workers use the supervisor's state (`gateway/runtime/workers`)."""

    settings: BaseModel

    def take(self, client: str) -> float:
        """On behalf of another process of this gateway, take permission for one request of `client`, and return 0. If
        the client has reached the limit, return the time until a request is allowed, in seconds."""
        raise NotImplementedError

    def share(self, shared: "Shared") -> None:
        """Use the state `shared` instead of this process's own state. While `shared` does not respond, the process uses
        its own state."""
        raise NotImplementedError


class Shared(Protocol):
    """The state that several processes share."""

    async def take(self, client: str) -> float | None:
        """See SharedState. Returns None while the shared state does not respond."""


PlacedState: TypeAlias = tuple[str, str, PolicyState]
"""The location, the policy and the state of an entry under `policies:`."""
ReportedStates: TypeAlias = Sequence[tuple[str, str, Mapping[str, object]]]
"""The location, the policy name and the state of each policy, in the form for `/status`."""


def states_of_principal(states: Iterable[PlacedState], name: str) -> list[tuple[str, str, Mapping[str, object]]]:
    """For each state that contains data about the principal, return its location, its policy, and this data."""
    found = ((place, policy, state.of_principal(name)) for place, policy, state in states)
    return [(place, policy, part) for place, policy, part in found if part is not None]


@frozen
class StateMetric:
    """A metric of a policy, computed from the JSON of its states. The policy's module lists its metrics in METRICS.

    `keys` maps each value of the last label to the key in `status()`. The label value is an empty string if `labels`
    contains only labels of the location, or if the label's values are the keys of a mapping in the JSON. Numbers with
    the same labels, for example from several workers, are added up.

    The labels of a location are `place` and `route` (the route's name, or `backends.NAME`), and `backend`: the
    `backend` in the state's JSON or, without it, the backend to which the policy belongs."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    text: str
    keys: Mapping[str, str]

    def values(self, place: str, state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the values from the state at `place`, with their labels."""
        of_place = {"owner": place, "route": place, "backend": state.get("backend", place.removeprefix("backends."))}
        own = tuple(of_place[each] for each in self.labels if each in of_place)
        for label, key in self.keys.items():
            found = state.get(key, 0)
            if isinstance(found, Mapping):
                yield from (((*own, each), number) for each, number in found.items())
            else:
                yield ((*own, label) if label else own), found


Numbers: TypeAlias = dict[str, Counter[tuple[str, ...]]]
"""The values of metrics, by name and then by labels."""


def numbers(
    states: Iterable[tuple[str, str, Mapping[str, Any]]], metrics: Mapping[str, Sequence[StateMetric]]
) -> Numbers:
    """Return the values of all `metrics`, which are grouped by policy name. `states` contains locations, policies and
    the JSON of states."""
    found: Numbers = {each.name: Counter() for some in metrics.values() for each in some}
    for place, policy, state in states:
        for metric in metrics.get(policy, ()):
            found[metric.name].update(dict(metric.values(place, state)))
    return found


class ShownStates(Generic[S, T]):
    """The states of one policy that `/status` shows, one for each entry under `policies:`. A state is created at its
    first use, exists as long as the settings of its entry, and is closed when the entry is no longer in effect. For a
    state that only Handlers use, see `PolicyContext.hidden_state`.

    Entries are distinguished by identity. Two entries with equal settings therefore have two states."""

    def __init__(self, make: Callable[[S], T]) -> None:
        self._make = make
        self._states: dict[int, T] = {}

    def __call__(self, settings: S) -> T:
        """Return the state of the entry with these settings."""
        key = id(settings)
        state = self._states.get(key)
        if state is None:
            # Create the state from a copy, because a state that refers to the settings would keep them and itself alive
            # forever.
            state = self._states[key] = self._make(settings.model_copy())
            weakref.finalize(settings, self._states.pop, key, None)
        return state
