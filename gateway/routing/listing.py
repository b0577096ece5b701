"""Lists the models that a client can request.

The list starts with the models that routes name exactly, in route order. For routes with globs, it continues with the
models that their backends list, under the names that clients use. The list contains each model once, under a name for
which requests actually take the listed route. For clients of tensor protocols, each model is followed by the derivative
models that it supports (`M.gradient`).

Backend lists are cached for a minute. A listing waits at most SECONDS_WAITED for a backend, and then uses the last
known list. Therefore, a listing never fails because a backend is down. If no server of a backend has started yet, a
listing waits longer: until at least one model is known, and up to SECONDS_STARTING for the other backends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Generic, TypeVar, cast

from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.globs import Rewritten, backend_name, client_name
from gateway.core.models import ModelEntry
from gateway.core.operations import DERIVATIVES, Operation, split_companion
from gateway.core.requests import Request
from gateway.core.tasks import spawn
from gateway.core.transport import Handler
from gateway.routing.conditions import Conditions

SECONDS_KEPT = 60.0
SECONDS_WAITED = 2.0
"""The maximum time that a listing waits for backends, in seconds."""
SECONDS_STARTING = 5.0
"""The maximum time that a listing with at least one model waits for backends whose first server is starting, in
seconds."""

ASKED_AT_ONCE = 16
"""The maximum number of models whose operations are queried in parallel."""

Known = TypeVar("Known")


class Remembered(Generic[Known]):
    """A backend's cached response to one operation on its server.

    The response stays valid for SECONDS_KEPT, or longer while the backend is down. `nothing` is the value before the
    first response."""

    def __init__(
        self,
        backend: Handler,
        operation: Operation,
        nothing: Known,
        clock: Callable[[], float],
        wait: float = SECONDS_WAITED,
        first_wait: float | None = None,
    ) -> None:
        """`wait` is the maximum time that `get` waits for a response, in seconds.

        `first_wait`, if given, applies instead until the first response."""
        self._backend = backend
        self._question = Request(operation)
        self._clock = clock
        self._wait = wait
        self._first_wait = first_wait
        self._known = nothing
        self._fresh_until = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._times_forgotten = 0
        self.error: GatewayError | None = None
        """The error of the last fetch; None if the last fetch succeeded, or if no fetch has ended yet."""

    async def get(self) -> Known:
        """Return the response.

        Fetch the response if it is unknown or old. If the fetch fails or takes too long, return the last known
        response. If the fetch itself shows that the backend is up again, the cached response becomes invalid; in this
        case, fetch once more.
        """
        wait = self._wait if self._first_wait is None else self._first_wait
        deadline = asyncio.get_running_loop().time() + wait
        forgotten = self._times_forgotten
        await self._ask_if_old(deadline)
        if self._times_forgotten != forgotten:
            await self._ask_if_old(deadline)
        return self._known

    @property
    def known(self) -> Known:
        """The last known response."""
        return self._known

    @property
    def is_asking(self) -> bool:
        """True while the response is being fetched."""
        return self._fetching is not None

    def forget(self) -> None:
        """Fetch again on the next use, and ignore the result of a fetch in progress."""
        self._fresh_until = 0.0
        self._fetching = None
        self._times_forgotten += 1

    async def _ask_if_old(self, deadline: float) -> None:
        if self._clock() >= self._fresh_until:
            if self._fetching is None:
                self._fetching = spawn(self._fetch())
            await asyncio.wait({self._fetching}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))

    async def _fetch(self) -> None:
        task = asyncio.current_task()
        try:
            answer = await self._backend(self._question)
        except GatewayError as error:
            if self._fetching is task:
                self.error = error
            return
        finally:
            is_current = self._fetching is task
            if is_current:
                self._fetching = None
        if is_current:
            self.error = None
            self._known = cast(Known, answer)
            self._first_wait = None
            self._fresh_until = self._clock() + SECONDS_KEPT


class BackendModels(Remembered[tuple[ModelEntry, ...]]):
    """The model list of one backend, cached."""

    def __init__(
        self,
        backend: Handler,
        clock: Callable[[], float],
        wait: float = SECONDS_WAITED,
        first_wait: float | None = None,
    ) -> None:
        super().__init__(backend, Operation.MODELS, (), clock, wait, first_wait)


@frozen
class Listed:
    """The data of one route for listings.

    - `protocols`: The client protocols that the route serves.
    - `models`: The model list of the route's backend.
    - `rewritten`: The model's name in the backend.
    - `claims`: Returns the derivatives that a model in the backend supports as operations; None if no model in the
      backend can support derivatives.
    """

    conditions: Conditions
    protocols: frozenset[str]
    models: BackendModels
    rewritten: Rewritten = None
    claims: Callable[[str], Awaitable[frozenset[Operation]]] | None = None

    def is_same(self, name: str, other: "Listed") -> bool:
        """Return whether both routes map `name` to the same model of the same backend."""
        return self.models is other.models and self.backend_name(name) == other.backend_name(name)

    def backend_name(self, name: str) -> str:
        """Return the backend's name for the model that clients call `name`."""
        return backend_name(self.rewritten, name)

    def with_client_name(self, entry: ModelEntry) -> ModelEntry | None:
        """Return a model in the backend's list with the name that clients use, or None if the route does not match that
        name."""
        name = client_name(self.rewritten, entry.name)
        wanted = self.conditions.model
        if name is None or (wanted and not fnmatchcase(name, wanted)):
            return None
        return entry if name == entry.name else replace(entry, name=name)


class Listing:
    """A Handler for the operation `models`. Lists for clients of the protocols in `without_companions` contain no
    derivative models, because these protocols provide derivatives as operations."""

    def __init__(
        self,
        routes: Sequence[Listed],
        without_companions: frozenset[str],
        wait: float = SECONDS_WAITED,
        starting: float = SECONDS_STARTING,
    ) -> None:
        self._routes = tuple(routes)
        self._wait = wait
        self._starting = starting
        self._without_companions = without_companions

    async def __call__(self, request: Request) -> tuple[ModelEntry, ...]:
        """Return the models that the client has permission to see, in the order in which routes match."""
        routes = [route for route in self._routes if _reaches(route, request)]
        exact = [
            (route, ModelEntry(route.conditions.model, route.conditions.version))
            for route in routes
            if route.conditions.exact
        ]
        found = await _expanded(routes, self._starting, has_others=bool(exact))
        ordered = [
            pair for pair in _unique([*_versioned(exact, found), *found]) if may_be_listed(pair[1].name, request)
        ]
        if request.protocol in self._without_companions:
            return _without_companions([entry for _, entry in ordered])
        return await _with_companions(ordered, self._wait)


async def _expanded(routes: Sequence[Listed], starting: float, *, has_others: bool) -> list[tuple[Listed, ModelEntry]]:
    """For routes with globs, return the models of their backends, with the route of each model.

    `has_others` is True if the complete list also contains other models."""
    globs = [route for route in routes if not route.conditions.exact and not isinstance(route.rewritten, str)]
    backends = list(dict.fromkeys(route.models for route in globs))
    await _ask(backends, starting, has_others=has_others)
    return [
        (route, entry)
        for route in globs
        for listed in route.models.known
        if (entry := route.with_client_name(listed)) is not None
    ]


async def _ask(backends: Sequence[BackendModels], starting: float, *, has_others: bool) -> None:
    """Query all backends in parallel: several slow backends delay the list no longer than the slowest one.

    Once a model is known, omit backends that have not responded after `starting` seconds. Their queries continue, and
    later lists use the results."""
    loop = asyncio.get_running_loop()
    left_out_at = loop.time() + starting
    pending = {spawn(each.get()) for each in backends}
    try:
        while pending:
            is_known = has_others or any(each.known for each in backends)
            wait = max(0.0, left_out_at - loop.time()) if is_known else None
            done, pending = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
            for each in done:
                each.result()
    finally:
        for each in pending:
            each.cancel()


def may_be_listed(model: str, request: Request) -> bool:
    """Return whether the client that sent `request` has permission to see that this model exists."""
    principal = request.principal
    return principal is None or principal.may(Operation.METADATA, model, request.listener)


def _reaches(route: Listed, request: Request) -> bool:
    conditions = route.conditions
    return (
        request.protocol in route.protocols
        and conditions.listener in ("", request.listener)
        and conditions.operation in (None, Operation.INFER)
    )


def _versioned(
    exact: Sequence[tuple[Listed, ModelEntry]], found: Sequence[tuple[Listed, ModelEntry]]
) -> Iterable[tuple[Listed, ModelEntry]]:
    """Yield the models that routes name. If the backend was queried for a glob (`found`), yield the models in the
    versions that the backend lists."""
    for route, entry in exact:
        versions = [each for glob, each in found if each.name == entry.name and route.is_same(entry.name, glob)]
        yield from ((route, each) for each in (versions if versions and not entry.version else [entry]))


def _unique(pairs: Iterable[tuple[Listed, ModelEntry]]) -> Iterable[tuple[Listed, ModelEntry]]:
    """Yield each model once. Omit models whose names earlier routes map to other models."""
    seen: set[tuple[str, str]] = set()
    takers: dict[str, Listed] = {}
    for route, entry in pairs:
        if (entry.name, entry.version) in seen or not _is_own(route, entry.name, takers):
            continue
        seen.add((entry.name, entry.version))
        if not (route.conditions.version or route.conditions.per_request):
            takers.setdefault(entry.name, route)
        yield route, entry


def _is_own(route: Listed, name: str, takers: Mapping[str, Listed]) -> bool:
    if name in takers:
        return route.is_same(name, takers[name])
    split = None if route.conditions.exact else split_companion(name)
    taker = takers.get(split[0]) if split else None
    return taker is None or taker.models is route.models


def _without_companions(entries: Sequence[ModelEntry]) -> tuple[ModelEntry, ...]:
    names = {entry.name: entry for entry in reversed(entries)}
    shown = dict.fromkeys(entry.name for entry in entries)
    return tuple(names[name] for name in shown if (split := split_companion(name)) is None or split[0] not in names)


async def _with_companions(ordered: Sequence[tuple[Listed, ModelEntry]], wait: float) -> tuple[ModelEntry, ...]:
    """Return each model, followed by its derivative models if the model's backend responds within `wait` seconds."""
    deadline = asyncio.get_running_loop().time() + wait
    places = asyncio.Semaphore(ASKED_AT_ONCE)

    async def companions(route: Listed, entry: ModelEntry) -> list[ModelEntry]:
        if route.claims is None:
            return []
        try:
            async with asyncio.timeout_at(deadline), places:
                claimed = await route.claims(route.backend_name(entry.name))
        except (GatewayError, TimeoutError):
            return []
        return [replace(entry, name=f"{entry.name}.{each.value}") for each in DERIVATIVES if each in claimed]

    found = await asyncio.gather(*(companions(route, entry) for route, entry in ordered))
    entries = [each for (_, entry), own in zip(ordered, found, strict=True) for each in (entry, *own)]
    return tuple({(entry.name, entry.version): entry for entry in entries}.values())
