"""The state of a policy for each place in the configuration that uses it.

One entry of `policies:` wraps several handlers: a backend's calls and its streams, or a route's clients of each
protocol. All of them share one state.
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
    """The state of one entry of `policies:`. A policy with such states has a function `state(settings)` that returns
    the state for these settings."""

    place: str
    """The place of the entry in log lines: `NAME POLICY` on a route, or `backends.NAME POLICY`."""
    keeps_answers: ClassVar[bool] = False
    """True if the state stores responses that `clear` removes."""

    def status(self) -> Mapping[str, object]:
        """Return the part of this state that `/status` shows, as JSON. The policy's METRICS also read it, in another
        thread."""
        raise NotImplementedError

    def of_principal(self, name: str) -> Mapping[str, object] | None:
        """Return the part of this state that is about one principal, as JSON, or None."""
        return None

    async def close(self, seconds: float) -> None:
        """Close the state's connections, if it has any. Work outside of requests can continue for at most `seconds`."""

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """Take over the counts or the stored data that the state at this place had before a reload. `is_unchanged` is
        True if the configuration that the stored responses depend on is unchanged."""

    def clear(self) -> None:
        """Remove all responses."""


class SharedState(PolicyState):
    """A state that all workers share. Each worker queries the supervisor's state (`gateway/runtime/workers`)."""

    settings: BaseModel

    def take(self, client: str) -> float:
        """Take a request of `client` for another process of this gateway, and return 0. If the client has used up the
        limit, take nothing, and return the seconds until a request is allowed."""
        raise NotImplementedError

    def share(self, shared: "Shared") -> None:
        """Take requests from `shared` instead. While `shared` does not respond, this process uses its own state."""
        raise NotImplementedError


class Shared(Protocol):
    """A state that several processes share."""

    async def take(self, client: str) -> float | None:
        """Same as in SharedState; None while the shared state does not respond."""


PlacedState: TypeAlias = tuple[str, str, PolicyState]
"""Place, policy and state of an entry of `policies:`."""
ReportedStates: TypeAlias = Sequence[tuple[str, str, Mapping[str, object]]]
"""Place, name and state of policies, in the form for `/status`."""


def states_of_principal(states: Iterable[PlacedState], name: str) -> list[tuple[str, str, Mapping[str, object]]]:
    """Return the place, the policy, and the part about one principal, for each state that has this part."""
    found = ((place, policy, state.of_principal(name)) for place, policy, state in states)
    return [(place, policy, part) for place, policy, part in found if part is not None]


@frozen
class StateMetric:
    """A metric of a policy, read from the JSON of its states. A policy's module lists its metrics in METRICS.

    `keys` maps each value of the last label to the key in `status()`. The value is an empty text if `labels` has only
    labels of the place, or if the label's values are the keys of a mapping in the JSON. Numbers with the same labels,
    for example from several workers, are added.

    The labels of a place are `place` and `route` (the route's name, or `backends.NAME`), and `backend`, which is the
    `backend` in the state's JSON, or otherwise the backend that has the policy."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    text: str
    keys: Mapping[str, str]

    def values(self, place: str, state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the numbers of the state at `place`, with their labels."""
        of_place = {"owner": place, "route": place, "backend": state.get("backend", place.removeprefix("backends."))}
        own = tuple(of_place[each] for each in self.labels if each in of_place)
        for label, key in self.keys.items():
            found = state.get(key, 0)
            if isinstance(found, Mapping):
                yield from (((*own, each), number) for each, number in found.items())
            else:
                yield ((*own, label) if label else own), found


Numbers: TypeAlias = dict[str, Counter[tuple[str, ...]]]
"""The numbers of metrics, by name and then by labels."""


def numbers(
    states: Iterable[tuple[str, str, Mapping[str, Any]]], metrics: Mapping[str, Sequence[StateMetric]]
) -> Numbers:
    """Return the numbers of all `metrics`, which are grouped by the name of their policy, in `states`: place, policy
    and the state's JSON."""
    found: Numbers = {each.name: Counter() for some in metrics.values() for each in some}
    for place, policy, state in states:
        for metric in metrics.get(policy, ()):
            found[metric.name].update(dict(metric.values(place, state)))
    return found


class ShownStates(Generic[S, T]):
    """The states of one policy, one for each entry of `policies:`, which `/status` shows. A state is closed when its
    entry is no longer in effect. The class makes a state when it is first needed, and keeps the state with the entry's
    settings. (For a state that only the Handlers use, see `hidden_state` of PolicyContext.)

    Entries are distinguished by identity, so two entries with equal settings have two states."""

    def __init__(self, make: Callable[[S], T]) -> None:
        self._make = make
        self._states: dict[int, T] = {}

    def __call__(self, settings: S) -> T:
        """Return the state of the entry with these settings."""
        key = id(settings)
        state = self._states.get(key)
        if state is None:
            # Made from a copy, because a state that references the settings would keep the settings and itself alive
            # forever.
            state = self._states[key] = self._make(settings.model_copy())
            weakref.finalize(settings, self._states.pop, key, None)
        return state
