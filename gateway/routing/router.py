"""Which route a request takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache

from gateway.core.errors import not_found, unsupported
from gateway.core.operations import SERVER_OPERATIONS, Operation, split_companion
from gateway.core.transport import Destination
from gateway.core.types import Request
from gateway.core.values import value

MOST_CACHED = 4096
"""Clients choose the model names in the key."""

LONGEST_NAME = 1024
"""Characters of a model's name or version. Names stand in caches, queues, paths and errors; no server has longer ones
(the file systems beneath them end at 255 bytes), and a body would have room for millions."""


@value
class Conditions:
    """`match` of a route; an empty one holds for everything. `model` is exact or a glob, `path` exact or with a
    trailing `*`; `headers` are pairs of lower-case name and value."""

    listener: str = ""
    protocol: str = ""
    path: str = ""
    model: str = ""
    version: str = ""
    operation: Operation | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def per_request(self) -> bool:
        """Whether a decision cannot be remembered by names alone."""
        return bool(self.path or self.headers)

    def holds(self, request: Request) -> bool:
        """Whether the parts that cannot be remembered hold."""
        path = request.origin.path if request.origin else ""
        return _path_matches(self.path, path) and all(request.headers.get(name) == text for name, text in self.headers)

    def names(self, key: "Key", model: str, operation: Operation) -> bool:
        """Whether the parts that can be remembered hold."""
        return (
            self.listener in ("", key.listener)
            and self.protocol in ("", key.protocol)
            and self.version in ("", key.version)
            and self.operation in (None, operation)
            and (not self.model or (model != "" and fnmatchcase(model, self.model)))
        )

    @property
    def exact(self) -> bool:
        """Whether the model is one name."""
        return bool(self.model) and not any(mark in self.model for mark in "*?[")


def _check_length(name: str, what: str) -> None:
    if len(name) > LONGEST_NAME:
        shown = f"{name[:40]}..."
        raise not_found(f"no route for {shown!r}: {what} has at most {LONGEST_NAME} characters, got {len(name)}")


def _path_matches(wanted: str, path: str) -> bool:
    if wanted.endswith("*"):
        return path.startswith(wanted[:-1])
    return wanted in ("", path)


@value
class Key:
    """What a routing decision depends on."""

    listener: str
    protocol: str
    model: str
    version: str
    operation: Operation


@value
class Route:
    """Conditions and, for each client protocol, where the request goes: `whole` for the model itself, `companions` for
    names with a derivative's suffix."""

    conditions: Conditions
    whole: Mapping[str, Destination]
    companions: Mapping[tuple[str, Operation], Destination] = field(default_factory=dict)


class Router:
    """Finds the Destination of a Request: the first route that matches, in the order of the configuration.

    A name like `M.gradient` that no route names exactly is matched as the derivative of `M`: first exactly, then by
    glob.
    """

    def __init__(self, routes: Sequence[Route], server: Mapping[Operation, Destination]) -> None:
        self._routes = tuple(routes)
        self._server = dict(server)
        self._candidates: Callable[[str, str, str, str, Operation], tuple[tuple[Conditions, Destination], ...]] = (
            lru_cache(MOST_CACHED)(self._find)
        )

    def select(self, request: Request) -> Destination:
        """Where `request` goes.

        Raises:
            GatewayError: NOT_FOUND if no route matches, UNIMPLEMENTED for a server operation that nothing answers.
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
        raise not_found(f"no route for {f'model {request.model!r}' if request.model else 'a request without a model'}")

    def _of_server(self, operation: Operation) -> Destination:
        destination = self._server.get(operation)
        if destination is None:
            raise unsupported(f"{operation.value} is not supported here")
        return destination

    def _find(
        self, listener: str, protocol: str, model: str, version: str, operation: Operation
    ) -> tuple[tuple[Conditions, Destination], ...]:
        key = Key(listener, protocol, model, version, operation)
        split = split_companion(model)
        if split is None or any(
            route.conditions.exact and route.conditions.model == model and route.conditions.names(key, model, operation)
            for route in self._routes
        ):
            return self._whole(key)
        return self._companion(key, *split)

    def _whole(self, key: Key) -> tuple[tuple[Conditions, Destination], ...]:
        found = []
        for route in self._routes:
            if route.conditions.names(key, key.model, key.operation) and key.protocol in route.whole:
                found.append((route.conditions, route.whole[key.protocol]))
                if not route.conditions.per_request:
                    break
        return tuple(found)

    def _companion(self, key: Key, model: str, operation: Operation) -> tuple[tuple[Conditions, Destination], ...]:
        asked = operation if key.operation is Operation.INFER else key.operation
        matching = [route for route in self._routes if route.conditions.names(key, model, asked)]
        exact = [route for route in matching if route.conditions.exact]
        globs = [route for route in matching if not route.conditions.exact]
        found = []
        for route in (*exact, *globs):
            destination = route.companions.get((key.protocol, operation))
            if destination is not None:
                found.append((route.conditions, destination))
                if not route.conditions.per_request:
                    break
        return tuple(found)
