"""The commands that `gateway serve` prints to try: one for each protocol of each listener, each one that works."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from gateway import registry
from gateway.assembly.routes import conditions
from gateway.config.keys import Config, ListenerConfig
from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.types import Request
from gateway.routing.conditions import Conditions, RoutingKey
from gateway.routing.version_names import split_version


def examples(config: Config, addresses: Mapping[str, str]) -> list[str]:
    """The commands, under a heading; none if no route names a model. `addresses` are those of listeners by name.

    Each asks about the first model that a route names for its protocol and listener, with the version that the route
    wants. A route that wants what the command cannot say is left out; so is one that wants headers, whose values may be
    secrets.
    """
    routes = [conditions(route.match) for route in config.routes if not route.passthrough]
    found = [
        f"  {command}"
        for listener in config.listeners
        for protocol in (registry.protocols()[name] for name in listener.protocols)
        for command in _first(_commands(routes, listener, protocol, _reached_at(addresses[listener.name])))
    ]
    return ["try:", *found] if found else []


def _first(commands: Iterator[str]) -> list[str]:
    command = next(commands, None)
    return [] if command is None else [command]


def _reached_at(address: str) -> str:
    """`address` as clients on this machine write it, where it stands for all of its addresses."""
    return address.replace("0.0.0.0:", "127.0.0.1:", 1).replace("[::]:", "[::1]:", 1)


def _commands(
    routes: Sequence[Conditions], listener: ListenerConfig, protocol: Protocol, address: str
) -> Iterator[str]:
    """A command for each route that it reaches, in the order of the routes."""
    prefix = listener.prefix.get(protocol.name, "")
    if protocol.example is None or (prefix and protocol.transport != "http"):
        return
    for route in routes:
        if not route.exact:
            continue
        named = _named(route, protocol)
        if named is None:
            continue
        try:
            command = protocol.example(f"{address}{prefix}", *named)
        except GatewayError:
            continue
        request = Request(
            Operation.METADATA,
            route.model,
            route.version,
            listener=listener.name,
            protocol=protocol.name,
            path=_path(command),
        )
        if _taker(routes, request, joined=named[0] != route.model) is route:
            yield command


def _named(route: Conditions, protocol: Protocol) -> tuple[str, str] | None:
    """The model and the version as clients of `protocol` write them; None where they have no way."""
    if not route.version:
        return route.model, ""
    if protocol.traits.models.joined_versions:
        name = f"{route.model}-{route.version}"
        return (name, "") if split_version(name) == (route.model, route.version) else None
    return (route.model, route.version) if protocol.traits.models.versions is not None else None


def _path(command: str) -> str:
    """The path that a command asks for."""
    url = next((word for word in command.split() if "://" in word), "")
    return urlsplit(url.strip("'")).path


def _taker(routes: Sequence[Conditions], request: Request, *, joined: bool) -> Conditions | None:
    """The first route that takes `request`. Names that are `joined` with a version try exact routes first."""
    key = RoutingKey(request.listener, request.protocol, request.model, request.version, request.operation)
    ordered = sorted(routes, key=lambda route: not route.exact) if joined else routes
    return next((each for each in ordered if each.names(key, key.model, key.operation) and each.holds(request)), None)
