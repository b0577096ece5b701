"""Chooses the route for a request. `assembly.routers` creates the Router, and a listener calls `select` for each
request.

The Router checks the routes in configuration order, and uses the first one whose conditions hold. A client's model
name, such as `M-1.0.0` or `M.gradient`, is interpreted as follows:

1. If a route contains exactly this name, the name means this model.
2. Otherwise, if the protocol joins versions to names (grps) and the name ends in a version, the name has two
   interpretations: the model `M-1.0.0`, and version `1.0.0` of model `M`. The Router checks both interpretations, first
   for routes with exact names, then for globs. If a glob matches both interpretations, the backend decides: it first
   receives a request for the entire name and, if it has no such model, a request for the version of `M`.
3. Otherwise, if the name ends in a derivative's suffix, the name means the derivative model of `M`. The Router checks
   first routes with exact names, then globs.
4. Otherwise, the name is a plain model name.

The Router caches decisions by listener, protocol, model, version, operation and principal. A cached decision includes
the check of the principal's permissions. If a route matches by names but earlier routes have conditions on path,
headers or input, the Router caches all these routes and checks them in order for each request.

If no route matches, the error suggests a similar name or the existing versions. If the servers behind a glob do not
have the model, the error suggests a similar name that another route matches. Suggestions are models that routes name
exactly, for the client's listener and protocol, without conditions on path, headers or input. The Router does not know
the models behind globs. Clients choose the names, and the number of lookups per error must therefore be limited. For
this reason, UnknownModels compares names by looking up their `variants` in a table.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TypeAlias, TypeVar

from gateway.core.errors import GatewayError, Reason, invalid_input, not_found, refusal, unsupported
from gateway.core.frozen import frozen, replace
from gateway.core.operations import CONTROL_OPERATIONS, SERVER_OPERATIONS, Operation, split_companion
from gateway.core.principal import Principal
from gateway.core.requests import Answer, Request
from gateway.core.tensors import Tensor
from gateway.core.transport import Destination, Handler
from gateway.routing.conditions import Conditions, RoutingKey
from gateway.routing.version_names import renamed, split_version, whole_or_version

MOST_NAMES = 500
LONGEST_SUGGESTED = 64
"""The maximum length of a suggested name, in characters. The table contains at most MOST_NAMES names."""
_SHORTEST_SUGGESTED = 3
_MOST_VERSIONS = 5
_MOST_INPUTS = 5


@frozen
class Visible:
    """The models that routes name for clients of one protocol on one listener.

    `versions` maps each name to the versions in its routes' conditions. `near` maps each variant of a name to the name.
    """

    versions: dict[str, tuple[str, ...]]
    near: dict[str, str]


class UnknownModels:
    """Creates the errors for requests that no route matches. `joined` contains the protocols whose clients join a model
    and its version into one name."""

    def __init__(self, routes: Iterable[tuple[Conditions, Iterable[str]]], joined: frozenset[str]) -> None:
        self._routes = tuple((conditions, frozenset(protocols)) for conditions, protocols in routes)
        self._joined = joined
        self._visible = lru_cache(None)(self._find)  # no limit: configurations have few listeners and protocols

    def error(self, request: Request, candidates: Sequence[Conditions] = ()) -> GatewayError:
        """Return the error for `request`: INVALID_ARGUMENT if only its inputs fail the conditions of one of the
        `candidates`; otherwise NOT_FOUND."""
        if any(each.input and each.holds_but_for_input(request) for each in candidates):
            return invalid_input(_text_for_inputs(request))
        if not request.model:
            return not_found(f"no route for {_without_model(request.operation)}")
        visible = self._visible(request.listener, request.protocol)
        for model, version in self._readings(request):
            if model in visible.versions:
                return not_found(_text_for_known(model, version, visible.versions[model], request))
        near = self.near(request.listener, request.protocol, request.model, request.operation, request.principal)
        return not_found(f"unknown model {request.model!r}{_suggestion(near) if near else ''}")

    def near(
        self, listener: str, protocol: str, model: str, operation: Operation, principal: Principal | None
    ) -> str | None:
        """Return another model that the client might mean by `model`, and that the principal has permission to use.

        Return None if a route names `model` itself, or if no name is similar."""
        visible = self._visible(listener, protocol)
        if model in visible.versions:
            return None
        names = (visible.near[each] for each in variants(model) if each in visible.near)
        return next((name for name in names if principal is None or principal.may(operation, name, listener)), None)

    def _readings(self, request: Request) -> Iterator[tuple[str, str]]:
        """Yield the possible interpretations of the request's names as a model and a version."""
        yield request.model, request.version
        split = split_version(request.model) if request.protocol in self._joined and not request.version else None
        if split:
            yield split

    def _find(self, listener: str, protocol: str) -> Visible:
        versions: dict[str, tuple[str, ...]] = {}
        near: dict[str, str] = {}
        for conditions, protocols in self._routes:
            if (
                not conditions.exact
                or conditions.per_request
                or conditions.listener not in ("", listener)
                or conditions.protocol not in ("", protocol)
                or protocol not in protocols
            ):
                continue
            name = conditions.model
            if name not in versions and len(versions) < MOST_NAMES:
                near |= {each: near.get(each, name) for each in variants(name)}
            versions[name] = (*versions.get(name, ()), conditions.version)
        return Visible(versions, near)


def suggesting(handler: Handler, name: str) -> Handler:
    """Wrap `handler` to suggest a similar name in errors about models that the server does not have."""

    async def suggest(request: Request) -> Answer:
        try:
            return await handler(request)
        except GatewayError as error:
            # Do not change the error itself, because clients that share one call get the same object.
            if error.reason is Reason.MODEL_NOT_FOUND and not error.message.endswith(_suggestion(name)):
                error.message += _suggestion(name)
            raise

    return suggest


def _suggestion(name: str) -> str:
    return f"; did you mean {name!r}?"


def _without_model(operation: Operation) -> str:
    if operation in CONTROL_OPERATIONS:
        name = operation.value
        return f"{name} without a model: one with `match: {{operation: {name}}}` says which backend is meant"
    return "a request without a model: name one, or set `model` on the listener"


def variants(name: str) -> Iterator[str]:
    """Yield variants of `name`, in lower case and with `_` for `-`: the entire name, and for each character, the name
    without it.

    Two names share a variant if they differ by one added, removed or replaced character, or by two swapped adjacent
    characters."""
    if not _SHORTEST_SUGGESTED <= len(name) <= LONGEST_SUGGESTED:
        return
    folded = name.lower().replace("-", "_")
    yield folded
    for at in range(len(folded)):
        yield folded[:at] + folded[at + 1 :]


def _text_for_inputs(request: Request) -> str:
    if request.schemaless:
        return f"model {request.model!r} needs inputs with datatypes and shapes; use a protocol that has them"
    shown = ", ".join(map(_described, request.inputs[:_MOST_INPUTS])) or "none"
    more = ", ..." if len(request.inputs) > _MOST_INPUTS else ""
    text = f"model {request.model!r} does not accept these inputs: {shown}{more}"
    return f"{text}; send inputs that a route's `match: {{input: ...}}` describes"


def _described(tensor: Tensor) -> str:
    name = tensor.name if len(tensor.name) <= LONGEST_SUGGESTED else f"{tensor.name[:LONGEST_SUGGESTED]}..."
    return f"{name!r} {tensor.datatype} {list(tensor.shape)}" if name else f"{tensor.datatype} {list(tensor.shape)}"


def _text_for_known(model: str, version: str, versions: tuple[str, ...], request: Request) -> str:
    """Return the error message for a model that exists, but not in this version or for this operation."""
    wanted = list(dict.fromkeys(versions))
    if "" in wanted or version in wanted:
        return f"model {model!r} does not support {request.operation.value!r}"
    word = "version" if len(wanted) == 1 else "versions"
    shown = ", ".join(map(repr, wanted[:_MOST_VERSIONS])) + (", ..." if len(wanted) > _MOST_VERSIONS else "")
    asked = f", not {version!r}" if version else "; name it" if len(wanted) == 1 else "; name one"
    return f"model {model!r} has {word} {shown}{asked}"


T = TypeVar("T")

Candidate: TypeAlias = tuple[Conditions | None, Destination]
"""A Destination and the conditions to check for each request; the conditions are None if names alone decide."""

_READ_FIRST = Destination(reads="match.input")
"""The reason for decoding an unread request: a route's condition depends on its content."""
_Asked: TypeAlias = tuple[str, str, str, str, Operation, Principal | None]
"""A cache key: listener, protocol, model, version, operation and principal."""

MOST_CACHED = 4096
"""The maximum number of entries in each cache, because clients choose the names in the keys."""

LONGEST_NAME = 1024
"""The maximum length of a model's name or version, in characters. The limit is necessary because names are copied to
caches, queues, paths and errors, and a request body could contain a name of several megabytes. Names on real servers
are shorter, because file names have at most 255 bytes."""


def _check_length(name: str, what: str) -> None:
    if len(name) > LONGEST_NAME:
        shown = f"{name[:40]}..."
        raise not_found(f"no route for {shown!r}: {what} has at most {LONGEST_NAME} characters, got {len(name)}")


def _check_permission(principal: Principal | None, operation: Operation, model: str, listener: str) -> None:
    if principal is not None and not principal.may(operation, model, listener):
        raise principal.refused(operation, model, listener)


@frozen
class Route:
    """A rule that assigns requests to backends if its conditions hold. It contains Destinations by client protocol:
    `whole` for the model itself, and `companions` for its derivatives.

    `joins_versions` is True if the backend's protocol joins a model and its version into one name."""

    conditions: Conditions
    whole: Mapping[str, Destination]
    companions: Mapping[tuple[str, Operation], Destination] = field(default_factory=dict)
    joins_versions: bool = False


@frozen
class Reading:
    """One interpretation of the names in a request: as `model`, or as the derivative model of `model` that computes
    `derivative`.

    `key` contains the names in this interpretation, with the version split off if the name contains one."""

    key: RoutingKey
    model: str
    derivative: Operation | None = None

    @property
    def operation(self) -> Operation:
        """The operation on `model`. An inference call to a derivative model is a derivative call to `model`."""
        is_derived = self.derivative is not None and self.key.operation is Operation.INFER
        return self.derivative if is_derived and self.derivative is not None else self.key.operation


class Router:
    """Finds the Destination of a Request in the first matching route.

    - `routes`: The routes in configuration order.
    - `server`: The Destinations of SERVER_OPERATIONS, which do not use routes.
    - `joined`: The protocols whose clients join a model and its version into one name.
    - `controlling`: The listeners whose clients can use the operations in CONTROL_OPERATIONS.
    - `relays`: The protocols with at least one route that relays calls without decoding them.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        server: Mapping[Operation, Destination],
        joined: frozenset[str] = frozenset(),
        controlling: Container[str] = (),
        relays: frozenset[str] = frozenset(),
    ) -> None:
        self.relays = relays
        self.routes = tuple(routes)
        self._exact_first = tuple(sorted(routes, key=lambda route: not route.conditions.exact))
        self._joined = joined
        self._unknown = UnknownModels(((route.conditions, route.whole) for route in routes), joined)
        self._controlling = controlling
        self._server = dict(server)
        self._decided: dict[_Asked, Destination] = {}
        """Decisions that depend only on names."""
        self._candidates: dict[_Asked, tuple[Candidate, ...]] = {}
        """Candidates to check for each request."""

    def select(self, request: Request) -> Destination:
        """Return the Destination for `request`.

        Raises:
            GatewayError: NOT_FOUND if no route matches; UNIMPLEMENTED for a server operation without a handler;
                PERMISSION_DENIED if the principal or the listener's clients have no permission for the operation.
        """
        asked = (
            request.listener, request.protocol, request.model, request.version, request.operation, request.principal
        )  # fmt: skip
        return self._decided.get(asked) or self._choose(request, asked)

    def _choose(self, request: Request, asked: _Asked) -> Destination:
        candidates = self._candidates.get(asked)
        if candidates is None:
            candidates = self._find(*asked)
            if candidates and candidates[0][0] is None:
                _keep(self._decided, asked, candidates[0][1])
            else:
                _keep(self._candidates, asked, candidates)
        for conditions, destination in candidates:
            if conditions is None or conditions.holds_but_for_input(request):
                if conditions is not None and conditions.input is not None:
                    if request.unread is not None:
                        return _READ_FIRST
                    if not conditions.input.holds(request):
                        continue
                return destination
        raise self._unknown.error(request, [conditions for conditions, _ in candidates if conditions is not None])

    def _server_destination(self, operation: Operation) -> Destination:
        destination = self._server.get(operation)
        if destination is None:
            raise unsupported(f"{operation.value} is not supported here")
        return destination

    def _find(
        self, listener: str, protocol: str, model: str, version: str, operation: Operation, principal: Principal | None
    ) -> tuple[Candidate, ...]:
        """Return the candidates. `_choose` caches them, but not the errors that invalid names raise."""
        _check_permission(principal, operation, model, listener)
        if operation in SERVER_OPERATIONS:
            return ((None, self._server_destination(operation)),)
        _check_length(model, "a model's name")
        _check_length(version, "a version")
        if operation in CONTROL_OPERATIONS and listener not in self._controlling:
            text = f"listener {listener!r} does not allow {operation.value}"
            raise refusal(Reason.PERMISSION_DENIED, f"{text}; set `allow_control: true` on it")
        found = _candidates_of(self.tried(RoutingKey(listener, protocol, model, version, operation)))
        near = self._unknown.near(listener, protocol, model, operation, principal)
        return found if near is None else tuple([(conditions, _suggesting(each, near)) for conditions, each in found])

    def tried(self, key: RoutingKey) -> Iterator[tuple[Route, Destination | None]]:
        """Yield all routes in the order in which they are checked for `key`, with the Destination of each route whose
        conditions on names hold."""
        readings = self.readings(key)
        is_plain = len(readings) == 1 and readings[0].derivative is None
        for route in self.routes if is_plain else self._exact_first:
            yield route, _destination(route, readings)

    def readings(self, key: RoutingKey) -> "tuple[Reading, ...]":
        """Return the possible interpretations of the names in `key`.

        The names have either one interpretation or two: an entire name, and a name with a version suffix."""
        if self._is_named(key):
            return (Reading(key, key.model),)
        split = split_version(key.model) if key.protocol in self._joined and not key.version else None
        if split is None:
            return (Reading(key, *(split_companion(key.model) or (key.model,))),)
        model, version = split
        versioned = replace(key, model=model, version=version)
        derivative = None if self._is_named(versioned) else split_companion(model)
        return Reading(key, key.model), Reading(versioned, *(derivative or (model,)))

    def _is_named(self, key: RoutingKey) -> bool:
        """Return whether a route matches and has the key's model as its exact name."""
        return any(
            route.conditions.exact
            and route.conditions.model == key.model
            and route.conditions.names(key, key.model, key.operation)
            for route in self.routes
        )


def _suggesting(destination: Destination, name: str) -> Destination:
    handler = destination.handler
    return destination if handler is None else replace(destination, handler=suggesting(handler, name))


def _keep(cache: dict[_Asked, T], asked: _Asked, found: T) -> None:
    """Add an entry, and remove the oldest one if the cache is full."""
    if len(cache) >= MOST_CACHED:
        del cache[next(iter(cache))]
    cache[asked] = found


def _destination(route: Route, readings: tuple[Reading, ...]) -> Destination | None:
    """Return the Destination of a request with these interpretations, or None if the route's conditions on names do not
    hold."""
    whole = _read(route, readings[0])
    if len(readings) == 1:
        return whole
    split = readings[1]
    found = _read(route, split)
    versioned = renamed(found, split.key.model, split.key.version) if found else None
    if whole is None or versioned is None or route.joins_versions:
        return whole or versioned
    return whole_or_version(whole, versioned)


def _read(route: Route, reading: Reading) -> Destination | None:
    if not route.conditions.names(reading.key, reading.model, reading.operation):
        return None
    protocol = reading.key.protocol
    if reading.derivative is None:
        return route.whole.get(protocol)
    return route.companions.get((protocol, reading.derivative))


def _candidates_of(
    found: Iterable[tuple[Route, Destination | None]],
) -> tuple[Candidate, ...]:
    """Return the Destinations up to the first route whose conditions depend only on names. Later routes receive no
    requests."""
    candidates: list[Candidate] = []
    for route, destination in found:
        if destination is not None and route.conditions.per_request:
            candidates.append((route.conditions, destination))
        elif destination is not None:
            candidates.append((None, destination))
            break
    return tuple(candidates)
