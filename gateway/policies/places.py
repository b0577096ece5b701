"""The state that a policy keeps for each place of the configuration where it is used.

One entry of `policies:` wraps several handlers: a backend's calls and its streams, or a route's clients of each
protocol. All of them share one state.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T", bound="PolicyState")


class PolicyState(Protocol):
    """The state of one entry of `policies:`. A policy that has such states has a function `state(settings)` which
    returns that of its settings."""

    place: str
    """Where the entry stands, as log lines and `/status` name it: `backends.NAME` or `routes[N]`."""

    def status(self) -> Mapping[str, object]:
        """The part of this state that `/status` shows, as JSON."""

    async def close(self, seconds: float) -> None:
        """Close its connections, if it has any. What it does beside requests may go on for at most `seconds`."""


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
