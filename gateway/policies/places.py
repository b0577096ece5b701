"""The state that a policy keeps for each place of the configuration where it is used.

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
    """The state of one entry of `policies:`. A policy that has such states has a function `state(settings)` which
    returns that of its settings."""

    place: str
    """Where the entry stands, as log lines name it: `NAME POLICY` on a route, or `backends.NAME POLICY`."""
    keeps_answers: ClassVar[bool] = False
    """Whether it has answers to forget, by `clear`."""

    def status(self) -> Mapping[str, object]:
        """The part of this state that `/status` shows, as JSON. The policy's METRICS read it, too, in another
        thread."""
        raise NotImplementedError

    def of_principal(self, name: str) -> Mapping[str, object] | None:
        """The part of this state that is about one principal, as JSON; None if nothing is."""
        return None

    async def close(self, seconds: float) -> None:
        """Close its connections, if it has any. What it does beside requests may go on for at most `seconds`."""

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """Go on with what the state has counted or kept that stood at this place before a reload. `is_unchanged`: so is
        the configuration that answers here depend on."""

    def clear(self) -> None:
        """Forget all answers."""


class SharedState(PolicyState):
    """A state that holds for all workers together: each worker asks that of the supervisor
    (`gateway/runtime/workers`)."""

    settings: BaseModel

    def take(self, client: str) -> float:
        """Take a request of `client` for another process of this gateway. Returns 0 or, without taking anything, the
        seconds until there is one."""
        raise NotImplementedError

    def share(self, shared: "Shared") -> None:
        """Take requests from `shared` instead. While it does not answer, this process goes on by itself."""
        raise NotImplementedError


class Shared(Protocol):
    """A state that several processes share."""

    async def take(self, client: str) -> float | None:
        """As SharedState's; None while nobody answers."""


PlacedState: TypeAlias = tuple[str, str, PolicyState]
"""Place, policy and state of an entry of `policies:`."""


def states_of_principal(states: Iterable[PlacedState], name: str) -> list[tuple[str, str, Mapping[str, object]]]:
    """Place, policy, and the part that is about one principal, of each state that has one."""
    found = ((place, policy, state.of_principal(name)) for place, policy, state in states)
    return [(place, policy, part) for place, policy, part in found if part is not None]


@frozen
class StateMetric:
    """A metric of a policy, read from what its states show. A policy's module lists them in METRICS.

    `keys` has the key in `status()` by the value of the last label; by an empty text if `labels` are the place's alone,
    or if the last label has the keys of a mapping that is shown. Numbers with the same labels, such as those of several
    workers, are added.

    The labels of a place are `place` (a route's name, or `backends.NAME`), `route` (the same), and `backend`: the
    `backend` that the state shows, else that at which it stands.
    """

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    text: str
    keys: Mapping[str, str]

    def values(self, place: str, state: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
        """The numbers of the state at `place`, with their labels."""
        of_place = {"owner": place, "route": place, "backend": state.get("backend", place.removeprefix("backends."))}
        own = tuple(of_place[each] for each in self.labels if each in of_place)
        for label, key in self.keys.items():
            found = state.get(key, 0)
            if isinstance(found, Mapping):
                yield from (((*own, each), number) for each, number in found.items())
            else:
                yield ((*own, label) if label else own), found


Numbers: TypeAlias = dict[str, Counter[tuple[str, ...]]]
"""The numbers of metrics by their names, each by its labels."""


def numbers(
    states: Iterable[tuple[str, str, Mapping[str, Any]]], metrics: Mapping[str, Sequence[StateMetric]]
) -> Numbers:
    """The numbers of all `metrics`, which stand by the name of their policy, in `states`: place, policy and what it
    shows."""
    found: Numbers = {each.name: Counter() for some in metrics.values() for each in some}
    for place, policy, state in states:
        for metric in metrics.get(policy, ()):
            found[metric.name].update(dict(metric.values(place, state)))
    return found


class ShownStates(Generic[S, T]):
    """The state of each entry of `policies:` of one policy, which `/status` shows, and which is closed when the entry
    is no longer in effect. It is made when it is first asked for, and kept as long as the entry's settings. (A state
    that nobody but the Handlers knows is a PolicyContext's `hidden_state`.)

    Entries are told apart by identity: two with equal settings are two.
    """

    def __init__(self, make: Callable[[S], T]) -> None:
        self._make = make
        self._states: dict[int, T] = {}

    def __call__(self, settings: S) -> T:
        """The state of the entry with these settings."""
        key = id(settings)
        state = self._states.get(key)
        if state is None:
            # From a copy: a state that held the settings themselves would keep them, and so itself, for ever.
            state = self._states[key] = self._make(settings.model_copy())
            weakref.finalize(settings, self._states.pop, key, None)
        return state
