"""What a route's configuration says, as the Router and the Bridge take it."""

from gateway.bridge.settings import RouteSettings
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.frozen import extended
from gateway.routing.conditions import Conditions


def conditions(match: MatchConfig) -> Conditions:
    """`match` as the Router takes it."""
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
    """What the Bridge needs of a route."""
    return extended(RouteSettings, config.translate, config.rewrite.model, config.rewrite.version, config.signature)
