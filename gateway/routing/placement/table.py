"""The table of one backend: which endpoint has which model, in which versions, and what becomes of it there.

Nothing here asks a server or waits. `Placements.told` takes what a server says that it has; requests are counted at the
ModelReplica that they are sent to. A request costs one lookup, however many models and endpoints there are: each
Placement keeps an EndpointChoice among its holders, made when the first request needs it. Models with the same holders
share one.
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
from gateway.core.types import ModelEntry
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint

_lines = LogLimit(logging.getLogger(__name__))

SECONDS_DISBELIEVED = 30.0
"""For how long an endpoint gets no calls for a model that it lists, after it has answered that it does not have it. The
time doubles with each further such answer, up to MOST_DISBELIEVED."""
MOST_DISBELIEVED = 600.0


class ReplicaState(Enum):
    """The values are the words of reports."""

    HELD = "held"
    """A server that has the model, and gets calls for it."""
    LOADING = "loading"
    UNLOADING = "unloading"
    FAILED = "failed"
    """It could not be loaded, or the server has said that it does not have it although it lists it."""
    GONE = "gone"
    """The server does not have it any more; calls that are in flight there go on."""


@frozen
class ServerInventory:
    """The models that one server reports (its inventory).

    - `held`: the versions of each model that it serves; none if it does not tell them.
    - `changing`: the models that it loads or unloads now.
    - `listed`: all models of its repository, whether they are loaded or not.
    """

    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changing: Mapping[str, ReplicaState] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()


@frozen
class ReplicaReport:
    """One model at one endpoint, as a report shows it. `since`: when this state began, on the backend's clock."""

    endpoint: Endpoint
    state: ReplicaState
    why: str
    since: float


@frozen
class PlacedModel:
    """One model, as a report shows it. `last_used` is on the backend's clock; None if it was never called."""

    model: str
    versions: tuple[str, ...]
    holdings: tuple[ReplicaReport, ...]
    calls: int
    in_flight: int
    last_used: float | None

    @property
    def copies(self) -> int:
        """How many servers hold it."""
        return sum(each.state is ReplicaState.HELD for each in self.holdings)


@frozen
class LoadFailure:
    """A load that a server refused. `why`: in its own words; `until`: when the next one may be tried."""

    endpoint: Endpoint
    why: str
    until: float


class ModelReplica:
    """One model at one endpoint. `since`: when its state began; `last_used`: when a call of it ended there, or when it
    came; `until`: when a state FAILED is over."""

    __slots__ = (
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
        self.moment = moment
        """The number of the change that its state began with, of all changes of the table."""
        self.versions: tuple[str, ...] = ()
        self.signature: str | None = None
        """The inputs and outputs that the server tells; None if it was not asked since it has the model."""
        self.why = ""
        self.until = 0.0
        self.failures = 0
        """Failures since the last call that it has answered."""
        self.in_flight = 0
        self.idle: asyncio.Event | None = None
        """Set when its last call has ended; None if nobody has waited for that."""
        self.has_lied = False
        """It is FAILED because the server lists the model and does not have it."""
        self.is_unsure = False
        """It is FAILED, and the server may have the model all the same: it has not told since."""
        self.is_ours = False
        """This gateway loads or unloads it now: what the server says of it meanwhile does not count."""
        self.client = ""
        """The client whose call had it loaded here, if its loads are bounded and no other client has called it since;
        else empty."""
        self.makes_room = False
        """It is UNLOADING so that another model can be loaded, which its room is counted for already."""

    @property
    def takes_room(self) -> bool:
        """Whether a model is there, or may be."""
        if self.state is ReplicaState.UNLOADING:
            return not self.makes_room
        return self.state in (ReplicaState.HELD, ReplicaState.LOADING) or self.is_unsure

    def ended(self, now: float) -> None:
        """Count one call less in flight."""
        self.in_flight -= 1
        self.last_used = now
        if not self.in_flight and self.idle is not None:
            self.idle.set()

    async def until_idle(self) -> None:
        """Wait until no call is in flight here."""
        while self.in_flight:
            self.idle = self.idle or asyncio.Event()
            self.idle.clear()
            await self.idle.wait()

    def can_be_loaded(self, now: float) -> bool:
        """Whether nothing is there, and a load that failed is long enough ago. A server that has lost a model may
        load it again at once, but not time and again."""
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
    """The endpoints that have or load one model, and the choice of the endpoint for a call."""

    __slots__ = (
        "by_version", "calls", "choice", "demand", "failure", "failures", "model", "not_before", "places", "waiting",
        "wanted_by", "wanted_since",
    )  # fmt: skip

    def __init__(self, model: str) -> None:
        self.model = model
        self.places: dict[Endpoint, ModelReplica] = {}
        self.choice: EndpointChoice | None = None
        """The choice among its holders; None if nobody holds it, and before `Placements.chosen` was asked."""
        self.by_version: Mapping[str, EndpointChoice] | None = None
        """The same for each version; None if all holders have the same versions, or do not tell them."""
        self.calls = 0
        self.waiting = 0
        """Calls that wait until an endpoint that holds it takes them."""
        self.demand = 0.0
        """The calls in flight and waiting, as a mean over the last seconds."""
        self.failure: LoadFailure | None = None
        """Why it could not be loaded last; None after it was."""
        self.failures = 0
        """How often in a row it could not be loaded."""
        self.not_before = 0.0
        """When this gateway may try to load it: another one loads it now."""
        self.wanted_by = ""
        """The client whose call was the first to wait so; empty if nobody's loads are bounded."""
        self.wanted_since = 0.0
        """Since when calls wait for it that nobody holds it for."""

    def held(self) -> Iterator[ModelReplica]:
        """The places where it is held."""
        return (each for each in self.places.values() if each.state is ReplicaState.HELD)

    @property
    def in_flight(self) -> int:
        """The calls that are in flight at all places."""
        return sum(each.in_flight for each in self.places.values())

    @property
    def last_used(self) -> float | None:
        """When a call of it ended last."""
        return max((each.last_used for each in self.places.values()), default=None) if self.calls else None

    def forget_choices(self) -> None:
        """Its holders have changed."""
        self.choice = self.by_version = None


class PlacementWatcher(Protocol):
    """Somebody who is told what changes in a table."""

    def holds_more(self, endpoint: Endpoint) -> None:
        """`endpoint` holds a model that it did not hold before."""

    def has_no_holder(self, placement: Placement) -> None:
        """Nobody holds this model any more."""

    def cannot_be_loaded(self, placement: Placement, error: Callable[[], GatewayError]) -> None:
        """Nobody will hold this model soon, for the reason that `error` makes an error of."""

    def lists_others(self) -> None:
        """The answer to the question for all models has changed."""


class Placements:
    """The placements of one backend's models. `new_choice` makes an EndpointChoice of the backend's settings."""

    def __init__(self, backend: str, new_choice: Callable[[], EndpointChoice], clock: Callable[[], float]) -> None:
        self.backend = backend
        self._clock = clock
        self._new_choice = new_choice
        self._choices: WeakValueDictionary[tuple[Endpoint, ...], EndpointChoice] = WeakValueDictionary()
        self.models: dict[str, Placement] = {}
        """Every model that an endpoint has or lists, by its name."""
        self.stocks: dict[Endpoint, ServerInventory | None] = {}
        """What each endpoint has said last; None if it has not answered yet."""
        self._emptied: dict[Endpoint, set[str]] = {}
        """The models that an endpoint had, whose places are removed when it next tells what it has."""
        self.moment = 0
        """How many states of places have changed. Questions are of a moment: their answers say nothing of what changed
        later."""
        self._entries: tuple[ModelEntry, ...] | None = None
        self._watchers: list[PlacementWatcher] = []

    def take_over(self, newer: "Placements") -> None:
        """Go on with the endpoints and settings of `newer`, which was made for a new configuration."""
        self._new_choice = newer._new_choice
        self._choices.clear()
        for endpoint in [each for each in self.stocks if each not in newer.stocks]:
            self.leave(endpoint)
        for each in self.models.values():
            each.forget_choices()
        for endpoint, stock in newer.stocks.items():
            if endpoint not in self.stocks:
                self.join(endpoint)
                if stock is not None:
                    self.told(endpoint, stock, self.moment)

    def watch(self, watcher: "PlacementWatcher") -> None:
        """Tell `watcher` what changes."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: "PlacementWatcher") -> None:
        """Do not tell it any more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def join(self, endpoint: Endpoint) -> None:
        """Add an endpoint, which has not said yet what it has; nothing happens if it is there."""
        self.stocks.setdefault(endpoint, None)

    def leave(self, endpoint: Endpoint) -> None:
        """Forget an endpoint."""
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
        """The choice among the holders of a model; None if nobody holds it, or only endpoints that are drained."""
        if placement.choice is None:
            held = [each for each in placement.held() if each.endpoint.takes_calls]
            if held:
                placement.choice = self._among(held)
                if len({each.versions for each in held if each.versions}) > 1:
                    placement.by_version = self._choices_by_version(held)
        return placement.choice

    def drain_changed(self, endpoint: Endpoint) -> None:
        """An endpoint gets no more calls, or calls again."""
        held = [each for each in self.models.values() if _holds(each, endpoint)]
        for placement in held:
            placement.forget_choices()
        for placement in held:
            if placement.waiting and self.chosen(placement) is None:
                for watcher in tuple(self._watchers):
                    watcher.has_no_holder(placement)

    def drained_holders(self, model: str) -> list[str]:
        """The addresses of the endpoints that hold a model and are drained."""
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
            choice = self._choices[endpoints] = self._new_choice()
            choice.name = self.backend
            choice.among(endpoints)
        return choice

    def told(self, endpoint: Endpoint, stock: ServerInventory, asked: int) -> tuple[str, ...]:
        """Note what an endpoint has said to a question of the moment `asked`. Places that have changed since then stay
        as they are. Returns the models that it held and does not any more."""
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
        """A new place of a model."""
        place = placement.places[endpoint] = ModelReplica(endpoint, state, self._clock(), self._next())
        return place

    def _next(self) -> int:
        self.moment += 1
        return self.moment

    def became(self, placement: Placement, place: ModelReplica, state: ReplicaState, why: str = "") -> None:
        """Note that the state of a place is another one now."""
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
        """Tell those who wait for a model that it cannot be loaded."""
        for watcher in tuple(self._watchers):
            watcher.cannot_be_loaded(placement, error)

    def _lose(self, placement: Placement) -> None:
        """One of its holders does not hold it any more."""
        placement.forget_choices()
        if not any(placement.held()):
            for watcher in tuple(self._watchers):
                watcher.has_no_holder(placement)

    def _changed(self) -> None:
        self._entries = None
        for watcher in tuple(self._watchers):
            watcher.lists_others()

    def _shared(self, stock: ServerInventory) -> ServerInventory:
        """`stock`, with the list of another endpoint if that is equal: servers often share one repository."""
        for other in self.stocks.values():
            if other is not None and other.listed == stock.listed:
                return ServerInventory(stock.held, stock.changing, other.listed)
        return stock

    def _has(self, model: str, versions: tuple[str, ...], endpoint: Endpoint, asked: int) -> bool:
        """Note that an endpoint has said to have a model. Returns whether it was not known to hold it."""
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
        """Note which models an endpoint has not any more."""
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
        """Remove a place where nothing is, unless calls are in flight there."""
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
        """Whether a model is in the repository of a server."""
        return any(stock is not None and model in stock.listed for stock in self.stocks.values())

    def forget_unlisted(self, placement: Placement, place: ModelReplica) -> None:
        """Forget a load that failed of a model that no server lists."""
        if not self.is_listed(placement.model):
            placement.places.pop(place.endpoint, None)
            self._drop_unused(placement)
            self._changed()

    def denied(self, model: str, endpoint: Endpoint, why: str) -> bool:
        """Note that an endpoint, which was believed to have a model, has answered that it does not: it gets no calls
        for it until it says again that it has it, and some time has passed. Returns whether it was believed so."""
        placement = self.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if placement is None or place is None or place.state is not ReplicaState.HELD:
            return False
        place.failures += 1
        place.until = self._clock() + min(SECONDS_DISBELIEVED * 2.0 ** min(place.failures - 1, 16), MOST_DISBELIEVED)
        self.became(placement, place, ReplicaState.FAILED, why)
        place.has_lied = True
        text = "endpoint %s of backend %r lists model %r, and answers that it does not have it: %s"
        _lines.write(("denied", endpoint.address), logging.WARNING, text, endpoint.address, self.backend, model, why)
        return True

    def placement(self, model: str) -> Placement:
        """The Placement of a model, which may be new: for models that an operator names."""
        return self.models.get(model) or self.models.setdefault(model, Placement(model))

    def unknown(self) -> tuple[Endpoint, ...]:
        """The endpoints that have not said yet what they have."""
        return tuple(endpoint for endpoint, stock in self.stocks.items() if stock is None)

    def entries(self) -> tuple[ModelEntry, ...]:
        """Every model of every endpoint once, in all its versions, in the order of the names. Those that are in a
        repository and not loaded anywhere are UNAVAILABLE."""
        if self._entries is None:
            self._entries = tuple(entry for name in sorted(self.models) for entry in _entries(self.models[name]))
        return self._entries

    def report(self) -> tuple[PlacedModel, ...]:
        """All models, in the order of their names."""
        return tuple(_reported(self.models[name]) for name in sorted(self.models))

    def _tell_differences(self, models: Iterable[str]) -> None:
        """Log the models that some endpoints have in other versions than others."""
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
