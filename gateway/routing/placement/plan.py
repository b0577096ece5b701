"""Decides where to load a model and which models to unload to make room.

This module does not query servers or change the table.

- The server with the largest free capacity loads the model. If several servers have the same free capacity, the first
  one in rendezvous order loads it.
- If no server has enough free capacity, the gateway unloads models on the server whose least recently used models have
  been unused for the longest time. It first unloads surplus copies, which the calls do not need. A model with calls in
  flight or waiting calls stays loaded.
- A pinned model, or a model that was loaded less than `min_stay` seconds ago, is never unloaded to make room.
- If a client's models use more than its `share` of a server, its new models replace only its own models. A model
  belongs to a client if that client's call caused the load, and no other client has since called the model on this
  server.
- A model whose calls have waited for STARVED seconds can replace a model that is always in use. The replaced model
  receives no more calls on this server, and is unloaded when its current calls have ended.
- Capacity counts as used until the server has confirmed the unload.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase

from gateway.core.frozen import frozen
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.agreement import rendezvous
from gateway.routing.placement.table import ModelReplica, Placement, Placements, ReplicaState

STARVED = 5.0
"""The minimum time that calls must have waited for a model before it can replace a model that always has calls, in
seconds.

A model also stays loaded for at least this time."""


@frozen
class LoadSettings:
    """The settings for loading models.

    - `max_models`, `memory`: Maximum number of models, and their maximum total size in bytes, on one server. None means
      no limit.
    - `sizes`: Model sizes in bytes, by glob. The first match applies.
    - `min_copies`, `max_copies`: Minimum and maximum number of servers on which a model in use is loaded.
    - `calls_per_copy`: Number of calls in flight that one copy can handle.
    - `idle`: Time without calls after which a model is unloaded, in seconds. 0 means never.
    - `timeout`: Maximum time that a server can take to load or unload a model, in seconds.
    - `pinned`: Globs of models that the gateway never unloads.
    - `min_stay`: Minimum time that a model stays loaded before another model can replace it, in seconds.
    - `share`: Fraction of a server's capacity beyond which a client's new models replace only its own models.
    """

    max_models: int | None = None
    memory: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    min_copies: int = 1
    max_copies: int = 1
    calls_per_copy: int = 8
    idle: float = 0.0
    timeout: float = 600.0
    pinned: tuple[str, ...] = ()
    min_stay: float = 0.0
    share: float = 1.0

    def is_pinned(self, model: str) -> bool:
        """Return True if a model is pinned to the servers that have loaded it."""
        return any(fnmatchcase(model, glob) for glob in self.pinned)

    def size(self, model: str) -> int:
        """Return the size of a model in bytes, or 0 if the size is unknown."""
        if not self.sizes:
            return 0
        return next((size for glob, size in self.sizes.items() if fnmatchcase(model, glob)), 0)

    def copies(self, demand: float) -> int:
        """Return the target number of servers for a model with this number of calls in flight."""
        return min(max(math.ceil(demand / self.calls_per_copy), self.min_copies), self.max_copies)


@frozen
class LoadStep:
    """A decision to load a model on an endpoint, after the endpoint's models in `victims` are unloaded."""

    placement: Placement
    endpoint: Endpoint
    victims: tuple[tuple[Placement, ModelReplica], ...] = ()


class Capacity:
    """The capacity of one server: the part that its models use, and the free part."""

    __slots__ = ("_of_clients", "_settings", "count", "places", "size")

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self.places: list[tuple[Placement, ModelReplica]] = []
        self.count = 0
        self.size = 0
        self._of_clients: dict[str, list[int]] = {}
        """The number and the total size of each client's models."""

    def take(self, model: str, client: str) -> None:
        """Add a model that belongs to `client`; an empty name means no owner."""
        self._count(model, client, 1)

    def give_back(self, model: str, client: str) -> None:
        """Remove a model that belongs to `client`."""
        self._count(model, client, -1)

    def _count(self, model: str, client: str, change: int) -> None:
        size = change * self._settings.size(model)
        self.count += change
        self.size += size
        if client:
            own = self._of_clients.setdefault(client, [0, 0])
            own[0] += change
            own[1] += size

    def is_beyond_share(self, client: str, model: str) -> bool:
        """Return whether `client` already has models on this server and one more model would exceed its share."""
        count, size = self._of_clients.get(client, (0, 0))
        settings = self._settings
        if not count or settings.share == 1:
            return False
        if settings.max_models is not None and count + 1 > settings.share * settings.max_models:
            return True
        return settings.memory is not None and size + settings.size(model) > settings.share * settings.memory

    def fits(self, model: str) -> bool:
        """Return whether the server has capacity for one more model."""
        settings = self._settings
        if settings.max_models is not None and self.count >= settings.max_models:
            return False
        return settings.memory is None or self.size + settings.size(model) <= settings.memory

    @property
    def is_exceeded(self) -> bool:
        """True if the loaded models exceed the limits."""
        settings = self._settings
        return (settings.max_models is not None and self.count > settings.max_models) or (
            settings.memory is not None and self.size > settings.memory
        )

    @property
    def left(self) -> float:
        """The free fraction of the limits.

        Without limits, a number that decreases with each loaded model."""
        settings = self._settings
        shares = [1 - self.count / settings.max_models] if settings.max_models is not None else []
        if settings.memory is not None:
            shares.append(1 - self.size / settings.memory)
        return min(shares) if shares else -float(self.count)


class ServerCapacities:
    """The capacity of all servers at one point in time, and decisions based on it. `now` is a time on the backend's
    clock. `takes_models` returns whether models can be loaded on an endpoint."""

    def __init__(
        self, table: Placements, settings: LoadSettings, now: float, takes_models: Callable[[Endpoint], bool]
    ) -> None:
        self._table = table
        self._settings = settings
        self._now = now
        self._takes_models = takes_models
        self.at: dict[Endpoint, Capacity] = {endpoint: Capacity(settings) for endpoint in table.stocks}
        for placement in table.models.values():
            for place in placement.places.values():
                if place.takes_room:
                    room = self.at[place.endpoint]
                    room.take(placement.model, place.client)
                    room.places.append((placement, place))

    def _candidates(self, placement: Placement, *, is_listed: bool = True) -> Iterator[Endpoint]:
        return candidates(self._table, placement, self._takes_models, self._now, is_listed=is_listed)

    def step(
        self,
        placement: Placement,
        unused_since: float | None = None,
        *,
        is_listed: bool = True,
        is_starved: bool = False,
    ) -> LoadStep | None:
        """Return the endpoint on which to load a model and the models to unload first, or None if no server can free
        enough capacity now.

        - `unused_since`: Unload only models that have had no calls since this time.
        - `is_starved`: True if models with calls in flight can also be unloaded.
        - `is_listed`: See `candidates`.
        """
        able = list(self._candidates(placement, is_listed=is_listed))
        model = placement.model
        free = [each for each in able if self.at[each].fits(model)]
        if free:

            def order(endpoint: Endpoint) -> tuple[int, float, int]:
                left = self.at[endpoint].left
                return -_failures(placement, endpoint), left, rendezvous(model, endpoint.address)

            return LoadStep(placement, max(free, key=order))
        swaps = (self._swap(placement, each, unused_since, is_starved=is_starved) for each in able)
        steps = [step for step in swaps if step is not None]
        return min(steps, key=self._cost, default=None)

    def step_at(self, placement: Placement, endpoint: Endpoint) -> LoadStep | None:
        """Return the step that loads a model on this endpoint if the endpoint has enough free capacity."""
        if endpoint not in self._candidates(placement) or not self.at[endpoint].fits(placement.model):
            return None
        return LoadStep(placement, endpoint)

    def step_into(self, placement: Placement, endpoint: Endpoint) -> LoadStep | None:
        """Return the step that frees capacity on this endpoint and loads a model on it, even after failed loads. Return
        None if no model on the endpoint can be unloaded."""
        if endpoint not in self.at:
            return None
        if self.at[endpoint].fits(placement.model):
            return LoadStep(placement, endpoint)
        return self._swap(placement, endpoint, None)

    def begun(self, step: LoadStep) -> None:
        """Record that a step has started: its model's capacity is now used, and the capacity of its victims is free."""
        room = self.at[step.endpoint]
        for victim in step.victims:
            room.places.remove(victim)
            room.give_back(victim[0].model, victim[1].client)
        room.take(step.placement.model, step.placement.wanted_by)

    def too_many(self) -> Iterator[tuple[Placement, ModelReplica]]:
        """Yield the replicas to unload from servers that exceed their limits: the least recently used ones without
        calls."""
        for room in self.at.values():
            unused = self._unused(room) if room.is_exceeded else []
            while room.is_exceeded and unused:
                victim = unused.pop(0)
                room.give_back(victim[0].model, victim[1].client)
                yield victim

    def _swap(
        self, placement: Placement, endpoint: Endpoint, unused_since: float | None, *, is_starved: bool = False
    ) -> LoadStep | None:
        """Return the step that frees capacity on `endpoint`, or None if this is impossible."""
        room, victims = self.at[endpoint], []
        freed = Capacity(self._settings)
        freed.count, freed.size = room.count, room.size
        of_client = placement.wanted_by if room.is_beyond_share(placement.wanted_by, placement.model) else ""
        for each in [*self._unused(room), *(self._busy(room) if is_starved else ())]:
            if not self._may_make_room(*each) or (of_client and each[1].client != of_client):
                continue
            if unused_since is not None and each[1].last_used > unused_since:
                break
            victims.append(each)
            freed.give_back(each[0].model, "")
            if freed.fits(placement.model):
                return LoadStep(placement, endpoint, tuple(victims))
        return None

    def _may_make_room(self, placement: Placement, place: ModelReplica) -> bool:
        has_stayed = self._now - place.since >= self._settings.min_stay
        return has_stayed and not self._settings.is_pinned(placement.model)

    def _unused(self, room: Capacity) -> list[tuple[Placement, ModelReplica]]:
        """Return the replicas that can be unloaded, least needed first."""
        unused = [each for each in room.places if can_be_unloaded(*each, self._now)]
        return sorted(unused, key=lambda each: (not self._is_surplus(each[0]), each[1].last_used))

    def _busy(self, room: Capacity) -> list[tuple[Placement, ModelReplica]]:
        """Return the replicas with calls in flight that were loaded at least STARVED seconds ago, fewest calls
        first."""
        busy = [
            each
            for each in room.places
            if each[1].state is ReplicaState.HELD and each[1].in_flight and self._now - each[1].since >= STARVED
        ]
        return sorted(busy, key=lambda each: (each[1].in_flight, each[1].since))

    def _is_surplus(self, placement: Placement) -> bool:
        held = sum(each.endpoint.drain is None for each in placement.held())
        return held > 1 and held > self._settings.copies(placement.demand)

    def _cost(self, step: LoadStep) -> tuple[int, float, int]:
        """Return the sort key of a step: the most recent use among its victims.

        Servers that have failed to load the model sort last."""
        used = max(-math.inf if self._is_surplus(placement) else place.last_used for placement, place in step.victims)
        failures = _failures(step.placement, step.endpoint)
        return failures, used, -rendezvous(step.placement.model, step.endpoint.address)


def _failures(placement: Placement, endpoint: Endpoint) -> int:
    place = placement.places.get(endpoint)
    return 0 if place is None else place.failures


def candidates(
    table: Placements,
    placement: Placement,
    takes_models: Callable[[Endpoint], bool],
    now: float,
    *,
    is_listed: bool = True,
) -> Iterator[Endpoint]:
    """Yield the endpoints that could load a model.

    These endpoints accept models, list this model, do not have it, and have not recently failed to load it. If
    `is_listed` is False, also yield endpoints that do not list the model, because a client sends the model files."""
    for endpoint, stock in table.stocks.items():
        if stock is None or (is_listed and placement.model not in stock.listed) or not takes_models(endpoint):
            continue
        place = placement.places.get(endpoint)
        if place is None or place.can_be_loaded(now):
            yield endpoint


def can_be_unloaded(placement: Placement, place: ModelReplica, now: float) -> bool:
    """Return True if a replica has no calls, and no calls wait for its model.

    Replicas on drained servers always stay loaded."""
    if place.endpoint.drain is not None:
        return False
    return place.state is ReplicaState.HELD and not place.in_flight and not placement.waiting and now >= place.until


def surplus(placement: Placement, settings: LoadSettings, now: float) -> list[ModelReplica]:
    """Return a model's replicas beyond `max_copies`. Such replicas can exist if two gateways load the model without
    coordination.

    All gateways keep the same replicas: the first ones in rendezvous order."""
    if len(placement.places) <= settings.max_copies:
        return []
    serving = [each for each in placement.held() if each.endpoint.drain is None]
    held = sorted(serving, key=lambda each: -rendezvous(placement.model, each.endpoint.address))
    return [each for each in held[settings.max_copies :] if can_be_unloaded(placement, each, now)]


def idle(
    placements: Iterable[Placement], settings: LoadSettings, now: float
) -> Iterator[tuple[Placement, ModelReplica]]:
    """Yield the replicas of models that have had no calls for longer than `idle`."""
    if not settings.idle:
        return
    for placement in placements:
        held = [] if settings.is_pinned(placement.model) else list(placement.held())
        if held and all(now - each.last_used >= settings.idle for each in held):
            yield from ((placement, each) for each in held if can_be_unloaded(placement, each, now))
