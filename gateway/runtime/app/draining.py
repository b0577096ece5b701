"""Drains a running gateway's endpoints, and detects when their calls have ended in all processes."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from gateway.admin.operator_actions import UndrainableError, UnknownEndpointError
from gateway.admin.status import EndpointStatus, endpoint_status
from gateway.assembly.part import Workers
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Drain, DrainState, Endpoint
from gateway.routing.on_demand import StartedSlots
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.slots import placed

log = logging.getLogger("gateway.app")

LOOKS = 2
"""Number of consecutive checks without calls after which an endpoint counts as drained.

One check is not enough, because a call might be in transit between two processes.
"""
INTERVAL = 0.1
"""Seconds between checks of a draining endpoint's calls."""


class Draining:
    """Drains endpoints. `backends` returns the backends in use.

    `workers`, if any, send the calls, so Draining also drains the endpoints there."""

    def __init__(self, backends: Callable[[], Mapping[str, Backend]], workers: Workers | None = None) -> None:
        self._backends = backends
        self._workers = workers
        self._tasks: dict[Drain, asyncio.Task[None]] = {}
        """The tasks that wait for calls to end. Each task is removed when it is done."""

    async def begin(self, backend: str, address: str, seconds: float) -> EndpointStatus:
        """Drain an endpoint. When this method returns, the endpoint receives no new calls, unless its models must first
        move to other servers.

        For `seconds`, its sequences can continue, and other servers can load its models. If the endpoint is already
        drained, do nothing.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
            UndrainableError: the gateway starts the backend's servers.
        """
        found = self._backends().get(backend)
        if found is not None and isinstance(found.slots, StartedSlots):
            raise UndrainableError(
                f"backend {backend!r}: the gateway starts its servers, and ends them when they are idle; "
                "to have fewer servers, lower `servers.max`"
            )
        endpoint = self._find(backend, address)
        if endpoint.drain is None:
            drain = Drain(seconds, is_moving=bool(self._loaders(endpoint)))
            endpoint.set_drain(drain)
            if drain.is_moving:
                text = "endpoint %s of backend %r is draining: the gateway first loads its models elsewhere"
                log.info(text, address, backend)
            else:
                await self._take_calls_away(backend, endpoint)
            if self._drained_by(drain):
                task = self._tasks[drain] = spawn(self._until_drained(backend, endpoint, drain))
                task.add_done_callback(lambda _: self._tasks.pop(drain, None))
        return endpoint_status(self._backends()[backend], endpoint)

    async def undo(self, backend: str, address: str) -> EndpointStatus:
        """End an endpoint's drain. If the endpoint is not drained, do nothing.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
        """
        endpoint = self._find(backend, address)
        if (drain := endpoint.drain) is not None:
            for each in self._drained_by(drain):
                each.set_drain(None)
            if (task := self._tasks.get(drain)) is not None:
                task.cancel()
            log.info("endpoint %s of backend %r serves again", address, backend)
            await self._tell()
        return endpoint_status(self._backends()[backend], endpoint)

    def stop(self) -> None:
        """Stop waiting for calls to end."""
        for task in self._tasks.values():
            task.cancel()

    def _find(self, backend: str, address: str) -> Endpoint:
        backends = self._backends()
        if backend not in backends:
            raise UnknownEndpointError(f"unknown backend {backend!r}; expected {_named(backends)}")
        endpoints = {each.address: each for each in backends[backend].endpoints}
        if address not in endpoints:
            text = f"backend {backend!r} has no endpoint {address!r}; expected {_named(endpoints)}"
            raise UnknownEndpointError(text if endpoints else f"backend {backend!r} has no endpoint at the moment")
        return endpoints[address]

    def _drained_by(self, drain: Drain) -> set[Endpoint]:
        """Return the endpoints with this drain. After a reload, the address can belong to a different Endpoint."""
        found = (each for backend in self._backends().values() for each in backend.endpoints)
        return {each for each in found if each.drain is drain}

    def _loaders(self, endpoint: Endpoint) -> list[OperatedLoader]:
        """Return the Loaders of the endpoint's backends that load models on demand. The Loaders can load the endpoint's
        models on other servers."""
        found = [each for each in placed(self._backends()).values() if endpoint in each.local.endpoints]
        return [each.loader for each in found if each.loader and each.is_on_demand]

    async def _move_models(self, endpoint: Endpoint, drain: Drain) -> None:
        """On other servers, load the models that only `endpoint` has, until the time for the drain is over."""
        failed: list[str] = []
        try:
            async with asyncio.timeout(drain.seconds_left):
                for loader in self._loaders(endpoint):
                    failed += await loader.load_elsewhere(endpoint)
        except TimeoutError:
            failed.append("others: still loading")
        drain.failed_moves = tuple(failed)
        drain.is_moving = False

    async def _take_calls_away(self, backend: str, endpoint: Endpoint) -> None:
        endpoint.set_drain(endpoint.drain)
        log.info("endpoint %s of backend %r is draining: it gets no new calls", endpoint.address, backend)
        await self._tell()

    async def _tell(self) -> None:
        """Make the other processes stop sending calls to drained endpoints."""
        if self._workers is not None:
            await self._workers.tell_drained()

    async def _until_drained(self, backend: str, endpoint: Endpoint, drain: Drain) -> None:
        with log_and_continue(f"draining {endpoint.address}"):
            if drain.is_moving:
                await self._move_models(endpoint, drain)
                for each in drain.failed_moves:
                    text = "endpoint %s of backend %r is draining: not loaded elsewhere: %s"
                    log.warning(text, endpoint.address, backend, each)
                if endpoint.drain is drain:
                    await self._take_calls_away(backend, endpoint)
            free = 0
            while free < LOOKS:
                await asyncio.sleep(INTERVAL)
                if not self._drained_by(drain):
                    return  # the endpoint was removed from the configuration
                free = 0 if await self._is_busy(endpoint, drain) else free + 1
            drain.state = DrainState.DRAINED
            log.info("endpoint %s of backend %r is drained; you can stop its server now", endpoint.address, backend)

    async def _is_busy(self, endpoint: Endpoint, drain: Drain) -> bool:
        """Return True if the endpoint has calls in any process, or sequences that can still continue on it."""
        if not endpoint.is_idle:
            return True
        backends = [each for each in self._backends().values() if endpoint in each.endpoints]
        if drain.seconds_left and any(each.local.sequences.count(endpoint) for each in backends):
            return True
        if self._workers is None:
            return False
        protocols = {each.protocol.name for each in backends}
        return any([await self._workers.has_calls(protocol, endpoint.address) for protocol in protocols])


def _named(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names)) or "none"
