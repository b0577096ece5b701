"""Orders to a fleet: models that clients name, one model on one server, and the models of a server that is drained."""

import asyncio

from gateway.core.errors import Reason, refusal
from gateway.core.operations import Operation
from gateway.core.tasks import outlived_by
from gateway.core.types import ControlRequest
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.loading import TICK, Loader
from gateway.routing.placement.table import Placement, ReplicaState


class OperatedLoader(Loader):
    """A Loader that also loads and unloads what somebody names."""

    async def load(self, request: ControlRequest) -> None:
        """Load a model because a client has asked for it, with the client's settings: where it is loaded already, or on
        the server with the most room.

        Raises:
            GatewayError: the server's own error; RESOURCE_EXHAUSTED, no server can make room for it now.
        """
        placement = self._table.placement(request.model)
        if held := list(placement.held()):
            await asyncio.gather(*(self._control.ask(request, each.endpoint) for each in held))
            for each in held:
                self.ask_soon(each.endpoint)
            return
        placement.wanted_by = ""
        step = self._rooms().step(placement) or self._rooms().step(placement, is_listed=False)
        if step is None:
            text = f"backend {self._table.backend!r}: no server can load model {request.model!r} now"
            raise refusal(Reason.OVERLOADED, f"{text}; try again later", retry_after=TICK)
        if not await outlived_by(self._begin(step, request)):
            await self.load(request)  # another gateway has loaded it, without the settings of this client

    async def unload(self, request: ControlRequest) -> None:
        """Unload a model because a client has asked for it, from all servers that hold it.

        Raises:
            GatewayError: the server's own error, or it did not answer in time. The model may still be there.
        """
        placement = self._table.placement(request.model)
        places = list(placement.held())
        for place in places:
            self._reserve_unload(placement, place)
        tasks = [self._spawn(self._unload(placement, each, request)) for each in places]
        await asyncio.gather(*map(outlived_by, tasks))

    async def load_at(self, model: str, endpoint: Endpoint) -> None:
        """Load a model at one endpoint; nothing happens if it holds it. The least recently used models without calls
        make room for it there. A pause after a load that failed is not waited for.

        Raises:
            GatewayError: the server's own error; FAILED_PRECONDITION, something else is being done with the model
                there or by another gateway, or the endpoint is drained; RESOURCE_EXHAUSTED, nothing there can make
                room.
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
                f"no model at {endpoint.address} can make room for {model!r}: they have calls, are pinned, or must stay"
            )
            raise refusal(Reason.OVERLOADED, f"{text}, or there is not so much room")
        if not await outlived_by(self._begin(step)) and endpoint not in {each.endpoint for each in placement.held()}:
            text = f"another gateway loads model {model!r} elsewhere, or has just done so"
            raise refusal(Reason.FAILED_PRECONDITION, f"{text}; try again when that is done")

    async def unload_at(self, model: str, endpoint: Endpoint) -> None:
        """Unload a model at one endpoint: it gets no more calls there, and servers end those that they have. Where
        models are loaded on demand, the next call for it loads it again if nobody else holds it.

        Raises:
            GatewayError: NOT_FOUND, the endpoint does not hold it; the server's own error.
        """
        placement = self._table.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if placement is None or place is None or place.state is not ReplicaState.HELD:
            raise refusal(Reason.MODEL_NOT_FOUND, f"endpoint {endpoint.address} does not hold model {model!r}")
        self._reserve_unload(placement, place)
        request = ControlRequest(Operation.UNLOAD, model)
        await outlived_by(self._spawn(self._unload(placement, place, request)))

    async def load_elsewhere(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Load the models that only `endpoint` holds on other servers, those that were used last first. No model makes
        room for one that was used longer ago: that one is loaded when it is asked for. Returns those that could not be
        loaded, each with the reason."""
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
