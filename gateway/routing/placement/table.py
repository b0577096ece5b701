"""The table of one backend: the models and versions on each endpoint, with their states.

This module does not query servers and never waits. `Placements.reported` processes the model list that a server
reports. Each ModelReplica counts the requests that the gateway sends to it. A request costs one lookup, independent of
the number of models and endpoints, because each Placement has an EndpointChoice among the endpoints with its model,
created at the first request. Models on the same endpoints share one EndpointChoice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Protocol
from weakref import WeakValueDictionary

from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.models import ModelEntry
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint

_lines = LogLimit(logging.getLogger(__name__))

SECONDS_DISBELIEVED = 30.0
"""The time, in seconds, for which an endpoint receives no calls for a listed model after it has responded that it does
not have the model. The time doubles with each such response, up to MOST_DISBELIEVED."""
MOST_DISBELIEVED = 600.0


class ReplicaState(Enum):
    """A server's state for one model. The values are the words that reports show."""

    HELD = "held"
    """A server that has the model and receives calls for it."""
    LOADING = "loading"
    UNLOADING = "unloading"
    FAILED = "failed"
    """A server that could not load the model, or has responded that it does not have the model although it lists it."""
    GONE = "gone"
    """A server that has lost the model. The model's calls in flight continue."""


@frozen
class ServerInventory:
    """The models that one server reports (its inventory).

    - `held`: The models that the server serves, with their versions; the versions are empty if the server does not
      report them.
    - `changing`: The models that the server is loading or unloading.
    - `listed`: All models in the server's repository, loaded or not.
    """

    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changing: Mapping[str, ReplicaState] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()


@frozen
class ReplicaReport:
    """One model on one endpoint, for reports. `since` is the time at which its state began, on the backend's clock."""

    endpoint: Endpoint
    state: ReplicaState
    why: str
    since: float


@frozen
class PlacedModel:
    """One model, for reports. `last_used` is a time on the backend's clock; None before the first call."""

    model: str
    versions: tuple[str, ...]
    holdings: tuple[ReplicaReport, ...]
    calls: int
    in_flight: int
    last_used: float | None

    @property
    def copies(self) -> int:
        """The number of servers with the model."""
        return sum(each.state is ReplicaState.HELD for each in self.holdings)


@frozen
class LoadFailure:
    """A load that a server has rejected.

    `why` is the server's error message. `until` is the earliest time of the next attempt."""

    endpoint: Endpoint
    why: str
    until: float


class ModelReplica:
    """One model on one endpoint.

    - `since`: The time at which the current state began.
    - `last_used`: The time at which the model's last call on the endpoint ended, or at which the model was loaded.
    - `until`: The time at which a FAILED state ends.
    """

    __slots__ = (
        "call_moment",
        "client",
        "endpoint",
        "failures",
        "has_lied",
        "idle",
        "in_flight",
        "is_ours",
        "is_unsure",
        "last_used",
        "makes_room",
        "moment",
        "signature",
        "since",
        "state",
        "until",
        "versions",
        "why",
    )

    def __init__(self, endpoint: Endpoint, state: ReplicaState, now: float, moment: int) -> None:
        self.endpoint = endpoint
        self.state = state
        self.since = self.last_used = now
        self.moment = self.call_moment = moment
        """The number of the table change that began the current state. `call_moment` is the value that this number had
        when the last finished call was sent."""
        self.versions: tuple[str, ...] = ()
        self.signature: str | None = None
        """The inputs and outputs that the server reports; None if the server has not been queried for them since it
        loaded the model."""
        self.why = ""
        self.until = 0.0
        self.failures = 0
        """The number of failures since the last answered call."""
        self.in_flight = 0
        self.idle: asyncio.Event | None = None
        """An event that is set when the last call in flight has ended; None until a caller waits for it."""
        self.has_lied = False
        """True if the state is FAILED because the server lists the model but does not have it."""
        self.is_unsure = False
        """True if the state is FAILED, but the server has not reported its models since and might still have this
        model."""
        self.is_ours = False
        """True while this gateway is loading or unloading the model. During this time, the gateway ignores the server's
        reports about the model."""
        self.client = ""
        """The client whose call caused the model to be loaded here; empty if loads per client are not limited, or if
        another client has called the model since."""
        self.makes_room = False
        """True if the state is UNLOADING to make room for another model. The capacity already counts as the other
        model's."""

    @property
    def takes_room(self) -> bool:
        """True if the replica uses capacity because the server has loaded the model or might have loaded it."""
        if self.state is ReplicaState.UNLOADING:
            return not self.makes_room
        return self.state in (ReplicaState.HELD, ReplicaState.LOADING) or self.is_unsure

    def ended(self, now: float) -> None:
        """Subtract a call from the number of calls in flight."""
        self.in_flight -= 1
        self.last_used = now
        if not self.in_flight and self.idle is not None:
            self.idle.set()

    async def until_idle(self) -> None:
        """Wait until no calls are in flight here."""
        while self.in_flight:
            self.idle = self.idle or asyncio.Event()
            self.idle.clear()
            await self.idle.wait()

    def can_be_loaded(self, now: float) -> bool:
        """Return True if the model is not loaded here, and the backoff period after a failed load is over. A server
        that has lost a model can load it again immediately, but not repeatedly."""
        if self.state is ReplicaState.FAILED:
            return (now >= self.until and not self.is_unsure) or (self.has_lied and self.failures == 1)
        return self.state is ReplicaState.GONE

    def become(self, state: ReplicaState, now: float, moment: int, why: str = "") -> None:
        """Change the state."""
        self.state, self.since, self.moment, self.why = state, now, moment, why
        self.has_lied = self.is_unsure = self.makes_room = False
        self.signature = None
        if state is ReplicaState.HELD:
            self.last_used = now


class Placement:
    """The endpoints that have one model or are loading it, and the choice of an endpoint for each call."""

    __slots__ = (
        "by_version", "calls", "choice", "demand", "failure", "failures", "model", "not_before", "places", "waiting",
        "wanted_by", "wanted_since",
    )  # fmt: skip

    def __init__(self, model: str) -> None:
        self.model = model
        self.places: dict[Endpoint, ModelReplica] = {}
        self.choice: EndpointChoice | None = None
        """The choice among the endpoints with the model; None if no endpoint has it, and before the first
        `Placements.chosen`."""
        self.by_version: Mapping[str, EndpointChoice] | None = None
        """The choice for each version; None if all endpoints have the same versions, or do not report versions."""
        self.calls = 0
        self.waiting = 0
        """The number of calls that wait for an endpoint with the model."""
        self.demand = 0.0
        """The mean number of calls in flight and waiting calls over the last seconds."""
        self.failure: LoadFailure | None = None
        """The last failed load; None after a successful load."""
        self.failures = 0
        """The number of consecutive failed loads."""
        self.not_before = 0.0
        """The earliest time at which this gateway can try to load the model, while another gateway is loading it."""
        self.wanted_by = ""
        """The client whose call was the first to wait for the model; empty if loads per client are not limited."""
        self.wanted_since = 0.0
        """The time at which calls began to wait for this model because no endpoint has it."""

    def held(self) -> Iterator[ModelReplica]:
        """Return the replicas that are serving the model."""
        return (each for each in self.places.values() if each.state is ReplicaState.HELD)

    @property
    def in_flight(self) -> int:
        """The total number of calls in flight to the replicas."""
        return sum(each.in_flight for each in self.places.values())

    @property
    def last_used(self) -> float | None:
        """The time at which the model's last call ended."""
        return max((each.last_used for each in self.places.values()), default=None) if self.calls else None

    def forget_choices(self) -> None:
        """Drop the cached choices, because the endpoints with the model have changed."""
        self.choice = self.by_version = None


class PlacementWatcher(Protocol):
    """The interface through which a table reports its changes."""

    def holds_more(self, endpoint: Endpoint) -> None:
        """Handle a model that `endpoint` now also has."""

    def has_no_holder(self, placement: Placement) -> None:
        """Handle a model that all endpoints have lost."""

    def cannot_be_loaded(self, placement: Placement, error: Callable[[], GatewayError]) -> None:
        """Handle a model that no endpoint can load soon; `error` creates an error with the reason."""

    def lists_others(self) -> None:
        """Handle a change of the complete model list."""


class Placements:
    """The placements of one backend's models. `new_choice` creates an EndpointChoice with the backend's settings."""

    def __init__(self, backend: str, new_choice: Callable[[], EndpointChoice], clock: Callable[[], float]) -> None:
        self.backend = backend
        self._clock = clock
        self.new_choice = new_choice
        self._choices: WeakValueDictionary[tuple[Endpoint, ...], EndpointChoice] = WeakValueDictionary()
        self.models: dict[str, Placement] = {}
        """All models that an endpoint has or lists, by name."""
        self.stocks: dict[Endpoint, ServerInventory | None] = {}
        """The last report of each endpoint; None if the endpoint has not responded yet."""
        self._emptied: dict[Endpoint, set[str]] = {}
        """For each endpoint, the models that it has lost, whose replicas are removed with its next report."""
        self.moment = 0
        """The number of replica state changes so far. Each query records this number at its start, because the response
        does not reflect later changes."""
        self._entries: tuple[ModelEntry, ...] | None = None
        self._watchers: list[PlacementWatcher] = []

    def take_over(self, newer: "Placements") -> None:
        """Continue with the endpoints and settings of `newer`, the Placements of a new configuration."""
        self.new_choice = newer.new_choice
        self._choices.clear()
        for endpoint in [each for each in self.stocks if each not in newer.stocks]:
            self.leave(endpoint)
        for each in self.models.values():
            each.forget_choices()
        for endpoint, stock in newer.stocks.items():
            if endpoint not in self.stocks:
                self.join(endpoint)
                if stock is not None:
                    self.reported(endpoint, stock, self.moment)

    def watch(self, watcher: "PlacementWatcher") -> None:
        """Notify `watcher` of changes."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: "PlacementWatcher") -> None:
        """Stop notifying `watcher`."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def join(self, endpoint: Endpoint) -> None:
        """Add an endpoint whose models are unknown. Do nothing if the table already contains it."""
        self.stocks.setdefault(endpoint, None)

    def leave(self, endpoint: Endpoint) -> None:
        """Remove an endpoint."""
        if endpoint in self.stocks:
            del self.stocks[endpoint]
            self._emptied.pop(endpoint, None)
            for each in list(self.models.values()):
                place = each.places.pop(endpoint, None)
                if place is not None and place.state is ReplicaState.HELD:
                    self._lose(each)
                self._drop_unused(each)
            self._changed()

    def chosen(self, placement: Placement) -> EndpointChoice | None:
        """Return the choice among the endpoints with a model, or None if no endpoint has it or only drained endpoints
        do."""
        if placement.choice is None:
            held = [each for each in placement.held() if each.endpoint.takes_calls]
            if held:
                placement.choice = self._among(held)
                if len({each.versions for each in held if each.versions}) > 1:
                    placement.by_version = self._choices_by_version(held)
        return placement.choice

    def drain_changed(self, endpoint: Endpoint) -> None:
        """Handle the start or the end of an endpoint's drain."""
        held = [each for each in self.models.values() if _holds(each, endpoint)]
        for placement in held:
            placement.forget_choices()
        for placement in held:
            if placement.waiting and self.chosen(placement) is None:
                for watcher in tuple(self._watchers):
                    watcher.has_no_holder(placement)

    def drained_holders(self, model: str) -> list[str]:
        """Return the addresses of the drained endpoints that have a model."""
        placement = self.models.get(model)
        held = () if placement is None else placement.held()
        return [each.endpoint.address for each in held if not each.endpoint.takes_calls]

    def _choices_by_version(self, held: Sequence[ModelReplica]) -> Mapping[str, EndpointChoice]:
        versions = dict.fromkeys(version for each in held for version in each.versions)
        return {
            version: self._among([each for each in held if version in each.versions or not each.versions])
            for version in versions
        }

    def _among(self, places: Iterable[ModelReplica]) -> EndpointChoice:
        endpoints = tuple([each.endpoint for each in places])
        choice = self._choices.get(endpoints)
        if choice is None:
            choice = self._choices[endpoints] = self.new_choice()
            choice.name = self.backend
            choice.among(endpoints)
        return choice

    def reported(self, endpoint: Endpoint, stock: ServerInventory, asked: int) -> tuple[str, ...]:
        """Record an endpoint's response to a query that began at change number `asked`. Replicas that have changed
        since that number keep their state. Return the models that the endpoint has lost."""
        if endpoint not in self.stocks:
            return ()
        before, self.stocks[endpoint] = self.stocks[endpoint], self._shared(stock)
        gained = [model for model, versions in stock.held.items() if self._has(model, versions, endpoint, asked)]
        for model, state in stock.changing.items():
            self._is_changing(model, state, endpoint, asked)
        lost = tuple(self._lost(endpoint, stock, before, asked))
        new = [model for model in stock.listed if model not in self.models]
        self.models.update({model: Placement(model) for model in new})
        if gained or lost or new or before is None:
            self._changed()
        if gained:
            self._tell_differences(gained)
            for watcher in tuple(self._watchers):
                watcher.holds_more(endpoint)
        return lost

    def add(self, placement: Placement, endpoint: Endpoint, state: ReplicaState) -> ModelReplica:
        """Add a replica of a model."""
        place = placement.places[endpoint] = ModelReplica(endpoint, state, self._clock(), self._next())
        return place

    def _next(self) -> int:
        self.moment += 1
        return self.moment

    def became(self, placement: Placement, place: ModelReplica, state: ReplicaState, why: str = "") -> None:
        """Record the new state of a replica."""
        was_held = place.state is ReplicaState.HELD
        place.become(state, self._clock(), self._next(), why)
        if state is ReplicaState.HELD:
            placement.forget_choices()
            for watcher in tuple(self._watchers):
                watcher.holds_more(place.endpoint)
        elif was_held:
            self._lose(placement)
        if state is ReplicaState.GONE:
            self._emptied.setdefault(place.endpoint, set()).add(placement.model)
        self._changed()

    def refuse(self, placement: Placement, error: Callable[[], GatewayError]) -> None:
        """Notify the watchers that a model cannot be loaded, to fail the calls that wait for it."""
        for watcher in tuple(self._watchers):
            watcher.cannot_be_loaded(placement, error)

    def _lose(self, placement: Placement) -> None:
        """Handle a server that has lost this model."""
        placement.forget_choices()
        if not any(placement.held()):
            for watcher in tuple(self._watchers):
                watcher.has_no_holder(placement)

    def _changed(self) -> None:
        self._entries = None
        for watcher in tuple(self._watchers):
            watcher.lists_others()

    def _shared(self, stock: ServerInventory) -> ServerInventory:
        """Return `stock`, but share another endpoint's list if both lists are equal. Sharing saves memory, because
        servers often have the same repository."""
        for other in self.stocks.values():
            if other is not None and other.listed == stock.listed:
                return ServerInventory(stock.held, stock.changing, other.listed)
        return stock

    def _has(self, model: str, versions: tuple[str, ...], endpoint: Endpoint, asked: int) -> bool:
        """Record that an endpoint reports a model. Return True if the model is new on this endpoint."""
        placement = self.models.get(model)
        if placement is None:
            placement = self.models[model] = Placement(model)
        place, now = placement.places.get(endpoint), self._clock()
        if place is None:
            place = self.add(placement, endpoint, ReplicaState.HELD)
        elif place.state is ReplicaState.HELD:
            if place.versions != versions:
                place.versions = versions
                placement.forget_choices()
            return False
        elif place.is_ours or place.moment > asked or (place.has_lied and now < place.until):
            return False
        else:
            place.become(ReplicaState.HELD, now, self._next())
        place.versions = versions
        placement.forget_choices()
        return True

    def _is_changing(self, model: str, state: ReplicaState, endpoint: Endpoint, asked: int) -> None:
        placement = self.placement(model)
        place = placement.places.get(endpoint)
        if place is None:
            self.add(placement, endpoint, state)
        elif not place.is_ours and place.moment <= asked and place.state is not state:
            self.became(placement, place, state)

    def _lost(
        self, endpoint: Endpoint, stock: ServerInventory, before: ServerInventory | None, asked: int
    ) -> Iterator[str]:
        """Record the models that an endpoint has lost, and yield the models that it served."""
        known = self._emptied.pop(endpoint, set())
        if before is not None:
            known.update(before.listed, before.changing, before.held)
        for model in known.difference(stock.held, stock.changing):
            if (placement := self.models.get(model)) is None:
                continue
            place = placement.places.get(endpoint)
            if place is None:
                self._drop_unused(placement)
                continue
            if place.is_ours or place.moment > asked:
                self._emptied.setdefault(endpoint, set()).add(model)
                continue
            place.is_unsure = False
            if place.state is ReplicaState.GONE or (place.state is ReplicaState.FAILED and model not in stock.listed):
                self._prune(placement, place)
            elif place.state in (ReplicaState.HELD, ReplicaState.LOADING, ReplicaState.UNLOADING):
                was_held = place.state is ReplicaState.HELD
                place.become(ReplicaState.GONE, self._clock(), self._next())
                self._emptied.setdefault(endpoint, set()).add(model)
                if was_held:
                    yield model
                    self._lose(placement)

    def _prune(self, placement: Placement, place: ModelReplica) -> None:
        """Remove a replica without a model, unless it has calls in flight."""
        if place.in_flight:
            self._emptied.setdefault(place.endpoint, set()).add(placement.model)
        else:
            del placement.places[place.endpoint]
            self._drop_unused(placement)

    def _drop_unused(self, placement: Placement) -> None:
        if placement.places or placement.waiting:
            return
        if not self.is_listed(placement.model):
            self.models.pop(placement.model, None)

    def is_listed(self, model: str) -> bool:
        """Return whether any server's repository contains a model."""
        return any(stock is not None and model in stock.listed for stock in self.stocks.values())

    def forget_unlisted(self, placement: Placement, place: ModelReplica) -> None:
        """Drop a failed load of a model that no server lists."""
        if not self.is_listed(placement.model):
            placement.places.pop(place.endpoint, None)
            self._drop_unused(placement)
            self._changed()

    def denied(self, model: str, endpoint: Endpoint, why: str) -> bool:
        """Mark a model as missing on an endpoint that has responded that it does not have the model. The endpoint
        receives no calls for the model until it lists the model again and a delay has passed. Return whether the table
        listed the model for this endpoint."""
        placement = self.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if placement is None or place is None or place.state is not ReplicaState.HELD:
            return False
        place.failures += 1
        place.until = self._clock() + min(SECONDS_DISBELIEVED * 2.0 ** min(place.failures - 1, 16), MOST_DISBELIEVED)
        self.became(placement, place, ReplicaState.FAILED, why)
        place.has_lied = True
        text = "endpoint %s of backend %r lists model %r, but refuses calls for it: %s"
        _lines.write(("denied", endpoint.address), logging.WARNING, text, endpoint.address, self.backend, model, why)
        return True

    def placement(self, model: str) -> Placement:
        """Return the Placement of a model, which an operator might have requested by name. Create the Placement if
        necessary."""
        return self.models.get(model) or self.models.setdefault(model, Placement(model))

    def unknown(self) -> tuple[Endpoint, ...]:
        """Return the endpoints that have not reported their models yet."""
        return tuple(endpoint for endpoint, stock in self.stocks.items() if stock is None)

    def entries(self) -> tuple[ModelEntry, ...]:
        """Return each model on any endpoint once, with all its versions, sorted by name.

        Models that are in a repository but not loaded have the state UNAVAILABLE."""
        if self._entries is None:
            self._entries = tuple(entry for name in sorted(self.models) for entry in _entries(self.models[name]))
        return self._entries

    def report(self) -> tuple[PlacedModel, ...]:
        """Return all models, sorted by name."""
        return tuple(_reported(self.models[name]) for name in sorted(self.models))

    def _tell_differences(self, models: Iterable[str]) -> None:
        """Log the models whose versions differ between endpoints."""
        for model in models:
            held = [each for each in self.models[model].held() if each.versions]
            if len({each.versions for each in held}) > 1:
                shown = "; ".join(f"{each.endpoint.address} has {', '.join(each.versions)}" for each in held[:5])
                text = "backend %r has model %r in different versions: %s"
                _lines.write(("versions", self.backend), logging.WARNING, text, self.backend, model, shown)


def _holds(placement: Placement, endpoint: Endpoint) -> bool:
    place = placement.places.get(endpoint)
    return place is not None and place.state is ReplicaState.HELD


def _versions(placement: Placement) -> tuple[str, ...]:
    return tuple(dict.fromkeys(version for each in placement.held() for version in each.versions))


def _entries(placement: Placement) -> Iterator[ModelEntry]:
    held = list(placement.held())
    for version in _versions(placement) or ("",):
        if held:
            yield ModelEntry(placement.model, version, "READY")
        else:
            why = next((each.why for each in placement.places.values() if each.why), "not loaded")
            yield ModelEntry(placement.model, version, "UNAVAILABLE", why)


def _reported(placement: Placement) -> PlacedModel:
    holdings = (ReplicaReport(each.endpoint, each.state, each.why, each.since) for each in placement.places.values())
    return PlacedModel(
        placement.model,
        _versions(placement),
        tuple(each for each in holdings if each.state is not ReplicaState.GONE),
        placement.calls,
        placement.in_flight,
        placement.last_used,
    )
