"""The policies of a route or a backend, with their settings and states: `/api/policies`."""

from typing import Any, cast

from pydantic import BaseModel

from gateway.config.effective import effective
from gateway.config.keys import Config
from gateway.policies.places import ReportedStates


class PlacedPolicy(BaseModel):
    """A policy, and its position in the configuration."""

    name: str
    settings: dict[str, Any]
    """The policy's settings with all defaults, as in `/config`."""
    states: list[dict[str, Any]]
    """The policy's states, as in `/status`, one for each worker; empty for a stateless policy."""


class PlacedPolicies(BaseModel):
    """The policies of a route or a backend, in the order in which they apply to a request."""

    policies: list[PlacedPolicy]


class PolicySettings:
    """The settings of all policies of a configuration, by route or backend."""

    def __init__(self, config: Config) -> None:
        shown = cast(dict[str, Any], effective(config))
        self._of_place: dict[str, list[dict[str, Any]]] = {
            route.name: each["policies"] for route, each in zip(config.routes, shown["routes"], strict=True)
        } | {f"backends.{name}": each["policies"] for name, each in shown["backends"].items()}

    def at(self, place: str, states: ReportedStates) -> PlacedPolicies:
        """Return the policies of the route or backend `place`. `states` contains the place, name and state of each
        stateful policy.

        Raises:
            KeyError: there is no such route or backend.
        """
        found = []
        for entry in self._of_place[place]:
            [(name, settings)] = entry.items()
            own = [dict(state) for at, policy, state in states if (at, policy) == (place, name)]
            found.append(PlacedPolicy(name=name, settings=settings, states=own))
        return PlacedPolicies(policies=found)
