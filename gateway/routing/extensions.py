"""What several backends answer together: the extensions that the gateway lists, and the statistics of all models."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from fnmatch import fnmatchcase

from gateway.core.errors import GatewayError, Status, unsupported
from gateway.core.frozen import frozen
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Traits
from gateway.core.transport import Handler
from gateway.core.types import ModelStatistics, Request, ServerInfo, Statistics
from gateway.routing.conditions import Conditions
from gateway.routing.listing import Remembered


@frozen
class Extended:
    """One route, and what its backend's servers may have beyond the specification. `info` and `handler` are None where
    its protocol has no extensions. A `model` or `version` of None is the client's."""

    conditions: Conditions
    protocols: frozenset[str]
    backend: str
    traits: Traits
    model: str | None = None
    version: str | None = None
    info: Remembered[ServerInfo | None] | None = None
    handler: Handler | None = None

    def reaches(self, request: Request) -> bool:
        """Whether requests that come where and how `request` did may take the route."""
        return request.protocol in self.protocols and self.conditions.listener in ("", request.listener)

    def takes(self, name: str, version: str) -> bool:
        """Whether it takes the client's model of this name and version."""
        conditions = self.conditions
        return conditions.version in ("", version) and fnmatchcase(name, conditions.model or "*")


class ServerExtensions:
    """A Handler for `server-metadata`: the gateway's own, with the extensions that clients have behind its routes.
    `own` are those of each protocol itself; `controlling` the listeners whose clients may control servers."""

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
        """Those of the protocol itself, and those that some backend lists, so far as backends tell in time."""
        asked = {each.info: each.traits for each in self._routes if each.info and each.reaches(request)}
        told = await asyncio.gather(*(info.get() for info in asked))
        found = dict.fromkeys(self._own.get(request.protocol, ()))
        for traits, info in zip(asked.values(), told, strict=True):
            listed = info.extensions if info else ()
            served = self._served(traits, request)
            found.update(dict.fromkeys(each for each in listed if each in served))
        return ServerInfo(self._info.name, self._info.version, tuple(found))

    def _served(self, traits: Traits, request: Request) -> frozenset[str]:
        may_control = request.listener in self._controlling
        return traits.further_extensions | {
            extension
            for operation, extension in traits.extensions.items()
            if may_control or operation not in CONTROL_OPERATIONS
        }


class AllStatistics:
    """A Handler for `all-statistics`: the models of all backends that have them, under the names that clients know."""

    def __init__(self, routes: Sequence[Extended]) -> None:
        self._routes = tuple(routes)

    async def __call__(self, request: Request) -> Statistics:
        """Every version of every model that a route takes. A backend that does not answer is left out unless none does.

        Raises:
            GatewayError: UNIMPLEMENTED if no backend has statistics; else the first backend's.
        """
        of_statistics = (None, Operation.MODEL_STATISTICS)
        routes = [
            each
            for each in self._routes
            if each.reaches(request) and each.conditions.operation in of_statistics and not each.conditions.per_request
        ]
        handlers = {each.backend: each.handler for each in routes if each.handler is not None}
        answers = await asyncio.gather(*map(_asked, handlers.values()))
        failed = [each for each in answers if isinstance(each, GatewayError)]
        if len(failed) == len(answers):
            raise next((each for each in failed if each.status is not Status.UNIMPLEMENTED), _nobody(failed))
        told = dict(zip(handlers, answers, strict=True))
        found: dict[tuple[str, str], ModelStatistics] = {}
        for at, route in enumerate(routes):
            entries = told.get(route.backend, ())
            for name, entry in _named(route, () if isinstance(entries, GatewayError) else entries):
                if not any(earlier.takes(name, entry.version) for earlier in routes[:at]):
                    found.setdefault((name, entry.version), ModelStatistics(name, entry.version, entry.counters))
        return Statistics(tuple(found.values()))


async def _asked(handler: Handler) -> tuple[ModelStatistics, ...] | GatewayError:
    try:
        answer = await handler(Request(Operation.ALL_STATISTICS))
    except GatewayError as error:
        return error
    assert isinstance(answer, Statistics)
    return answer.models


def _nobody(failed: Sequence[GatewayError]) -> GatewayError:
    return failed[0] if failed else unsupported("statistics are an extension of V2 servers, and no backend here is one")


def _named(route: Extended, entries: Sequence[ModelStatistics]) -> list[tuple[str, ModelStatistics]]:
    """The entries that are about models of the route, each with its clients' name."""
    conditions = route.conditions
    if conditions.exact:
        backend = conditions.model if route.model is None else route.model
        version = route.version or conditions.version
        return [(conditions.model, each) for each in entries if each.name == backend and version in ("", each.version)]
    if route.model is not None:
        return []
    return [(each.name, each) for each in entries if route.takes(each.name, each.version)]
