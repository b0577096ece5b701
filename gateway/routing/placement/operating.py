"""Loads and unloads models at the request of operators and clients, on one server or all, and moves a drained server's
models.
"""

import asyncio

from gateway.core.errors import Reason, refusal
from gateway.core.operations import Operation
from gateway.core.requests import ControlRequest
from gateway.core.tasks import outlived_by
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.loading import TICK, Loader
from gateway.routing.placement.table import Placement, ReplicaState


class OperatedLoader(Loader):
    """A Loader that also loads and unloads individual models on request."""

    async def load(self, request: ControlRequest) -> None:
        """Load a model at a client's request, with the client's settings.

        The model is loaded on the servers that already have it, or on the server with the largest free capacity.

        Raises:
            GatewayError: the server's error, or RESOURCE_EXHAUSTED if no server can free enough capacity now.
        """
        placement = self._table.placement(request.model)
        if held := list(placement.held()):
            await asyncio.gather(*(self.control.ask(request, each.endpoint) for each in held))
            for each in held:
                self.ask_soon(each.endpoint)
            return
        placement.wanted_by = ""
        step = self._rooms().step(placement) or self._rooms().step(placement, is_listed=False)
        if step is None:
            text = f"backend {self._table.backend!r}: every server is too busy to load model {request.model!r}"
            raise refusal(Reason.OVERLOADED, f"{text}; try again later", retry_after=TICK)
        if not await outlived_by(self._begin(step, request)):
            await self.load(request)  # another gateway has loaded it, without this client's settings

    async def unload(self, request: ControlRequest) -> None:
        """Unload a model at a client's request, from all servers that have it.

        Raises:
            GatewayError: the server's error, or DEADLINE_EXCEEDED. In both cases, the model might still be loaded.
        """
        placement = self._table.placement(request.model)
        places = list(placement.held())
        for place in places:
            self._reserve_unload(placement, place)
        tasks = [self._spawn(self._unload(placement, each, request)) for each in places]
        await asyncio.gather(*map(outlived_by, tasks))

    async def load_at(self, model: str, endpoint: Endpoint) -> None:
        """Load a model on one endpoint, unless the endpoint already has it. If necessary, first unload the endpoint's
        least recently used models that have no calls. Ignore the backoff period after a failed load.

        Raises:
            GatewayError: the server's error. FAILED_PRECONDITION if the endpoint is drained, or if this or another
                gateway is already loading or unloading the model. RESOURCE_EXHAUSTED if no model on the server can be
                unloaded to make room.
        """
        placement = self._table.placement(model)
        place = placement.places.get(endpoint)
        if place is not None and place.state is ReplicaState.HELD:
            return
        if endpoint.drain is not None:
            raise refusal(Reason.FAILED_PRECONDITION, f"endpoint {endpoint.address} is drained")
        if place is not None and place.state in (ReplicaState.LOADING, ReplicaState.UNLOADING):
            text = f"model {model!r} is {place.state.value} at {endpoint.address}"
            raise refusal(Reason.FAILED_PRECONDITION, f"{text}; try again when that is done")
        placement.wanted_by = ""
        step = self._rooms().step_into(placement, endpoint)
        if step is None:
            text = (
                f"cannot unload a model at {endpoint.address} for {model!r}: all have calls, are pinned, or must stay"
            )
            raise refusal(Reason.OVERLOADED, f"{text}, or the capacity is too small; try again later")
        if not await outlived_by(self._begin(step)) and endpoint not in {each.endpoint for each in placement.held()}:
            text = f"another gateway loads model {model!r} elsewhere, or has just done so"
            raise refusal(Reason.FAILED_PRECONDITION, f"{text}; try again when that is done")

    async def unload_at(self, model: str, endpoint: Endpoint) -> None:
        """Unload a model on one endpoint. The model receives no more calls on this endpoint, and the server finishes
        the model's current calls. If models are loaded on demand and no other server has the model, the next call loads
        it again.

        Raises:
            GatewayError: NOT_FOUND if the endpoint does not have the model, or the server's error.
        """
        placement = self._table.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if placement is None or place is None or place.state is not ReplicaState.HELD:
            raise refusal(Reason.MODEL_NOT_FOUND, f"endpoint {endpoint.address} does not have model {model!r}")
        self._reserve_unload(placement, place)
        request = ControlRequest(Operation.UNLOAD, model)
        await outlived_by(self._spawn(self._unload(placement, place, request)))

    async def load_elsewhere(self, endpoint: Endpoint) -> tuple[str, ...]:
        """On other servers, load the models that only `endpoint` has, most recently used first.

        A model never replaces a more recently used model. Return the models that could not be loaded, with the reasons;
        these models are loaded when clients request them."""
        loads: dict[str, asyncio.Task[bool]] = {}
        left, rooms = [], self._rooms()
        alone = [each for each in self._table.models.values() if self._is_alone(each, endpoint)]
        for placement in sorted(alone, key=lambda each: -each.places[endpoint].last_used):
            step = rooms.step(placement, placement.places[endpoint].last_used)
            if step is not None:
                rooms.begun(step)
                loads[placement.model] = self._begin(step)
            elif rooms.step(placement) is None:
                left.append(f"{placement.model}: no other server has room for it and can load it")
        found = await asyncio.gather(*map(outlived_by, loads.values()), return_exceptions=True)
        failed = (f"{model}: {why}" for model, why in zip(loads, found, strict=True) if isinstance(why, Exception))
        return (*left, *failed)

    def _is_alone(self, placement: Placement, endpoint: Endpoint) -> bool:
        held = [each.endpoint for each in placement.held()]
        return endpoint in held and not any(self.takes_models(each) for each in held if each is not endpoint)
