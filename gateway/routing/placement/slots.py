"""The slots of a backend whose endpoints have different models. Each request goes to an endpoint that has its model.

All calls wait in one fair queue. A choice among the endpoints with the request's model costs one more lookup than a
choice among all endpoints. When a slot becomes free, the next waiting call in fair order whose model the endpoint has
takes the slot. The model list is the union of the lists of all endpoints; the gateway returns it without a query to the
servers.

If the table lists a model for a server, but the server responds that it does not have the model, the call goes to the
next server with the model. The first server receives no more calls for this model.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import WAKING, Operation
from gateway.core.requests import Request, Tries
from gateway.routing.backend import Backend
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.one_try import Send
from gateway.routing.placement import questions
from gateway.routing.placement.inventory import Inventory, InventoryRefresher
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.questions import Questions
from gateway.routing.placement.table import ModelReplica, Placement, Placements, ReplicaState
from gateway.routing.sequences import SequenceKey, sequence_of
from gateway.routing.slots import Ended, LocalSlots, OwnAnswer, Slots, may_try_another
from gateway.routing.waiting import Lines

MOST_ROUNDS = 2
"""The maximum number of retries of a request if all servers with its model were unreachable and another server has
loaded the model. Only the first retry can have a different cause: a server that does not have the model."""


class PlacedSlots:
    """The slots of the endpoints that have a request's model.

    - `placements`: The table that shows which endpoint has which model. After a reload, the new backend with the same
      name takes over the table.
    - `inventory`, `refresher`: Query the endpoints for their models.
    - `loader`: Loads and unloads models; None if the protocol does not support loading.
    - `is_on_demand`: True if a client's request causes the loader to load a model.
    - `ask`: Returns one endpoint's response to a request that takes no slot.
    """

    def __init__(
        self,
        local: LocalSlots,
        ask: Send,
        placements: Placements,
        inventory: Inventory,
        refresher: InventoryRefresher,
        loader: OperatedLoader | None = None,
        *,
        is_on_demand: bool = False,
    ) -> None:
        self.local = local
        self.placements, self.inventory, self.refresher = placements, inventory, refresher
        self.loader, self.is_on_demand = loader, is_on_demand
        self.answers: Mapping[Operation, OwnAnswer] = Questions(self, ask).answers
        self._watched: set[Endpoint] = set()
        local.calls.lines = Lines(_model_and_version, self._fits, self._awaited)
        local.on_join.append(self._joins)
        local.on_leave.append(self._leaves)
        local.on_drain.append(self._drain_changed)
        if loader is not None:
            loader.ask_soon = refresher.ask_soon
            if is_on_demand:
                refresher.on_lost = loader.on_lost
        placements.watch(self)
        for endpoint in local.endpoints:
            self._join(endpoint)

    def start(self) -> None:
        """Start querying the endpoints for their models and loading requested models."""
        self.refresher.start()
        if self.loader is not None and self.is_on_demand:
            self.loader.start()

    def stop(self) -> None:
        """Stop the background tasks. Loads in progress continue."""
        self.refresher.stop()
        if self.loader is not None:
            self.loader.stop()

    def replace(self, previous: Slots) -> None:
        """See `Slots.replace`. Keep the information about the servers."""
        self.local.replace(previous)
        if not isinstance(previous, PlacedSlots) or previous.inventory.protocol is not self.inventory.protocol:
            return
        own, self.placements = self.placements, previous.placements
        own.unwatch(self)
        self.placements.take_over(own)
        self.placements.watch(self)
        self.refresher.use(self.placements)
        if self.loader is not None and previous.loader is not None:
            previous.loader.take_over(self.loader)
            self.loader = previous.loader
            if self.is_on_demand:
                self.refresher.on_lost = self.loader.on_lost

    def close(self) -> None:
        """See `Slots.close`."""
        self.local.close()
        self.placements.unwatch(self)
        for endpoint in self._watched:
            endpoint.unwatch(None, self._came_back)

    async def is_ready(self) -> bool | None:
        """See `Slots.is_ready`."""
        return await self.local.is_ready()

    # --- added and removed endpoints ---

    def _joins(self, endpoint: Endpoint) -> None:
        self._join(endpoint)
        self.refresher.ask_soon(endpoint)

    def _join(self, endpoint: Endpoint) -> None:
        self.placements.join(endpoint)
        self._watched.add(endpoint)
        endpoint.watch(None, self._came_back)

    def _leaves(self, endpoint: Endpoint) -> None:
        self._watched.discard(endpoint)
        endpoint.unwatch(None, self._came_back)
        self.refresher.leave(endpoint)
        self.placements.leave(endpoint)

    def _drain_changed(self, endpoint: Endpoint) -> None:
        self.placements.drain_changed(endpoint)

    def _came_back(self, endpoint: Endpoint) -> None:
        self.refresher.ask_soon(endpoint)
        if self.loader is not None and self.is_on_demand:
            self.loader.came_back(endpoint)
            self.holds_more(endpoint)

    # --- changes in the table ---

    def holds_more(self, endpoint: Endpoint) -> None:
        """Send waiting calls to an endpoint that now has an additional model."""
        while self.local.hand_over(endpoint):
            pass

    def has_no_holder(self, placement: Placement) -> None:
        """If calls wait for a model that all servers have lost, load the model or fail the calls."""
        if not placement.waiting:
            return
        if self.loader is not None and self.is_on_demand:
            self.loader.want(placement)
        else:
            self.cannot_be_loaded(placement, partial(self.model_missing, placement.model))

    def cannot_be_loaded(self, placement: Placement, error: Callable[[], GatewayError]) -> None:
        """Fail the calls that wait for a model."""
        self.local.queue.fail(error, partial(_is_for, placement.model))

    def lists_others(self) -> None:
        """Notify the users of the model list."""
        self.local.lists_others()

    # --- slots ---

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """See `Slots.free`.

        Raises:
            GatewayError: same as `Slots.free`; also NOT_FOUND if no server has the model, and UNAVAILABLE if a server
                that might have the model has not reported its models yet.
        """
        local = self.local
        if not request.model or not local.serving:
            return local.free(request, tried)
        choice = self._choice_of(request)
        sequence = None
        if request.unread is None and request.parameters and request.operation in local.with_slot:
            sequence = sequence_of(request)
        if sequence is not None and self._is_at_drained(request, sequence):
            return local.free(request, tried, choice)
        if choice is None or (not choice.endpoints[0].health.is_up and self._are_down(choice)):
            if (error := self.why_not_loaded(request)) is None:
                if request.tries is not None and request.tries.elsewhere:
                    raise local.no_other_is_free()
                return None
            if choice is None:
                raise error
        if sequence is not None:
            before = local.sequences.endpoint(sequence)
            if before is not None and before not in choice.endpoints:
                tried = (*tried, before)  # the state of the sequence is lost
        endpoint = local.free(request, tried, choice)
        if endpoint is not None and request.operation not in local.with_slot:
            self.placements.models[request.model].places[endpoint].last_used = local.clock()  # a call to it follows
        return endpoint

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """See `Slots.wait`."""
        local, placement = self.local, self.placements.models.get(request.model)
        if placement is None:
            return await local.wait(request, tried)
        is_unheld = self.is_on_demand and self._is_unheld(placement)
        placement.waiting += 1
        try:
            if is_unheld and self.loader is not None:
                self.loader.want(placement, request.client)
            endpoint = await local.wait(request, tried)
        finally:
            placement.waiting -= 1
        if is_unheld and request.operation in local.with_slot:
            local.note_sequence(request, endpoint)
        return endpoint

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """See `Slots.began`. Also count the request at its model's replica."""
        ended, placement = self.local.began(request, endpoint), self.placements.models.get(request.model)
        if placement is None or request.operation not in self.local.with_slot:
            return ended
        placement.calls += 1
        place = placement.places.get(endpoint)
        if place is None:
            return ended
        place.in_flight += 1
        if place.client and place.client != request.client:
            place.client = ""
        return partial(self._ended, place, place.moment, ended)

    def _ended(self, place: ModelReplica, moment: int, ended: Ended, answered: bool) -> None:
        if answered:
            place.failures = 0
        place.call_moment = moment
        place.ended(self.local.clock())
        if not place.in_flight and self.loader is not None:
            self.loader.advance_soon()
        ended(answered)

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """See `Slots.again`. If the endpoint does not have the model, it receives no more calls for that model, and the
        request goes to another endpoint that has it."""
        if may_try_another(error, tried, self.able(request)):
            return None
        most = MOST_ROUNDS if isinstance(error, TransportError) else 1
        again = await self._elsewhere(request, error) if rounds < most else None
        if again is None:
            raise error
        return again

    def able(self, request: Request) -> Sequence[Endpoint]:
        """Return the endpoints that have the request's model and version, or all serving endpoints if the request
        contains no model name."""
        if not request.model:
            return self.local.serving
        choice = self._choice_of(request)
        return () if choice is None else choice.endpoints

    # --- the endpoints with the model of a request ---

    def _choice_of(self, request: Request) -> EndpointChoice | None:
        """Return the choice among the endpoints that have the request's model and version, or None if no endpoint has
        them."""
        placement = self.placements.models.get(request.model)
        if placement is None:
            return None
        choice = placement.choice or self.placements.chosen(placement)
        if request.version and placement.by_version is not None:
            return placement.by_version.get(request.version)
        return choice

    def _is_at_drained(self, request: Request, key: SequenceKey) -> bool:
        """Return whether the request continues a sequence whose state is on a drained endpoint."""
        endpoint = None if request.parameters.get("sequence_start") else self.local.sequences.endpoint(key)
        return endpoint is not None and not endpoint.takes_calls

    def _are_down(self, choice: EndpointChoice) -> bool:
        """Return True if no endpoint in `choice` is reachable and another endpoint can load the model on demand."""
        return self.is_on_demand and not any(
            each.health.is_up or not each.health.is_left_out for each in choice.endpoints
        )

    def _is_unheld(self, placement: Placement) -> bool:
        choice = placement.choice or self.placements.chosen(placement)
        return choice is None or self._are_down(choice)

    def _fits(self, endpoint: Endpoint, line: Any) -> bool:
        """Return whether the calls in a line of `_model_and_version` are for a model that `endpoint` has."""
        model, version = line
        if not model:
            return True
        placement = self.placements.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if place is None or place.state is not ReplicaState.HELD:
            return False
        return not version or not place.versions or version in place.versions

    def _awaited(self, request: Request) -> str:
        placement = self.placements.models.get(request.model)
        if placement is not None and not any(placement.held()):
            return f"loading model {request.model!r} failed"
        return f"no endpoint that has model {request.model!r} was free"

    def model_missing(self, model: str, version: str = "") -> GatewayError:
        """See `questions.model_missing`."""
        return questions.model_missing(self.placements, self.refresher.errors, model, version)

    def why_not_loaded(self, request: Request) -> GatewayError | None:
        """Return the error for a request whose model is missing on all servers, or None if the request waits for a
        load."""
        model, placement = request.model, self.placements.models.get(request.model)
        if self.loader is None or not self.is_on_demand or placement is None or not self._is_unheld(placement):
            return self.model_missing(model, request.version)
        if not self.placements.is_listed(model):
            return self.model_missing(model)
        if request.operation not in _LOADING:
            text = f"backend {self.local.name!r}: model {model!r} is on no server yet; call it to load it"
            return refusal(Reason.NOT_READY, text)
        return self.loader.why_not(placement)

    # --- servers without a model that the table lists for them ---

    async def _elsewhere(self, request: Request, error: GatewayError) -> Request | None:
        """If `error` means that the endpoint does not have the model, stop sending it calls for this model, and return
        the request for another endpoint. Return None for other errors, and if no other endpoint exists."""
        placement = self.placements.models.get(request.model)
        if placement is None:
            return None
        if isinstance(error, TransportError):
            return request if not error.sent and self._is_loaded_elsewhere(request, placement) else None
        endpoint = next((each for each in self.local.endpoints if each.address == error.endpoint), None)
        if endpoint is None or not await self._denies(endpoint, request, error):
            return None
        self.refresher.ask_soon(endpoint)
        again = request
        place = placement.places.get(endpoint)  # None if the endpoint has reported the loss since the call failed
        if place is not None and request.version and request.version not in place.versions:
            # The server does not list this version, but it might still have the model in other versions.
            if request.tries is not None:
                return None
            again = replace(request, tries=Tries(avoided=frozenset({error.endpoint})))
            return again if len(self.able(request)) > 1 else None
        # If the number of the change differs, the server loaded the model again after it received the call.
        if place is not None and place.call_moment == place.moment:
            self.placements.denied(request.model, endpoint, error.message)
        is_there = bool(self.able(request)) or self.why_not_loaded(request) is None
        return again if is_there else None

    def _is_loaded_elsewhere(self, request: Request, placement: Placement) -> bool:
        """Return whether no server with the model is reachable but another server can load it."""
        choice = placement.choice or self.placements.chosen(placement)
        if choice is None or not self._are_down(choice) or self.loader is None or request.operation not in _LOADING:
            return False
        return self.loader.why_not(placement) is None

    async def _denies(self, endpoint: Endpoint, request: Request, error: GatewayError) -> bool:
        """Return whether `error` means that the server does not have the model. Triton returns UNAVAILABLE for an
        unloaded model, but also for other reasons; in this case, query the server."""
        if error.status is Status.NOT_FOUND:
            return error.reason is Reason.MODEL_NOT_FOUND
        if error.status is not Status.UNAVAILABLE:
            return False
        try:
            return not await self.inventory.has(endpoint, request.model)
        except GatewayError:
            return False


def placed(backends: Mapping[str, Backend]) -> dict[str, PlacedSlots]:
    """Return the slots of the backends whose servers have different models, by backend name."""
    return {name: each.slots for name, each in backends.items() if isinstance(each.slots, PlacedSlots)}


_LOADING = WAKING | {Operation.CONFIG}
"""The operations that cause a model to be loaded. They include metadata and configuration, which clients query before
they call the model.
"""


def _model_and_version(request: Request) -> Hashable:
    return request.model, request.version


def _is_for(model: str, line: Any) -> bool:
    return bool(line[0] == model)
