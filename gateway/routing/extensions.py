"""Handles V2 requests that concern all backends: server metadata with the supported extensions, and the statistics of
all models.

Servers of different backends support different extensions. The gateway lists the extensions of the client's own
protocol, plus extensions that the gateway supports and that at least one server behind the client's routes lists.
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from fnmatch import fnmatchcase

from gateway.core.errors import GatewayError, Status, unsupported
from gateway.core.frozen import frozen
from gateway.core.globs import Rewritten, backend_name, client_name
from gateway.core.models import ServerInfo
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Traits
from gateway.core.requests import Request
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.core.transport import Handler
from gateway.routing.conditions import Conditions
from gateway.routing.listing import Remembered, may_be_listed


@frozen
class Extended:
    """The data about one route that requests for extensions and statistics require.

    - `model`: The model's name in the backend.
    - `version`: The version in the backend if the route rewrites it, otherwise None.
    - `info`, `handler`: The backend's server metadata and its Handler; None if its protocol has no extensions.
    """

    conditions: Conditions
    protocols: frozenset[str]
    backend: str
    traits: Traits
    model: Rewritten = None
    version: str | None = None
    info: Remembered[ServerInfo | None] | None = None
    handler: Handler | None = None

    def reaches(self, request: Request) -> bool:
        """Return whether requests from the same listener and protocol as `request` can match this route."""
        return request.protocol in self.protocols and self.conditions.listener in ("", request.listener)

    def takes(self, name: str, version: str) -> bool:
        """Return whether the route matches requests for this model, by the name that clients use."""
        conditions = self.conditions
        return conditions.version in ("", version) and fnmatchcase(name, conditions.model or "*")


class ServerExtensions:
    """A Handler for `server-metadata`, which returns the gateway's name and version, and the extensions that clients
    can use.

    - `own`: For each protocol, the extensions that the protocol itself implies.
    - `controlling`: The listeners whose clients can control servers.
    """

    def __init__(
        self,
        info: ServerInfo,
        routes: Sequence[Extended],
        own: Mapping[str, tuple[str, ...]],
        controlling: Container[str],
    ) -> None:
        self._info = info
        self._routes = tuple(routes)
        self._own = own
        self._controlling = controlling

    async def __call__(self, request: Request) -> ServerInfo:
        """Return the metadata, including the extensions of the backends that respond in time."""
        asked = {each.info: each.traits for each in self._routes if each.info and each.reaches(request)}
        infos = await asyncio.gather(*(info.get() for info in asked))
        found = dict.fromkeys(self._own.get(request.protocol, ()))
        for traits, info in zip(asked.values(), infos, strict=True):
            listed = info.extensions if info else ()
            served = self._served(traits, request)
            found.update(dict.fromkeys(each for each in listed if each in served))
        return ServerInfo(self._info.name, self._info.version, tuple(found))

    def _served(self, traits: Traits, request: Request) -> frozenset[str]:
        may_control = request.listener in self._controlling
        return traits.servers.further_extensions | {
            extension
            for operation, extension in traits.servers.extensions.items()
            if may_control or operation not in CONTROL_OPERATIONS
        }


class AllStatistics:
    """A Handler for `all-statistics`, which returns the statistics of all backends' models, by the names that clients
    use."""

    def __init__(self, routes: Sequence[Extended]) -> None:
        self._routes = tuple(routes)

    async def __call__(self, request: Request) -> Statistics:
        """Return the statistics of every model version that a route matches and that the client has permission to see.

        The result omits backends that fail, unless all backends fail.

        Raises:
            GatewayError: UNIMPLEMENTED if no backend has statistics, otherwise the first other error from a backend.
        """
        of_statistics = (None, Operation.MODEL_STATISTICS)
        routes = [
            each
            for each in self._routes
            if each.reaches(request) and each.conditions.operation in of_statistics and not each.conditions.per_request
        ]
        handlers = {each.backend: each.handler for each in routes if each.handler is not None}
        answers = await asyncio.gather(*map(_ask, handlers.values()))
        failed = [each for each in answers if isinstance(each, GatewayError)]
        if len(failed) == len(answers):
            others = (each for each in failed if each.status is not Status.UNIMPLEMENTED)
            raise next(others, _none_has_statistics(failed))
        by_backend = dict(zip(handlers, answers, strict=True))
        found: dict[tuple[str, str], ModelStatistics] = {}
        for at, route in enumerate(routes):
            entries = by_backend.get(route.backend, ())
            for name, entry in _with_client_names(route, () if isinstance(entries, GatewayError) else entries):
                if not may_be_listed(name, request):
                    continue
                if not any(earlier.takes(name, entry.version) for earlier in routes[:at]):
                    found.setdefault((name, entry.version), ModelStatistics(name, entry.version, entry.counters))
        return Statistics(tuple(found.values()))


async def _ask(handler: Handler) -> tuple[ModelStatistics, ...] | GatewayError:
    try:
        answer = await handler(Request(Operation.ALL_STATISTICS))
    except GatewayError as error:
        return error
    assert isinstance(answer, Statistics)
    return answer.models


def _none_has_statistics(failed: Sequence[GatewayError]) -> GatewayError:
    return failed[0] if failed else unsupported("only V2 servers have statistics, and the gateway has no V2 backend")


def _with_client_names(route: Extended, entries: Sequence[ModelStatistics]) -> list[tuple[str, ModelStatistics]]:
    """Return the entries of the models that the route matches, by the names that clients use."""
    conditions = route.conditions
    if conditions.exact:
        backend = backend_name(route.model, conditions.model)
        version = route.version or conditions.version
        return [(conditions.model, each) for each in entries if each.name == backend and version in ("", each.version)]
    named = ((client_name(route.model, each.name), each) for each in entries)
    return [(name, each) for name, each in named if name is not None and route.takes(name, each.version)]
