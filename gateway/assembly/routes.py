"""Converts the routes' configuration to values for the Router and the Bridge, and wraps Handlers in policies, for
`routers`.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from sys import intern
from typing import TypeAlias, TypeVar, cast

from gateway.assembly.registry import PolicyModule, StatefulPolicyModule, wants_context
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.config.keys import Config
from gateway.config.policies import PolicyConfig
from gateway.config.routes import ANY_VALUE, InputMatchConfig, MatchConfig, RouteConfig, SplitConfig
from gateway.core.frozen import extended, replace
from gateway.core.globs import ModelRenaming, Rewritten, captures, wildcards
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Protocol
from gateway.core.record import ID_HEADER, TRACE_HEADER
from gateway.core.requests import Request, Response
from gateway.core.spans import TRACE_HEADERS
from gateway.core.transport import Destination, Handler, StreamHandler
from gateway.policies.context import MessageReach, PolicyContext
from gateway.policies.places import PolicyState
from gateway.routing.branches import Split
from gateway.routing.conditions import Conditions, InputCondition
from gateway.routing.router import Route


def conditions(match: MatchConfig) -> Conditions:
    """Return the Conditions for a route's `match`."""
    return Conditions(
        match.listener or "",
        match.protocol or "",
        match.path or "",
        match.model or "",
        match.version or "",
        match.operation,
        tuple((name.lower(), None if text == ANY_VALUE else text) for name, text in match.header.items()),
        _input(match.input) if match.input is not None else None,
    )


def _input(match: InputMatchConfig) -> InputCondition:
    return InputCondition(match.name or "", match.datatype, match.shape)


def route_settings(config: RouteConfig) -> RouteSettings:
    """Return the Bridge settings for a route."""
    return extended(RouteSettings, config.translate, rewritten(config), config.rewrite.version, config.signature)


class VersionConditions:
    """The `match` conditions that specify one version of a model, by model. These conditions determine the versions
    that clients can request."""

    def __init__(self, routes: Iterable[RouteConfig]) -> None:
        self._by_model: dict[str, list[MatchConfig]] = {}
        for match in (each.match for each in routes):
            if match.model is not None and match.version is not None:
                self._by_model.setdefault(match.model, []).append(match)

    def added_to(self, settings: RouteSettings, own: MatchConfig) -> RouteSettings:
        """Add the versions that clients can request to the `settings` of the route with the match `own`. These are the
        versions in all routes for the same model whose conditions do not depend on the request. A route with a glob has
        only its own version.
        """
        settings = replace(settings, takes_one_version=bool(own.version))
        if own.model is None or wildcards(own.model):
            return replace(settings, routed_versions=(own.version,)) if own.version else settings
        versions = dict.fromkeys(
            match.version
            for match in self._by_model.get(own.model, ())
            if match.version is not None
            and match.listener in (None, own.listener)
            and match.protocol in (None, own.protocol)
            and (match is own or not conditions(match).per_request)
        )
        return replace(settings, routed_versions=tuple(versions))


def rewritten(config: RouteConfig) -> Rewritten:
    """Return the backend's name for a route's models, or the rule that derives the name."""
    glob, template = config.match.model, config.rewrite.model
    if template is None:
        return None
    if glob is None or not captures(template):
        return intern(template)  # many routes can share a template
    renaming = ModelRenaming(glob, template)
    return renaming if wildcards(glob) else renaming(glob)


def split(config: RouteConfig) -> Split:
    """Return the rule that chooses one of a route's backends."""
    parts = config.split or [SplitConfig(backend=config.main_backend)]
    header = config.sticky.header if config.sticky is not None else ""
    return Split([(each.backend, each.weight) for each in parts], header)


def with_policies(
    handler: Handler,
    configs: Sequence[PolicyConfig],
    policies: Mapping[str, PolicyModule],
    context: PolicyContext,
) -> Handler:
    """Wrap `handler` in these policies. The first policy is the outermost."""
    for config in reversed(configs):
        policy = policies[config.name]
        more = (context,) if wants_context(policy) else ()
        handler = policy.wrap(handler, config.settings, *more)
    return handler


def stream_with_policies(
    handler: StreamHandler,
    configs: Sequence[PolicyConfig],
    policies: Mapping[str, PolicyModule],
    context: PolicyContext,
) -> StreamHandler:
    """Wrap `handler` in these policies. The first policy is the outermost."""
    for config in reversed(configs):
        policy = policies[config.name]
        more = (context,) if wants_context(policy) else ()
        handler = policy.wrap_stream(handler, config.settings, *more)
    return handler


def reach_of_messages(config: Config, names: Iterable[str], protocols: Mapping[str, Protocol]) -> MessageReach:
    """Return the parts of client messages that reach the servers of these backends."""
    backends = [config.backends[name] for name in names]
    headers = dict.fromkeys(header for each in backends for header in each.forward_headers)
    has_forms = any(protocols[each.protocol].payloads for each in backends)
    forms = frozenset(name for name, each in protocols.items() if each.payloads) if has_forms else frozenset()
    return MessageReach(tuple(header for header in headers if header not in _IDS), forms)


_IDS = frozenset({ID_HEADER, TRACE_HEADER, *TRACE_HEADERS})
"""The headers that distinguish requests but do not affect responses."""


def policy_states(
    place: str, configs: Iterable[PolicyConfig], policies: Mapping[str, PolicyModule]
) -> Iterator[tuple[str, PolicyState]]:
    """For each policy at `place` that has a state, yield the policy's name and a new state with its location."""
    for config in configs:
        policy = policies[config.name]
        if hasattr(policy, "state"):
            state = cast(StatefulPolicyModule, policy).state(config.settings)
            state.place = f"{place} {config.name}"
            yield config.name, state


Answering: TypeAlias = tuple[Handler, StreamHandler]
"""The two Handlers of a Bridge or of a derivative model: one for single responses, and one for streams."""
MakeDestination: TypeAlias = Callable[[Sequence[Answering], str, Operation | None], Destination]
"""Creates a Destination from the Handlers of the Bridges for one client protocol, whose name is the second argument.
The Destination serves the models themselves or, if an operation is given, their derivative models for this operation.
"""


def route(
    when: Conditions,
    bridges: Mapping[str, Sequence[Bridge]],
    destination: MakeDestination,
    *,
    joins_versions: bool = False,
) -> Route:
    """Return a Route to `bridges`, which contains one Bridge to each backend for each client protocol. A Destination is
    created at its first request: if a gateway has thousands of routes, few of them ever receive requests for
    derivatives, or requests in every protocol."""

    def own(name: str) -> Destination:
        return destination([(each, each.stream) for each in bridges[name]], name, None)

    def companion(key: tuple[str, Operation]) -> Destination:
        name, operation = key
        return destination([_companion(each, operation) for each in bridges[name]], name, operation)

    return Route(when, LazyMapping(bridges, own), LazyMapping(product(bridges, DERIVATIVES), companion), joins_versions)


K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """A mapping of `keys` to values that `make` creates at their first use."""

    def __init__(self, keys: Iterable[K], make: Callable[[K], V]) -> None:
        self._keys = tuple(keys)
        self._make = make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _companion(bridge: Bridge, operation: Operation) -> Answering:
    handler = bridge.companion(operation)
    return handler, one_response(handler)


def any_model(bridge: Bridge, client: Protocol) -> Route:
    """Return a Route that accepts requests for any model and its derivative models."""
    return route(Conditions(), {client.name: [bridge]}, without_policies)


def without_policies(answering: Sequence[Answering], client: str, companion: Operation | None) -> Destination:
    """Return a Destination for the only Bridge, without policies."""
    [(handler, stream)] = answering
    return Destination(handler, stream=stream)


def one_response(handler: Handler) -> StreamHandler:
    """Return a StreamHandler that yields the single response of `handler`."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        answer = await handler(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


def joined_versions(protocols: Iterable[Protocol]) -> frozenset[str]:
    """Return the names of protocols whose clients write a model and its version as one name."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.models.joined_versions)
