"""Loads and unloads the models of one backend, following the decisions of `plan`.

A request for a model that no server has waits in the backend's queue, and the Loader is notified (`want`). The Loader
tries to load the model on one server after another until a server has it. If the demand requires it, more copies follow
later. A load goes through these states:

| event | replica | calls that wait |
|---|---|---|
| a server is chosen | LOADING; the models to unload for it are UNLOADING | wait |
| the server has loaded the model | HELD | are sent to this server |
| the server rejects the load with an error | FAILED, for a backoff period that grows | fail with this error, like later calls during the backoff period |
| the server is unreachable, or does not respond in time | FAILED, for a backoff period that grows | wait for the next server, or fail if no other server exists |

A load in progress continues even after the last waiting client has disconnected, because the model might be requested
again.
"""  # noqa: E501

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from math import inf
from typing import Any, TypeVar

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.log_limit import LogLimit
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import ControlRequest
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement import plan
from gateway.routing.placement.agreement import LoadCoordinator, LocalCoordinator
from gateway.routing.placement.control import ModelControl
from gateway.routing.placement.inventory import Inventory
from gateway.routing.placement.plan import LoadSettings, LoadStep, ServerCapacities
from gateway.routing.placement.table import LoadFailure, ModelReplica, Placement, Placements, ReplicaState

T = TypeVar("T")

_lines = LogLimit(logging.getLogger(__name__), lines=60)

TICK = 1.0
"""The interval between two checks for models to load or unload, in seconds."""
FIRST_PAUSE = 1.0
"""The first backoff period after a failed load, in seconds. The period doubles with each failure."""
LONGEST_PAUSE = 300.0
NEWEST_SHARE = 0.3
"""The weight of the newest sample in a model's mean number of calls."""
UNUSED_SECONDS = 60.0
"""The minimum time without calls, in seconds, after which an additional copy of another model can replace a model."""


def _answers(endpoint: Endpoint) -> bool:
    return endpoint.health.is_up and endpoint.drain is None


class Loader:
    """Loads and unloads the models of one backend, on demand and when operators request it. After a reload, the new
    backend of the same name takes over the Loader."""

    def __init__(
        self,
        table: Placements,
        settings: LoadSettings,
        protocol: Protocol,
        inventory: Inventory,
        clock: Callable[[], float],
        agreement: LoadCoordinator | None = None,
    ) -> None:
        self._table = table
        self.settings = settings
        self.control = ModelControl(protocol, inventory, settings.timeout, clock)
        self._clock = clock
        self.agreement = agreement or LocalCoordinator()
        self._wanted: dict[str, Placement] = {}
        """The models that no server has and that calls wait for, in order of arrival."""
        self._running: set[asyncio.Task[Any]] = set()
        self._is_due = False
        """True if `_advance` is already scheduled."""
        self._came_back: set[Endpoint] = set()
        self._loop: asyncio.Task[None] | None = None
        self.takes_models: Callable[[Endpoint], bool] = _answers
        """Returns whether models can be loaded on an endpoint."""
        self.ask_soon: Callable[[Endpoint], Awaitable[None] | None] = lambda endpoint: None
        """Queries an endpoint for its models."""
        self.sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep
        self.loads = self.failed_loads = self.unloads = 0
        """The numbers of successful loads, failed loads, and unloads."""

    # --- for the backend ---

    def start(self) -> None:
        """Start checking for models to load or unload, in a separate task."""
        if self._loop is None:
            self._loop = spawn(self._run())

    def stop(self) -> None:
        """Stop starting loads and unloads. Loads in progress continue."""
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    async def close(self) -> None:
        """Cancel loads and unloads in progress, because the gateway is stopping."""
        self.stop()
        for task in list(self._running):
            task.cancel()
        await self.agreement.close()

    def take_over(self, newer: "Loader") -> None:
        """Continue with the settings of `newer`, the Loader of a new configuration."""
        self.settings, self.control = newer.settings, newer.control
        before, self.agreement = self.agreement, newer.agreement
        spawn(before.close())
        self.takes_models, self.ask_soon = newer.takes_models, newer.ask_soon

    def want(self, placement: Placement, client: str | None = None) -> None:
        """Handle a call that waits for a model that no reachable server has. `client` is None if the call was already
        waiting."""
        if placement.model not in self._wanted:
            self._wanted[placement.model] = placement
            if client is not None:
                placement.wanted_by = client if self.settings.share < 1 else ""
            placement.wanted_since = self._clock()
        self.advance_soon()

    def advance_soon(self) -> None:
        """After a change, schedule a check for the next iteration of the event loop: a requested model might now be
        loadable."""
        if self._wanted and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._advance_now)

    def why_not(self, placement: Placement) -> GatewayError | None:
        """Return the error for a call to a model that no server has, or None if the call causes a server to load the
        model."""
        if self._is_being_loaded(placement):
            return None
        model, now, failure = placement.model, self._clock(), placement.failure
        if failure is not None and now < failure.until:
            return self._refusal(f"loading model {model!r} failed at {failure.endpoint.address}: {failure.why}",
                                 failure.until - now)  # fmt: skip
        size, memory = self.settings.size(model), self.settings.memory
        if memory is not None and size > memory:
            text = (
                f"model {model!r} has {size} bytes (placement.sizes), more than the `memory` of a server ({memory}); "
                "raise placement.memory"
            )
            return refusal(Reason.FAILED_PRECONDITION, f"backend {self._table.backend!r}: {text}")
        if any(True for _ in plan.candidates(self._table, placement, self.takes_models, now)):
            return None
        if any(each.state is ReplicaState.UNLOADING and each.is_ours for each in placement.places.values()):
            return None  # it can be loaded again afterwards
        paused = [each for each in placement.places.values() if each.state is ReplicaState.FAILED and each.until > now]
        if paused:
            first = min(paused, key=lambda each: each.until)
            text = f"loading model {model!r} failed at {first.endpoint.address}: {first.why}"
            return self._refusal(text, first.until - now)
        listing = ", ".join(each.address for each in self._listing(model)) or "no server"
        text = f"backend {self._table.backend!r}: model {model!r} is in the repository of {listing}"
        text = f"{text}, which cannot load it now; try again later"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False, retry_after=TICK)

    def on_lost(self, endpoint: Endpoint, models: Iterable[str]) -> None:
        """Handle the loss of these models at an endpoint.

        If the endpoint was down or has no models left, its server has restarted. In this case, load its models again,
        most recently used first, up to its capacity."""
        stock = self._table.stocks.get(endpoint)
        was_away = endpoint in self._came_back
        self._came_back.discard(endpoint)
        if stock is None or (stock.held and not was_away):
            return
        known = [placement for model in models if (placement := self._table.models.get(model)) is not None]
        rooms = self._rooms()
        for placement in sorted(known, key=lambda each: -(each.last_used or -inf)):
            if not self._is_being_loaded(placement) and (step := rooms.step_at(placement, endpoint)) is not None:
                rooms.begun(step)
                self._begin(step)

    def came_back(self, endpoint: Endpoint) -> None:
        """Handle an endpoint that was down and responds again."""
        self._came_back.add(endpoint)
        self.advance_soon()

    # --- decisions on loading and unloading ---

    def tick(self) -> None:
        """Check every model: unload idle and surplus copies, and load the copies that calls need."""
        now, settings = self._clock(), self.settings
        for placement in self._table.models.values():
            if placement.places or placement.demand > 0:
                calls = placement.in_flight + placement.waiting
                placement.demand += NEWEST_SHARE * (calls - placement.demand)
        placements = [each for each in self._table.models.values() if each.places]
        rooms = self._rooms()
        unneeded = list(plan.idle(placements, settings, now))
        unneeded += [(each, place) for each in placements for place in plan.surplus(each, settings, now)]
        unneeded += rooms.too_many()
        for placement, place in dict.fromkeys(unneeded):
            self._reserve_unload(placement, place)
            self._spawn(self._surviving(self._unload(placement, place)))
        self._advance(rooms)
        self._look_at_loads_of_others()
        for placement in placements:
            self._load_copies(placement, rooms, now)

    def _load_copies(self, placement: Placement, rooms: ServerCapacities, now: float) -> None:
        held = [each for each in placement.held() if self.takes_models(each.endpoint)]
        failure = placement.failure
        if not held or self._is_being_loaded(placement) or (failure is not None and now < failure.until):
            return
        if len(held) < self.settings.copies(placement.demand):
            step = rooms.step(placement, now - UNUSED_SECONDS)
            if step is not None:
                rooms.begun(step)
                self._begin(step)

    def _advance_now(self) -> None:
        self._is_due = False
        if self._wanted:
            with log_and_continue("loading models"):
                self._advance(self._rooms())

    def _advance(self, rooms: ServerCapacities) -> None:
        """Start loading the requested models, as far as the servers' capacity allows."""
        starved_since = self._clock() - plan.STARVED
        for placement in list(self._wanted.values()):
            is_served = any(self.takes_models(each.endpoint) for each in placement.held())
            if is_served or not placement.waiting:
                del self._wanted[placement.model]
            elif self._is_being_loaded(placement) or self._clock() < placement.not_before:
                continue
            elif self.why_not(placement) is not None:
                del self._wanted[placement.model]
                self._table.refuse(placement, partial(self._why_not, placement))
            elif (step := rooms.step(placement, is_starved=placement.wanted_since <= starved_since)) is not None:
                rooms.begun(step)
                self._begin(step)

    def _why_not(self, placement: Placement) -> GatewayError:
        error = self.why_not(placement)
        return error or self._refusal(f"loading model {placement.model!r} failed", TICK)

    def _rooms(self) -> ServerCapacities:
        return ServerCapacities(self._table, self.settings, self._clock(), self.takes_models)

    def _is_being_loaded(self, placement: Placement) -> bool:
        """Return whether a reachable server is loading the model, no matter which gateway requested the load."""
        places = placement.places.values()
        return any(each.state is ReplicaState.LOADING and self.takes_models(each.endpoint) for each in places)

    def _look_at_loads_of_others(self) -> None:
        """Query the servers that are loading a requested model for another gateway, because they do not notify this
        gateway when the load ends."""
        for placement in self._wanted.values():
            for place in placement.places.values():
                if place.state is ReplicaState.LOADING and not place.is_ours:
                    self.ask_soon(place.endpoint)

    def _listing(self, model: str) -> list[Endpoint]:
        return [each for each, stock in self._table.stocks.items() if stock is not None and model in stock.listed]

    def _refusal(self, text: str, seconds: float) -> GatewayError:
        return refusal(Reason.NOT_READY, f"backend {self._table.backend!r}: {text}", retry_after=max(seconds, 0.0))

    # --- execution ---

    def _begin(self, step: LoadStep, request: ControlRequest | None = None) -> "asyncio.Task[bool]":
        """Start loading a model. The task's result is False if another gateway has loaded the model or has tried to."""
        placement, endpoint = step.placement, step.endpoint
        place = placement.places.get(endpoint)
        if place is None:
            place = self._table.add(placement, endpoint, ReplicaState.LOADING)
        else:
            self._table.became(placement, place, ReplicaState.LOADING)
        place.is_ours = True
        place.client = placement.wanted_by
        for victim, victims_place in step.victims:
            self._reserve_unload(victim, victims_place)
            victims_place.makes_room = True
        request = request or ControlRequest(Operation.LOAD, placement.model)
        return self._spawn(self._load(step, place, request))

    def _spawn(self, doing: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = spawn(doing)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the error is in the log, and waiting callers receive it
            self.advance_soon()

    async def _surviving(self, doing: Coroutine[Any, Any, None]) -> None:
        with log_and_continue("unloading a model"):
            try:
                await doing
            except GatewayError:
                return  # the error is in the log

    async def _load(self, step: LoadStep, place: ModelReplica, request: ControlRequest) -> bool:
        """Unload other models if necessary, then load a model. Raise a GatewayError with the reason if the load
        fails."""
        placement, address = step.placement, place.endpoint.address
        try:
            if not await self._may_load(placement, place):
                self._leave(step.victims)
                await self._given_up(placement, place)
                return False
            try:
                await self._make_room(step)
                await self.control.ask(request, place.endpoint)
            finally:
                await self.agreement.release(placement.model, address)
        except GatewayError as error:
            self._failed(placement, place, error)
            raise
        except BaseException:
            place.is_ours = False
            self._table.became(placement, place, ReplicaState.GONE)
            raise
        place.is_ours = False
        self.loads += 1
        placement.failure, placement.failures = None, 0
        if placement.places.get(place.endpoint) is place:
            place.failures = 0
            self._write(logging.INFO, place, "model %r has been loaded", placement.model)
            self._table.became(placement, place, ReplicaState.HELD)
            self.ask_soon(place.endpoint)
        return True

    async def _may_load(self, placement: Placement, place: ModelReplica) -> bool:
        """Claim a model. Return False if another gateway is loading the model, or has loaded it since the servers were
        last queried."""
        model, address = placement.model, place.endpoint.address
        known = {each.endpoint for each in placement.places.values() if each is not place and _may_be_reported(each)}
        if not await self.agreement.claim(model, address):
            return False
        if not self.agreement.is_shared:
            return True
        asked = [each for each in self._listing(model) if self.takes_models(each) and each not in known]
        if place.failures:  # this server might report the model without having it
            asked = [each for each in asked if each is not place.endpoint]
        if not await self.control.holders(model, asked):
            return True
        await self.agreement.release(model, address)
        return False

    def _leave(self, victims: Iterable[tuple[Placement, ModelReplica]]) -> None:
        """Record that models that were selected for unloading stay loaded."""
        for victim, place in victims:
            place.is_ours = False
            self._table.became(victim, place, ReplicaState.HELD)

    async def _make_room(self, step: LoadStep) -> None:
        """Unload the victims. A failure to unload does not count as a failed load of the model, because another server
        can load it."""
        try:
            await asyncio.gather(*(self._unload_idle(*each) for each in step.victims))
        except GatewayError as error:
            models = ", ".join(repr(placement.model) for placement, _ in step.victims)
            text = f"no capacity, because {models} could not be unloaded: {error.message}"
            raise TransportError(Status.UNAVAILABLE, Reason.NOT_READY, text, sent=False) from error

    async def _given_up(self, placement: Placement, place: ModelReplica) -> None:
        """Query the servers for the model, because another gateway has loaded it or has tried to. If no server has it,
        claim it again after a delay."""
        placement.not_before = self._clock() + TICK
        asked = [self.ask_soon(each) for each in self._listing(placement.model) if each is not place.endpoint]
        await asyncio.gather(*(each for each in asked if each is not None), return_exceptions=True)
        place.is_ours = False
        self._table.became(placement, place, ReplicaState.GONE)
        if (last := self.ask_soon(place.endpoint)) is not None:
            await last

    def _failed(self, placement: Placement, place: ModelReplica, error: GatewayError) -> None:
        """Record a failed load. If the server has reported the reason, fail the waiting calls with this reason."""
        self.failed_loads += 1
        place.is_ours = False
        place.failures += 1
        self._table.became(placement, place, ReplicaState.FAILED, error.message)
        now = self._clock()
        place.until = now + _pause(place.failures)
        is_late = error.status is Status.DEADLINE_EXCEEDED
        place.is_unsure = is_late or (isinstance(error, TransportError) and error.sent)
        self._write(logging.WARNING, place, "loading model %r failed: %s", placement.model, error.message)
        self.ask_soon(place.endpoint)
        if is_late or isinstance(error, TransportError):
            return
        self._table.forget_unlisted(placement, place)
        placement.failures += 1
        placement.failure = LoadFailure(place.endpoint, error.message, now + _pause(placement.failures))
        place.until = max(place.until, placement.failure.until)
        if not any(self.takes_models(each.endpoint) for each in placement.held()):
            self._table.refuse(placement, partial(self._why_not, placement))

    def _reserve_unload(self, placement: Placement, place: ModelReplica) -> None:
        """Mark the replica as unloading. From now on, it receives no calls."""
        self._table.became(placement, place, ReplicaState.UNLOADING)
        place.is_ours = True

    async def _unload(self, placement: Placement, place: ModelReplica, request: ControlRequest | None = None) -> None:
        try:
            request = request or ControlRequest(Operation.UNLOAD, placement.model)
            await self.control.ask(request, place.endpoint)
            await self.control.until_gone(placement.model, place.endpoint, self.sleep)
        except GatewayError as error:
            self._stays(placement, place, error.message)
            raise
        finally:
            place.is_ours = False
        self.unloads += 1
        self._write(logging.INFO, place, "model %r is unloaded", placement.model)
        self._table.became(placement, place, ReplicaState.GONE)

    async def _unload_idle(self, placement: Placement, place: ModelReplica) -> None:
        """Unload a replica after its last call has ended, or after `timeout`, because a stream could continue
        forever."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                await place.until_idle()
        except TimeoutError as error:
            text = f"the model still has calls after {self.settings.timeout:g} s (placement.timeout)"
            text = f"{text}; raise this timeout for long calls"
            self._stays(placement, place, text)
            raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text) from error
        await self._unload(placement, place)

    def _stays(self, placement: Placement, place: ModelReplica, why: str) -> None:
        """Record that a model could not be unloaded and is still loaded."""
        place.is_ours = False
        self._table.became(placement, place, ReplicaState.HELD)
        place.until = self._clock() + FIRST_PAUSE
        self._write(logging.WARNING, place, "unloading model %r failed: %s", placement.model, why)
        self.ask_soon(place.endpoint)

    async def _run(self) -> None:
        while True:
            await self.sleep(TICK)
            with log_and_continue("checking which models to load or unload"):
                self.tick()

    def _write(self, level: int, place: ModelReplica, text: str, *values: object) -> None:
        where = f"endpoint {place.endpoint.address} of backend {self._table.backend!r}"
        _lines.write((self._table.backend, level), level, f"%s: {text}", where, *values)


def _may_be_reported(place: ModelReplica) -> bool:
    """Return True if the server might still list the model although the model has not been loaded there since the last
    query."""
    return place.state in (ReplicaState.HELD, ReplicaState.UNLOADING) or place.has_lied


def _pause(failures: int) -> float:
    return float(min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE))
