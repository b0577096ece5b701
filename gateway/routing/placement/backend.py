"""A backend whose endpoints have different models: it sends each request to one that has its model.

It is one Backend with one fair queue. The choice of an endpoint is made among the holders of the request's model, which
costs one lookup more than a plain Backend's; a slot that becomes free goes to the next waiter in fair order whose model
the endpoint holds. The list of models is the union of all, known without a call.

A server that answers that it does not have a model which it was believed to have gets no more calls for it; the next
holder is asked, once.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import WAKING, Operation
from gateway.core.types import Answer, Request, Response, Tries
from gateway.routing.backend import Backend
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement import refusals
from gateway.routing.placement.inventory import Inventory
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.questions import OWN_ANSWERS
from gateway.routing.placement.stocktaking import Stocktaking
from gateway.routing.placement.table import ModelPlace, Placement, Placements, PlaceState
from gateway.routing.queue import Waiter
from gateway.routing.sending import Send
from gateway.routing.sequences import SequenceKey, sequence_of

MOST_TRIES = 3
"""A request is sent to another holder once if its server does not have the model, and also if that could not be
reached before and the model was loaded elsewhere."""


class PlacedBackend(Backend):
    """A Backend that knows which endpoint has which model."""

    placements: Placements
    """Which endpoint has which model. Backends of one name that follow each other share it."""
    inventory: Inventory
    stocktaking: Stocktaking
    """Asks the endpoints what they have."""
    loader: OperatedLoader | None = None
    """Loads and unloads models; None if the protocol's servers cannot be asked to."""
    is_on_demand = False
    """Models are loaded when they are asked for."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._on_other_models: list[Any] = []
        self._recoveries: dict[Endpoint, Any] = {}
        self.waiting_calls.line_of = _model_and_version
        self.waiting_calls.awaited = self._awaited
        if self._servers.runs_to_the_end:
            self._sender.in_slot = partial(self._send_counted, self._sender.in_slot)
        else:
            self._send_in_slot = partial(self._send_counted, self._send_in_slot)

    def begin(
        self,
        placements: Placements,
        inventory: Inventory,
        stocktaking: Stocktaking,
        loader: OperatedLoader | None = None,
        *,
        is_on_demand: bool = False,
    ) -> None:
        """Use these from now on. With `is_on_demand` the loader loads what is asked for."""
        self.placements, self.inventory, self.stocktaking = placements, inventory, stocktaking
        self.loader, self.is_on_demand = loader, is_on_demand
        if loader is not None:
            loader.ask_soon = stocktaking.ask_soon
            if is_on_demand:
                stocktaking.on_lost = loader.on_lost
        placements.watch(self)
        for endpoint in self.endpoints:
            self._join(endpoint)

    # --- endpoints that come and go ---

    def add(self, endpoint: Endpoint) -> None:
        """As the Backend's. The endpoint is asked what it has."""
        is_new = endpoint not in self.endpoints
        super().add(endpoint)
        if is_new:
            self._join(endpoint)
            self.stocktaking.ask_soon(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """As the Backend's."""
        super().remove(endpoint)
        if (came_back := self._recoveries.pop(endpoint, None)) is not None:
            endpoint.unwatch(None, came_back)
            self.stocktaking.leave(endpoint)
            self.placements.leave(endpoint)

    def _drain_changed(self, endpoint: Endpoint) -> None:
        self.placements.drain_changed(endpoint)
        super()._drain_changed(endpoint)

    def close(self) -> None:
        """As the Backend's."""
        super().close()
        self.placements.unwatch(self)
        for endpoint, came_back in self._recoveries.items():
            endpoint.unwatch(None, came_back)

    def start(self) -> None:
        """Begin to ask the endpoints what they have, and to load what is asked for."""
        self.stocktaking.start()
        if self.loader is not None and self.is_on_demand:
            self.loader.start()

    def stop(self) -> None:
        """End the background tasks. Loads that run go on."""
        self.stocktaking.stop()
        if self.loader is not None:
            self.loader.stop()

    def replace(self, previous: Backend) -> None:
        """As the Backend's. What the previous one knows of the servers stays known."""
        super().replace(previous)
        if not isinstance(previous, PlacedBackend) or previous.protocol is not self.protocol:
            return
        own, self.placements = self.placements, previous.placements
        own.unwatch(self)
        self.placements.take_over(own)
        self.placements.watch(self)
        self.stocktaking.use(self.placements)
        if self.loader is not None and previous.loader is not None:
            previous.loader.take_over(self.loader)
            self.loader = previous.loader
            if self.is_on_demand:
                self.stocktaking.on_lost = self.loader.on_lost

    def _join(self, endpoint: Endpoint) -> None:
        self.placements.join(endpoint)
        came_back = self._recoveries[endpoint] = partial(self._came_back, endpoint)
        endpoint.watch(None, came_back)

    def _came_back(self, endpoint: Endpoint) -> None:
        self.stocktaking.ask_soon(endpoint)
        if self.loader is not None and self.is_on_demand:
            self.loader.came_back(endpoint)
            self.holds_more(endpoint)

    # --- what the table tells ---

    def holds_more(self, endpoint: Endpoint) -> None:
        """Give waiting calls to an endpoint that holds another model."""
        while self._hand_over_slot(endpoint):
            pass

    def has_no_holder(self, placement: Placement) -> None:
        """Fail the calls that wait for a model that nobody holds any more, or have it loaded."""
        if not placement.waiting:
            return
        if self.loader is not None and self.is_on_demand:
            self.loader.want(placement)
        else:
            self.cannot_be_loaded(placement, partial(self.nobody_has, placement.model))

    def cannot_be_loaded(self, placement: Placement, error: Callable[[], GatewayError]) -> None:
        """Fail the calls that wait for a model."""
        self.queue.fail(error, partial(_is_for, placement.model))

    def lists_others(self) -> None:
        """Tell those who keep the list of models."""
        for watcher in self._on_other_models:
            watcher()

    def on_other_models(self, watcher: Any) -> None:
        """As the Backend's."""
        super().on_other_models(watcher)
        self._on_other_models.append(watcher)

    # --- requests ---

    async def __call__(self, request: Request) -> Answer:
        """As the Backend's, by an endpoint that has the model.

        Raises:
            GatewayError: as the Backend's; NOT_FOUND if no server has the model; UNAVAILABLE if one that might have it
                has not told yet.
        """
        own = OWN_ANSWERS.get(request.operation)
        if own is not None:
            return await own(self, request)
        is_last = False
        for _ in range(MOST_TRIES - 1):
            try:
                return await super().__call__(request)
            except GatewayError as error:
                again = await self._elsewhere(request, error)
                if again is None or is_last:
                    raise
                is_last = not isinstance(error, TransportError)
            request = again
        return await super().__call__(request)

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """As the Backend's, by an endpoint that has the model. Raises as a call."""
        begun, sent = False, request
        for tries in (1, 2):
            try:
                async with aclosing(super().stream(sent, passthrough=passthrough)) as responses:
                    async for response in responses:
                        begun = True
                        yield response
                return
            except GatewayError as error:
                again = None if begun else await self._elsewhere(request, error)
                if again is None or tries == 2:
                    raise
                sent = again

    async def _elsewhere(self, request: Request, error: GatewayError) -> Request | None:
        """The request to send to another holder if `error` says that its endpoint does not have the model; None
        otherwise, and if there is no other holder. The endpoint gets no more calls for it."""
        placement = self.placements.models.get(request.model)
        if placement is None:
            return None
        if isinstance(error, TransportError):
            return request if not error.sent and self._is_loaded_elsewhere(request, placement) else None
        place = next((each for each in placement.places.values() if each.endpoint.address == error.endpoint), None)
        if place is None or not await self._denies(place, request, error):
            return None
        self.stocktaking.ask_soon(place.endpoint)
        again = request
        if request.version and request.version not in place.versions:
            # Versions that it does not tell: the model itself it may still have.
            if request.tries is not None:
                return None
            again = replace(request, tries=Tries(avoided=frozenset({error.endpoint})))
            return again if len(self._able(request)) > 1 else None
        self.placements.denied(request.model, place.endpoint, error.message)
        is_there = bool(self._able(request)) or self.why_not_loaded(request) is None
        return again if is_there else None

    def _is_loaded_elsewhere(self, request: Request, placement: Placement) -> bool:
        """Whether no holder of the model can be reached, and another server loads it."""
        choice = placement.choice or self.placements.chosen(placement)
        if choice is None or not self._are_down(choice) or self.loader is None or request.operation not in _LOADING:
            return False
        return self.loader.why_not(placement) is None

    async def _denies(self, place: ModelPlace, request: Request, error: GatewayError) -> bool:
        """Whether `error` says that the server does not have the model. Triton says UNAVAILABLE of one that it has
        unloaded, which may have other reasons: it is asked."""
        if error.status is Status.NOT_FOUND:
            return error.reason is Reason.MODEL_NOT_FOUND
        if error.status is not Status.UNAVAILABLE:
            return False
        try:
            return not await self.inventory.has(place.endpoint, request.model)
        except GatewayError:
            return False

    def _choice_of(self, request: Request) -> EndpointChoice | None:
        """The choice among the endpoints that have the request's model, in its version; None if nobody has it."""
        placement = self.placements.models.get(request.model)
        if placement is None:
            return None
        choice = placement.choice or self.placements.chosen(placement)
        if request.version and placement.by_version is not None:
            return placement.by_version.get(request.version)
        return choice

    def _able(self, request: Request) -> Sequence[Endpoint]:
        if not request.model:
            return self.serving
        choice = self._choice_of(request)
        return () if choice is None else choice.endpoints

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        if not request.model or not self.serving:
            return super()._free_endpoint(request, tried)
        choice = self._choice_of(request)
        if (
            request.unread is None
            and request.parameters
            and (sequence := sequence_of(request)) is not None
            and self._is_at_drained(request, sequence)
        ):
            return self._endpoint_of_sequence(request, sequence, choice or self.choice, tried)
        if choice is None or (not choice.endpoints[0].health.is_up and self._are_down(choice)):
            if (error := self.why_not_loaded(request)) is None:
                return None
            if choice is None:
                raise error
        if request.operation not in self._with_slot:
            asked = choice.choose(0, tried) or choice.endpoints[0]
            self.placements.models[request.model].places[asked].last_used = self._clock()  # a call follows
            return asked
        if request.unread is None and request.parameters and (sequence := sequence_of(request)) is not None:
            if (before := self._sequences.endpoint(sequence)) is not None and before not in choice.endpoints:
                tried = (*tried, before)  # its state is lost
            return self._endpoint_of_sequence(request, sequence, choice, tried)
        endpoint = choice.choose(self.max_in_flight, tried)
        if endpoint is not None:
            endpoint.take()
        return endpoint

    def _is_at_drained(self, request: Request, key: SequenceKey) -> bool:
        """Whether a sequence goes on whose state is at an endpoint that is drained."""
        endpoint = None if request.parameters.get("sequence_start") else self._sequences.endpoint(key)
        return endpoint is not None and not endpoint.takes_calls and request.operation in self._with_slot

    def _are_down(self, choice: EndpointChoice) -> bool:
        """Whether models are loaded on demand and no holder of one can be reached, so that it may be loaded
        elsewhere."""
        return self.is_on_demand and not any(
            each.health.is_up or not each.health.is_left_out for each in choice.endpoints
        )

    def why_not_loaded(self, request: Request) -> GatewayError | None:
        """Why a request whose model nobody holds does not wait until it is loaded; None if it does."""
        model, placement = request.model, self.placements.models.get(request.model)
        if self.loader is None or not self.is_on_demand or placement is None or not self._is_unheld(placement):
            return self.nobody_has(model, request.version)
        if not self.placements.is_listed(model):
            return self.nobody_has(model)
        if request.operation not in _LOADING:
            text = f"backend {self.name!r}: model {model!r} is not loaded on any server; a call would load it"
            return refusal(Reason.NOT_READY, text)
        return self.loader.why_not(placement)

    async def _wait_for_slot(self, request: Request, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        placement = self.placements.models.get(request.model)
        if placement is None:
            return await super()._wait_for_slot(request, tried)
        is_unheld = self.is_on_demand and self._is_unheld(placement)
        placement.waiting += 1
        try:
            if is_unheld and self.loader is not None:
                self.loader.want(placement, request.client)
            endpoint = await super()._wait_for_slot(request, tried)
        finally:
            placement.waiting -= 1
        if request.operation not in self._with_slot:
            endpoint.give_back()
        elif is_unheld and (sequence := sequence_of(request)) is not None:
            self._sequences.note(request, sequence, endpoint)
        return endpoint

    def _is_unheld(self, placement: Placement) -> bool:
        choice = placement.choice or self.placements.chosen(placement)
        return choice is None or self._are_down(choice)

    def _next_waiter(self, endpoint: Endpoint) -> Waiter[Endpoint] | None:
        return self.queue.next(partial(self._fits, endpoint))

    def _fits(self, endpoint: Endpoint, line: Any) -> bool:
        """Whether the calls that wait in a line of `_model_and_version` are for a model that `endpoint` holds."""
        model, version = line
        if not model:
            return True
        placement = self.placements.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if place is None or place.state is not PlaceState.HELD:
            return False
        return not version or not place.versions or version in place.versions

    def nobody_has(self, model: str, version: str = "") -> GatewayError:
        """As `refusals.nobody_has`."""
        return refusals.nobody_has(self.placements, self.stocktaking.errors, model, version)

    def able(self, request: Request) -> Sequence[Endpoint]:
        """The endpoints that have the request's model, in its version; all that serve if it names none."""
        return self._able(request)

    def ask_without_slot(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """The answer of one endpoint to a request that takes no slot."""
        return self._sender.without_slot(request, endpoint)

    def _awaited(self, request: Request) -> str:
        placement = self.placements.models.get(request.model)
        if placement is not None and not any(placement.held()):
            return f"model {request.model!r} was not loaded"
        return f"no endpoint that has model {request.model!r} was free"

    # --- what is counted ---

    async def _send_counted(self, send: Send, request: Request, endpoint: Endpoint) -> Answer:
        place = self._began(request, endpoint)
        if place is None:
            return await send(request, endpoint)
        try:
            answer = await send(request, endpoint)
            place.failures = 0
            return answer
        finally:
            self._ended(place)

    def _begin_stream(self, request: Request, endpoint: Endpoint) -> Callable[[], None]:
        place, give_back = self._began(request, endpoint), super()._begin_stream(request, endpoint)
        if place is None:
            return give_back

        def end() -> None:
            self._ended(place)
            give_back()

        return end

    def _began(self, request: Request, endpoint: Endpoint) -> ModelPlace | None:
        placement = self.placements.models.get(request.model)
        if placement is None:
            return None
        placement.calls += 1
        place = placement.places.get(endpoint)
        if place is not None:
            place.in_flight += 1
            if place.client and place.client != request.client:
                place.client = ""
        return place

    def _ended(self, place: ModelPlace) -> None:
        place.ended(self._clock())
        if not place.in_flight and self.loader is not None:
            self.loader.advance_soon()


_LOADING = WAKING | {Operation.CONFIG}
"""The operations for which a model is loaded. Clients ask for its metadata and its configuration before they call
it."""


def _model_and_version(request: Request) -> Hashable:
    return request.model, request.version


def _is_for(model: str, line: Any) -> bool:
    return bool(line[0] == model)
