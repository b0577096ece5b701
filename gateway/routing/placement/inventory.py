"""Queries servers for their models, in each server's protocol.

If a server can list its models, the gateway queries this list. If the server cannot (TensorFlow Serving), the gateway
queries each model that routes name. If the server has a single model (GraphPipe), the gateway queries the model's name.

InventoryRefresher queries the endpoints of one backend when they join or return, periodically, and on request.
SignatureComparison compares the signatures that different servers report for the same model, and logs differences,
because calls can go to any of these servers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import lru_cache
from sys import intern

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.exchange import ask
from gateway.core.log_limit import LogLimit
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target, merge
from gateway.core.requests import Request
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.table import ModelReplica, Placement, Placements, ReplicaState, ServerInventory

_lines = LogLimit(logging.getLogger(__name__))


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
                UNIMPLEMENTED if the server cannot list its models and no route names a model exactly.
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

    `tells_states` is True if the server reports the states of its models; a model without a state is then not
    loaded."""
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
    """Return the same object for equal versions. Sharing saves memory, because most models have a single version, often
    the same one."""
    return versions


ASKED_AT_A_TIME = 20
"""The maximum number of signatures that the gateway queries after each inventory refresh of a server."""


class SignatureComparison:
    """Queries the servers of one backend for the signatures of the models that several of them have.

    `ask` returns the signature of a model at an endpoint, or raises GatewayError."""

    def __init__(self, ask: Callable[[Endpoint, str], Awaitable[Signature]]) -> None:
        self._ask = ask

    async def look(self, table: Placements, endpoint: Endpoint) -> None:
        """Query an endpoint for some of the signatures that are still unknown."""
        for placement, place in self._unknown(table, endpoint)[:ASKED_AT_A_TIME]:
            try:
                signature = await self._ask(endpoint, placement.model)
            except GatewayError:
                return  # retried after the next refresh
            if place.state is ReplicaState.HELD:
                place.signature = f"{_shown(signature)}"
                _tell_difference(table, placement, place)

    def _unknown(self, table: Placements, endpoint: Endpoint) -> list[tuple[Placement, ModelReplica]]:
        stock = table.stocks.get(endpoint)
        found = []
        for model in () if stock is None else stock.held:
            placement = table.models.get(model)
            place = None if placement is None else placement.places.get(endpoint)
            if (
                placement is None
                or place is None
                or place.state is not ReplicaState.HELD
                or place.signature is not None
            ):
                continue
            if len(placement.places) > 1 and sum(1 for _ in placement.held()) > 1:
                found.append((placement, place))
        return found


def _shown(signature: Signature) -> str:
    inputs, outputs = (", ".join(map(str, each)) or "(unknown)" for each in (signature.inputs, signature.outputs))
    return f"{inputs} -> {outputs}"


def _tell_difference(table: Placements, placement: Placement, place: ModelReplica) -> None:
    for other in placement.held():
        if other.signature is not None and other.signature != place.signature:
            text = (
                "backend %r has model %r with different signatures: %s at %s, %s at %s; load the same model everywhere"
            )
            shown = place.signature, place.endpoint.address, other.signature, other.endpoint.address
            _lines.write(("signatures", table.backend), logging.WARNING, text, table.backend, placement.model, *shown)
            return


FIRST_WAIT = 1.0
"""The delay before an endpoint that did not respond is queried again, in seconds. The delay doubles with each failure,
up to the interval."""
JITTER = 0.1
"""The random jitter of each wait, as a fraction of the interval."""


class InventoryRefresher:
    """Keeps `placements` up to date, with at most one query in progress per endpoint.

    - `ask`: Returns the models on an endpoint, or raises GatewayError.
    - `is_busy`: Returns True if an endpoint cannot respond now because it is running a call.
    - `randomly`: Returns random numbers from 0 to 1.
    """

    def __init__(
        self,
        placements: Placements,
        ask: Callable[[Endpoint], Awaitable[ServerInventory]],
        interval: float,
        clock: Callable[[], float],
        *,
        is_busy: Callable[[Endpoint], bool] = lambda endpoint: False,
        randomly: Callable[[], float] = random.random,
    ) -> None:
        self._placements = placements
        self._ask = ask
        self._interval = interval
        self._clock = clock
        self._is_busy = is_busy
        self._random = randomly
        self._due: dict[Endpoint, float] = {}
        self._asking: dict[Endpoint, asyncio.Task[None]] = {}
        self._again: set[Endpoint] = set()
        """The endpoints that changed during their query and are therefore queried again."""
        self._failures: dict[Endpoint, int] = {}
        self._loop: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.on_lost: Callable[[Endpoint, tuple[str, ...]], None] = lambda endpoint, models: None
        self.comparison: SignatureComparison | None = None
        """Compares the signatures that servers report. If this attribute is None, signatures are not compared."""
        self.errors: dict[Endpoint, GatewayError] = {}
        """For each endpoint that did not report its models, the reason."""

    def use(self, placements: Placements) -> None:
        """From now on, update another table."""
        self._placements = placements

    def start(self) -> None:
        """Start querying the endpoints, in a separate task."""
        if self._loop is None:
            self._loop = spawn(self._run())

    def stop(self) -> None:
        """Stop all queries."""
        self._again.clear()
        for task in (self._loop, *self._asking.values()):
            if task is not None:
                task.cancel()
        self._loop = None

    def ask_soon(self, endpoint: Endpoint) -> "asyncio.Task[None]":
        """Query an endpoint now or, if a query is in progress, again after this query. Return the task of the query."""
        asking = self._asking.get(endpoint)
        if asking is None:
            asking = self._asking[endpoint] = spawn(self._take_stock(endpoint))
        else:
            self._again.add(endpoint)
        return asking

    def leave(self, endpoint: Endpoint) -> None:
        """Forget an endpoint."""
        self._due.pop(endpoint, None)
        self._failures.pop(endpoint, None)
        self.errors.pop(endpoint, None)
        self._again.discard(endpoint)
        if (asking := self._asking.get(endpoint)) is not None:
            asking.cancel()

    def round(self) -> float:
        """Query the endpoints that are due. Return the time until the next round, in seconds."""
        now = self._clock()
        following = now + self._interval
        for endpoint in self._placements.stocks:
            due = self._due.setdefault(endpoint, now)
            if due <= now:
                self._due[endpoint] = due = now + self._wait()
                if endpoint not in self._asking and not self._is_busy(endpoint):
                    self.ask_soon(endpoint)
            following = min(following, due)
        return max(following - now, 0.0)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            with log_and_continue("querying the servers' models"):
                seconds = self.round()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _wait(self) -> float:
        return self._interval * (1 + JITTER * (2 * self._random() - 1))

    async def _take_stock(self, endpoint: Endpoint) -> None:
        try:
            with log_and_continue(f"querying the models of {endpoint.address}"):
                await self._answered(endpoint)
        finally:  # even if it was cancelled, because the endpoint might have left and immediately returned
            del self._asking[endpoint]
            if endpoint in self._again:
                self._again.discard(endpoint)
                if endpoint in self._placements.stocks:
                    self.ask_soon(endpoint)

    async def _answered(self, endpoint: Endpoint) -> None:
        placements, asked = self._placements, self._placements.moment
        try:
            stock = await self._ask(endpoint)
        except GatewayError as error:
            self._failed(endpoint, error)
            return
        self.errors.pop(endpoint, None)
        self._failures.pop(endpoint, None)
        self._due[endpoint] = self._clock() + self._wait()
        if placements is not self._placements:  # the query started with the change counter of another table
            self._again.add(endpoint)
            return
        lost = self._placements.reported(endpoint, stock, asked)
        if lost:
            self.on_lost(endpoint, lost)
        if self.comparison is not None:
            await self.comparison.look(placements, endpoint)

    def _failed(self, endpoint: Endpoint, error: GatewayError) -> None:
        if endpoint not in self._placements.stocks:
            return
        failures = self._failures[endpoint] = self._failures.get(endpoint, 0) + 1
        wait = min(FIRST_WAIT * 2.0 ** min(failures - 1, 16), self._wait())
        self._due[endpoint] = self._clock() + wait
        self._news.set()
        self.errors[endpoint] = error
        if failures == 1:
            text = "endpoint %s did not report its models: %s"
            _lines.write(endpoint.address, logging.WARNING, text, endpoint.address, error.message)
