"""The models that a client can ask for: those that routes name, then those that backends list."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Generic, TypeVar, cast

from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import DERIVATIVES, Operation, split_companion
from gateway.core.tasks import spawn
from gateway.core.transport import Handler
from gateway.core.types import ModelEntry, Request
from gateway.routing.conditions import Conditions

SECONDS_KEPT = 60.0
SECONDS_WAITED = 2.0
"""A listing never waits longer for backends: it shows what was last known."""

ASKED_AT_ONCE = 16
"""Models whose claims are asked for at the same time."""

Known = TypeVar("Known")


class Remembered(Generic[Known]):
    """A backend's answer to one question about its server, remembered for a minute, and beyond that while the backend
    is down; `nothing` until it has answered."""

    def __init__(
        self,
        backend: Handler,
        operation: Operation,
        nothing: Known,
        clock: Callable[[], float],
        wait: float = SECONDS_WAITED,
    ) -> None:
        self._backend = backend
        self._question = Request(operation)
        self._clock = clock
        self._wait = wait
        self._known = nothing
        self._fresh_until = 0.0
        self._fetching: asyncio.Task[None] | None = None

    async def get(self) -> Known:
        """The answer, fetched if it is unknown or old; the last known one if that fails or takes too long."""
        if self._clock() >= self._fresh_until:
            if self._fetching is None:
                self._fetching = spawn(self._fetch())
            await asyncio.wait({self._fetching}, timeout=self._wait)
        return self._known

    def forget(self) -> None:
        """The answer is old: ask again, also if somebody is asking at the moment."""
        self._fresh_until = 0.0
        self._fetching = None

    async def _fetch(self) -> None:
        task = asyncio.current_task()
        try:
            answer = await self._backend(self._question)
        except GatewayError:
            return
        finally:
            is_current = self._fetching is task
            if is_current:
                self._fetching = None
        if is_current:
            self._known = cast(Known, answer)
            self._fresh_until = self._clock() + SECONDS_KEPT


class BackendModels(Remembered[tuple[ModelEntry, ...]]):
    """A backend's own list of models."""

    def __init__(self, backend: Handler, clock: Callable[[], float], wait: float = SECONDS_WAITED) -> None:
        super().__init__(backend, Operation.MODELS, (), clock, wait)


@frozen
class Listed:
    """What one route adds to the list of clients that it matches. `claims` tells the derivatives of a model that the
    backend offers as operations, so that tensor clients find them as companion models."""

    conditions: Conditions
    protocols: frozenset[str]
    models: BackendModels
    rewritten: str | None = None
    claims: Callable[[str], Awaitable[frozenset[Operation]]] | None = None

    def is_same(self, name: str, other: "Listed") -> bool:
        """Whether `name` is the same model of the same backend behind both."""
        return self.models is other.models and (self.rewritten or name) == (other.rewritten or name)


class Listing:
    """A Handler for `models`: exact routes in route order, then globs from the backends' lists. It never fails because
    a backend is down."""

    def __init__(
        self, routes: Sequence[Listed], without_companions: frozenset[str], wait: float = SECONDS_WAITED
    ) -> None:
        self._routes = tuple(routes)
        self._wait = wait
        self._without_companions = without_companions

    async def __call__(self, request: Request) -> tuple[ModelEntry, ...]:
        """Every model once, in the order in which routes would match it."""
        routes = [route for route in self._routes if _reaches(route, request)]
        exact = [
            (route, ModelEntry(route.conditions.model, route.conditions.version))
            for route in routes
            if route.conditions.exact
        ]
        found = await _expanded(routes)
        ordered = list(_unique([*_versioned(exact, found), *found]))
        if request.protocol in self._without_companions:
            return _without_companions([entry for _, entry in ordered])
        return await _with_companions(ordered, self._wait)


async def _expanded(routes: Sequence[Listed]) -> list[tuple[Listed, ModelEntry]]:
    """What the backends behind globs list. All are asked at once, so that several slow ones cost one wait."""
    globs = [route for route in routes if not route.conditions.exact and route.rewritten is None]
    backends = list(dict.fromkeys(route.models for route in globs))
    lists = dict(zip(backends, await asyncio.gather(*(models.get() for models in backends)), strict=True))
    return [
        (route, entry)
        for route in globs
        for entry in lists[route.models]
        if not route.conditions.model or fnmatchcase(entry.name, route.conditions.model)
    ]


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
    """What routes name, in the versions that the backend tells where a glob has asked it."""
    for route, entry in exact:
        told = [each for glob, each in found if each.name == entry.name and route.is_same(entry.name, glob)]
        yield from ((route, each) for each in (told if told and not entry.version else [entry]))


def _unique(pairs: Iterable[tuple[Listed, ModelEntry]]) -> Iterable[tuple[Listed, ModelEntry]]:
    """Each model once, and no other model under a name whose requests an earlier route takes."""
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
    """Each model with the derivatives that it claims, so far as the backends tell in time."""
    deadline = asyncio.get_running_loop().time() + wait
    places = asyncio.Semaphore(ASKED_AT_ONCE)

    async def companions(route: Listed, entry: ModelEntry) -> list[ModelEntry]:
        if route.claims is None:
            return []
        try:
            async with asyncio.timeout_at(deadline), places:
                claimed = await route.claims(route.rewritten or entry.name)
        except (GatewayError, TimeoutError):
            return []
        return [replace(entry, name=f"{entry.name}.{each.value}") for each in DERIVATIVES if each in claimed]

    found = await asyncio.gather(*(companions(route, entry) for route, entry in ordered))
    entries = [each for (_, entry), own in zip(ordered, found, strict=True) for each in (entry, *own)]
    return tuple({(entry.name, entry.version): entry for entry in entries}.values())
