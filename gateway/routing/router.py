"""Which route a request takes."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from gateway.core.errors import Reason, not_found, refusal, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.operations import CONTROL_OPERATIONS, SERVER_OPERATIONS, Operation, split_companion
from gateway.core.transport import Destination
from gateway.core.types import Request
from gateway.routing.conditions import Conditions, RoutingKey
from gateway.routing.unknown_models import UnknownModels
from gateway.routing.version_names import renamed, split_version, whole_or_split

MOST_CACHED = 4096
"""Clients choose the model names in the key."""

LONGEST_NAME = 1024
"""Characters of a model's name or version. Names stand in caches, queues, paths and errors; no server has longer ones
(the file systems beneath them end at 255 bytes), and a body would have room for millions."""


def _check_length(name: str, what: str) -> None:
    if len(name) > LONGEST_NAME:
        shown = f"{name[:40]}..."
        raise not_found(f"no route for {shown!r}: {what} has at most {LONGEST_NAME} characters, got {len(name)}")


@frozen
class Route:
    """Conditions and, for each client protocol, where the request goes: `whole` for the model itself, `companions` for
    names with a derivative's suffix. `joins_versions`: the backend is asked for a model and its version as one name."""

    conditions: Conditions
    whole: Mapping[str, Destination]
    companions: Mapping[tuple[str, Operation], Destination] = field(default_factory=dict)
    joins_versions: bool = False


class Router:
    """Finds the Destination of a Request: the first route that matches, in the order of the configuration.

    A name like `M.gradient` that no route names exactly is matched as the derivative of `M`: first exactly, then by
    glob. One like `M-1.0.0`, from clients of the protocols `joined`, that no route names exactly is matched as the
    version of `M`: first exactly, then by glob. Behind a glob the backend knows which it is: it is asked for the whole
    name and, if it has no such model, for the version of `M`; once only, where it would see one name in both.

    Only clients of the listeners `controlling` may ask for CONTROL_OPERATIONS.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        server: Mapping[Operation, Destination],
        joined: frozenset[str] = frozenset(),
        controlling: Container[str] = (),
    ) -> None:
        self._routes = tuple(routes)
        self._exact_first = tuple(sorted(routes, key=lambda route: not route.conditions.exact))
        self._joined = joined
        self._unknown = UnknownModels(((route.conditions, route.whole) for route in routes), joined)
        self._controlling = controlling
        self._server = dict(server)
        self._candidates: Callable[[str, str, str, str, Operation], tuple[tuple[Conditions, Destination], ...]] = (
            lru_cache(MOST_CACHED)(self._find)
        )

    def select(self, request: Request) -> Destination:
        """Where `request` goes.

        Raises:
            GatewayError: NOT_FOUND if no route matches, UNIMPLEMENTED for a server operation that nothing answers,
                PERMISSION_DENIED for what the listener's clients may not do.
        """
        if request.operation in SERVER_OPERATIONS:
            return self._of_server(request.operation)
        _check_length(request.model, "a model's name")
        _check_length(request.version, "a version")
        candidates = self._candidates(
            request.listener, request.protocol, request.model, request.version, request.operation
        )
        for conditions, destination in candidates:
            if not conditions.per_request or conditions.holds(request):
                return destination
        raise self._unknown.error(request)

    def _of_server(self, operation: Operation) -> Destination:
        destination = self._server.get(operation)
        if destination is None:
            raise unsupported(f"{operation.value} is not supported here")
        return destination

    def _find(
        self, listener: str, protocol: str, model: str, version: str, operation: Operation
    ) -> tuple[tuple[Conditions, Destination], ...]:
        if operation in CONTROL_OPERATIONS and listener not in self._controlling:
            text = f"clients of listener {listener!r} may not ask for {operation.value}"
            raise refusal(Reason.PERMISSION_DENIED, f"{text}; `allow_control: true` on the listener would let them")
        key = RoutingKey(listener, protocol, model, version, operation)
        if self._is_named(key):
            return _until_sure((route, _whole(route, key)) for route in self._routes)
        split = split_version(model) if protocol in self._joined and not version else None
        if split is not None:
            return self._versioned(key, *split)
        derivative = split_companion(model)
        if derivative is None:
            return _until_sure((route, _whole(route, key)) for route in self._routes)
        return _until_sure((route, _companion(route, key, *derivative)) for route in self._exact_first)

    def _versioned(self, key: RoutingKey, model: str, version: str) -> tuple[tuple[Conditions, Destination], ...]:
        split = replace(key, model=model, version=version)
        derivative = None if self._is_named(split) else split_companion(model)

        def of_split(route: Route) -> Destination | None:
            found = _companion(route, split, *derivative) if derivative else _whole(route, split)
            return renamed(found, model, version) if found else None

        def either(route: Route) -> Destination | None:
            as_it_is, found = _whole(route, key), of_split(route)
            if as_it_is is None or found is None or route.joins_versions:
                return as_it_is or found
            return whole_or_split(as_it_is, found)

        return _until_sure((route, either(route)) for route in self._exact_first)

    def _is_named(self, key: RoutingKey) -> bool:
        """Whether a route has the very name."""
        return any(
            route.conditions.exact
            and route.conditions.model == key.model
            and route.conditions.names(key, key.model, key.operation)
            for route in self._routes
        )


def _whole(route: Route, key: RoutingKey) -> Destination | None:
    return route.whole.get(key.protocol) if route.conditions.names(key, key.model, key.operation) else None


def _companion(route: Route, key: RoutingKey, model: str, derivative: Operation) -> Destination | None:
    asked = derivative if key.operation is Operation.INFER else key.operation
    return route.companions.get((key.protocol, derivative)) if route.conditions.names(key, model, asked) else None


def _until_sure(
    found: Iterable[tuple[Route, Destination | None]],
) -> tuple[tuple[Conditions, Destination], ...]:
    """The Destinations up to the first that depends on names alone."""
    candidates = []
    for route, destination in found:
        if destination is not None:
            candidates.append((route.conditions, destination))
            if not route.conditions.per_request:
                break
    return tuple(candidates)
