"""Sends load and unload requests to servers, and checks that the servers have carried them out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.exchange import ask
from gateway.core.protocol import Protocol
from gateway.core.requests import ControlRequest
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.inventory import Inventory

FIRST_LOOK = 0.05
"""The delay before the first check that a model is unloaded, in seconds. The delay doubles with each check, up to
LONGEST_LOOK."""
LONGEST_LOOK = 1.0


class ModelControl:
    """Controls the models on one backend's servers. `timeout` is the time limit for a server to load or unload a model,
    in seconds."""

    def __init__(self, protocol: Protocol, inventory: Inventory, timeout: float, clock: Callable[[], float]) -> None:
        self._protocol = protocol
        self._inventory = inventory
        self._timeout = timeout
        self._clock = clock

    async def ask(self, request: ControlRequest, endpoint: Endpoint) -> None:
        """Send a server a request to load or unload a model.

        Raises:
            GatewayError: the server's error, or DEADLINE_EXCEEDED if the server does not respond in time.
        """
        endpoint.enter()
        try:
            async with asyncio.timeout(self._timeout):
                target = await self._inventory.target(endpoint)
                await ask(request, self._protocol, endpoint, target)
        except TimeoutError as error:
            text = f"no answer to {request.operation.value} within {self._timeout:g} s (placement.timeout)"
            text = f"{text}; raise this timeout for large models"
            raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text) from error
        finally:
            endpoint.leave()

    async def until_gone(self, model: str, endpoint: Endpoint, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait until a server lists a model as unloaded. The wait is necessary because servers can respond before they
        have unloaded the model.

        Raises:
            GatewayError: same as `Inventory.of`; also DEADLINE_EXCEEDED if the server still has the model at the time
                limit.
        """
        wait, until = FIRST_LOOK, self._clock() + self._timeout
        while True:
            stock = await self._inventory.of(endpoint)
            if model not in stock.held and model not in stock.changing:
                return
            if self._clock() >= until:
                text = f"the server still has the model after {self._timeout:g} s (placement.timeout)"
                text = f"{text}; raise this timeout, or check the server"
                raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text)
            await sleep(wait)
            wait = min(2 * wait, LONGEST_LOOK)

    async def holders(self, model: str, endpoints: Sequence[Endpoint]) -> set[Endpoint]:
        """Return the `endpoints` that currently report the model. Omit endpoints that do not respond."""
        held = await asyncio.gather(*(self._holds(each, model) for each in endpoints))
        return {each for each, holds in zip(endpoints, held, strict=True) if holds}

    async def _holds(self, endpoint: Endpoint, model: str) -> bool:
        try:
            return model in (await self._inventory.of(endpoint)).held
        except GatewayError:
            return False
