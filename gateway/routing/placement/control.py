"""Asks servers to load and to unload models, and whether they have done it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.exchange import ask
from gateway.core.protocol import Protocol
from gateway.core.types import ControlRequest
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.inventory import Inventory

FIRST_LOOK = 0.05
"""Seconds after which a server is asked again whether a model is unloaded. They double, up to LONGEST_LOOK."""
LONGEST_LOOK = 1.0


class ModelControl:
    """The control of the models of one backend's servers. `timeout`: the seconds that a server may take."""

    def __init__(self, protocol: Protocol, inventory: Inventory, timeout: float, clock: Callable[[], float]) -> None:
        self._protocol = protocol
        self._inventory = inventory
        self._timeout = timeout
        self._clock = clock

    async def ask(self, request: ControlRequest, endpoint: Endpoint) -> None:
        """Ask a server to load or unload a model.

        Raises:
            GatewayError: the server's own; DEADLINE_EXCEEDED, it does not answer in time.
        """
        endpoint.enter()
        try:
            async with asyncio.timeout(self._timeout):
                target = await self._inventory.target(endpoint)
                await ask(request, self._protocol, endpoint, target)
        except TimeoutError as error:
            text = f"no answer to {request.operation.value} within {self._timeout:g} s (placement.timeout)"
            raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text) from error
        finally:
            endpoint.leave()

    async def until_gone(self, model: str, endpoint: Endpoint, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait until a server lists a model as unloaded: it may answer first, and unload then.

        Raises:
            GatewayError: as `Inventory.of`; DEADLINE_EXCEEDED, the server still has it.
        """
        wait, until = FIRST_LOOK, self._clock() + self._timeout
        while True:
            stock = await self._inventory.of(endpoint)
            if model not in stock.held and model not in stock.changing:
                return
            if self._clock() >= until:
                text = f"the server still has it after {self._timeout:g} s (placement.timeout)"
                raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text)
            await sleep(wait)
            wait = min(2 * wait, LONGEST_LOOK)

    async def holders(self, model: str, endpoints: Sequence[Endpoint]) -> set[Endpoint]:
        """The endpoints, of these, that say now that they hold a model. One that does not answer is not among them."""
        held = await asyncio.gather(*(self._holds(each, model) for each in endpoints))
        return {each for each, holds in zip(endpoints, held, strict=True) if holds}

    async def _holds(self, endpoint: Endpoint, model: str) -> bool:
        try:
            return model in (await self._inventory.of(endpoint)).held
        except GatewayError:
            return False
