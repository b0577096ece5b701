"""Queries servers for their models, in each server's protocol.

If a server can list its models, it is queried for the list. If it cannot (TensorFlow Serving), it is queried for each
model that routes name. A server with a single model (GraphPipe) is queried for that model's name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import lru_cache
from sys import intern

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.exchange import ask
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, merge
from gateway.core.requests import Request
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.table import ReplicaState, ServerInventory

SECONDS_WAITED = 10.0
"""The time limit for one response from a server, in seconds."""
ASKED_AT_ONCE = 8
"""The maximum number of models that one server is queried about in parallel."""

_CHANGING = {"LOADING": ReplicaState.LOADING, "UNLOADING": ReplicaState.UNLOADING}
_LOADED = "READY"


class Inventory:
    """Queries the servers of one backend. `target` returns the Target of an endpoint. Servers that cannot list their
    models are queried for the models in `names`."""

    def __init__(
        self,
        protocol: Protocol,
        target: Callable[[Endpoint], Awaitable[Target]],
        names: Collection[str] = (),
        seconds: float = SECONDS_WAITED,
    ) -> None:
        self.protocol = protocol
        self.target = target
        self._names = tuple(names)
        self._seconds = seconds

    async def of(self, endpoint: Endpoint) -> ServerInventory:
        """Return the models on the server at `endpoint`.

        Raises:
            GatewayError: the server is unreachable, does not respond in time, or sends a malformed response.
                UNIMPLEMENTED if it cannot list its models and no route names a model exactly.
        """
        target = await self.target(endpoint)
        endpoint.enter()
        try:
            return await self._ask_for_all(endpoint, target)
        finally:
            endpoint.leave()

    async def has(self, endpoint: Endpoint, model: str) -> bool:
        """Return whether the server at `endpoint` reports this model as ready. Raises GatewayError like `of`."""
        return await self._is_ready(endpoint, await self.target(endpoint), model)

    async def signature(self, endpoint: Endpoint, model: str) -> Signature:
        """Return the signature of a model, as the server at `endpoint` reports it. Raises GatewayError like `of`."""
        target = await self.target(endpoint)
        parts = []
        for part in self.protocol.traits.models.metadata_parts:
            found = await self._ask(Request(Operation.METADATA, model, part=part), endpoint, target)
            assert isinstance(found, Signature)
            parts.append(found)
        return merge(tuple(parts))

    async def _ask_for_all(self, endpoint: Endpoint, target: Target) -> ServerInventory:
        models = self.protocol.traits.models
        if models.one_at is not None and models.one_at(endpoint.address):
            return await self._only_model(endpoint, target)
        try:
            entries = await self._ask(Request(Operation.MODELS), endpoint, target)
        except GatewayError as error:
            if error.status is not Status.UNIMPLEMENTED or not self._names:
                raise
            return await self._named_models(endpoint, target)
        assert isinstance(entries, tuple)
        return stock_of(entries, tells_states=target.flavor in self.protocol.traits.servers.states_when_loaded)

    async def _only_model(self, endpoint: Endpoint, target: Target) -> ServerInventory:
        signature = await self._ask(Request(Operation.METADATA), endpoint, target)
        assert isinstance(signature, Signature)
        return ServerInventory({signature.name: ()}) if signature.name else ServerInventory()

    async def _named_models(self, endpoint: Endpoint, target: Target) -> ServerInventory:
        places = asyncio.Semaphore(ASKED_AT_ONCE)

        async def is_there(model: str) -> bool:
            async with places:
                return await self._is_ready(endpoint, target, model)

        found = await asyncio.gather(*map(is_there, self._names))
        return ServerInventory({intern(name): () for name, is_held in zip(self._names, found, strict=True) if is_held})

    async def _is_ready(self, endpoint: Endpoint, target: Target, model: str) -> bool:
        try:
            return await self._ask(Request(Operation.MODEL_READY, model), endpoint, target) is True
        except GatewayError as error:
            if error.status is Status.NOT_FOUND or error.reason is Reason.NOT_READY:
                return False
            raise

    async def _ask(self, request: Request, endpoint: Endpoint, target: Target) -> object:
        try:
            async with asyncio.timeout(self._seconds):
                return await ask(request, self.protocol, endpoint, target)
        except TimeoutError as error:
            text = f"the server at {endpoint.address} did not report its models within {self._seconds:g} s"
            raise GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text) from error


def stock_of(entries: Iterable[ModelEntry], *, tells_states: bool) -> ServerInventory:
    """Return the ServerInventory of a server that lists these models.

    `tells_states` is True if the server reports states, so a model without a state is not loaded."""
    held: dict[str, list[str]] = {}
    changing: dict[str, ReplicaState] = {}
    listed = set()
    for each in entries:
        name, state = intern(each.name), each.state
        listed.add(name)
        if state == _LOADED or (not state and not tells_states):
            versions = held.setdefault(name, [])
            if each.version:
                versions.append(each.version)
        elif state in _CHANGING:
            changing[name] = _CHANGING[state]
    return ServerInventory(
        {name: _shared(tuple(versions)) for name, versions in held.items()},
        {name: state for name, state in changing.items() if name not in held},
        frozenset(listed),
    )


@lru_cache(1024)
def _shared(versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal versions. This saves memory, because most models have only one version, often
    the same one."""
    return versions
