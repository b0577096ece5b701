"""Orders of operators to a fleet: one model on one server, and the models of a server that is drained."""

import asyncio

from gateway.core.errors import Reason, refusal
from gateway.core.operations import Operation
from gateway.core.tasks import outlived_by
from gateway.core.types import ControlRequest
from gateway.placement.loading import Loader
from gateway.placement.table import Placement, PlaceState
from gateway.routing.endpoint import Endpoint


class OperatedLoader(Loader):
    """A Loader that also loads and unloads what an operator names."""

    async def load_at(self, model: str, endpoint: Endpoint) -> None:
        """Load a model at one endpoint; nothing happens if it holds it. The least recently used models without calls
        make room for it there. A pause after a load that failed is not waited for.

        Raises:
            GatewayError: the server's own error; FAILED_PRECONDITION, something else is being done with the model
                there, or the endpoint is drained; RESOURCE_EXHAUSTED, nothing there can make room.
        """
        placement = self._table.placement(model)
        place = placement.places.get(endpoint)
        if place is not None and place.state is PlaceState.HELD:
            return
        if endpoint.drain is not None:
            raise refusal(Reason.FAILED_PRECONDITION, f"endpoint {endpoint.address} is drained")
        if place is not None and place.state in (PlaceState.LOADING, PlaceState.UNLOADING):
            text = f"model {model!r} is {place.state.value} at {endpoint.address}"
            raise refusal(Reason.FAILED_PRECONDITION, f"{text}; try again when that is done")
        step = self._rooms().step_into(placement, endpoint)
        if step is None:
            text = f"no model at {endpoint.address} can make room for {model!r}: all have calls"
            raise refusal(Reason.OVERLOADED, f"{text}, or there is not so much room")
        await outlived_by(self._begin(step))

    async def unload_at(self, model: str, endpoint: Endpoint) -> None:
        """Unload a model at one endpoint: it gets no more calls there, and servers end those that they have. Where
        models are loaded on demand, the next call for it loads it again if nobody else holds it.

        Raises:
            GatewayError: NOT_FOUND, the endpoint does not hold it; the server's own error.
        """
        placement = self._table.models.get(model)
        place = None if placement is None else placement.places.get(endpoint)
        if placement is None or place is None or place.state is not PlaceState.HELD:
            raise refusal(Reason.MODEL_NOT_FOUND, f"endpoint {endpoint.address} does not hold model {model!r}")
        self._reserve_unload(placement, place)
        request = ControlRequest(Operation.UNLOAD, model)
        await outlived_by(self._spawn(self._unload(placement, place, request)))

    async def load_elsewhere(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Load the models that only `endpoint` holds on other servers, those that were used last first. No model makes
        room for one that was used longer ago: that one is loaded when it is asked for. Returns those that could not be
        loaded, each with the reason."""
        loads: dict[str, asyncio.Task[None]] = {}
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
