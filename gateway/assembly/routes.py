"""Routes: from the configuration's values to those of the Router and the Bridge, and Handlers within policies."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.config.policies import PolicyConfig
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.frozen import extended, replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Protocol
from gateway.core.transport import Destination, Handler, StreamHandler
from gateway.core.types import Request, Response
from gateway.policies.context import PolicyContext
from gateway.registry import PolicyModule, wants_context
from gateway.routing.conditions import Conditions
from gateway.routing.router import Route


def conditions(match: MatchConfig) -> Conditions:
    """The Router's Conditions for a route's `match`."""
    return Conditions(
        match.listener or "",
        match.protocol or "",
        match.path or "",
        match.model or "",
        match.version or "",
        match.operation,
        tuple((name.lower(), text) for name, text in match.header.items()),
    )


def route_settings(config: RouteConfig) -> RouteSettings:
    """The Bridge's settings for a route."""
    return extended(RouteSettings, config.translate, config.rewrite.model, config.rewrite.version, config.signature)


def with_policies(
    handler: Handler,
    configs: Sequence[PolicyConfig],
    policies: Mapping[str, PolicyModule],
    context: PolicyContext,
) -> Handler:
    """`handler` within its policies, the first one outermost."""
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
    """`handler` within its policies, the first one outermost."""
    for config in reversed(configs):
        policy = policies[config.name]
        more = (context,) if wants_context(policy) else ()
        handler = policy.wrap_stream(handler, config.settings, *more)
    return handler


def route(
    when: Conditions,
    bridges: Mapping[str, Bridge],
    destination: Callable[[Handler, StreamHandler], Destination],
    *,
    joins_versions: bool = False,
) -> Route:
    """A Route to `bridges`, one for each client protocol, and to the companions of their models. `destination` makes
    the Destination of a handler and its stream."""
    own = {name: destination(bridge, bridge.stream) for name, bridge in bridges.items()}
    companions = {
        (name, operation): destination(companion, one_response(companion))
        for name, bridge in bridges.items()
        for operation in DERIVATIVES
        for companion in [bridge.companion(operation)]
    }
    return Route(when, own, companions, joins_versions)


def any_model(bridge: Bridge, client: Protocol) -> Route:
    """A Route for requests to every model and its companions."""
    return route(Conditions(), {client.name: bridge}, without_policies)


def without_policies(handler: Handler, stream: StreamHandler) -> Destination:
    """The Destination of a handler and its stream."""
    return Destination(handler, stream=stream)


def one_response(handler: Handler) -> StreamHandler:
    """A StreamHandler that yields the response of `handler`."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        answer = await handler(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


def joined_versions(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The names of the protocols whose clients write a model and its version as one name."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.models.joined_versions)
