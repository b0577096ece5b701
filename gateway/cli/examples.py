"""Writes the example commands that `gateway serve` prints: a working command for each protocol of each listener."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from gateway.assembly.forms import spoken
from gateway.assembly.routes import conditions
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.core.errors import GatewayError
from gateway.core.examples import with_key, with_tls
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request
from gateway.routing.conditions import Conditions, RoutingKey
from gateway.routing.version_names import split_version


def examples(config: Config, addresses: Mapping[str, str]) -> list[str]:
    """Return the lines to print: a heading and the commands. The list is empty if no route contains a model name.
    `addresses` maps listener names to addresses.

    Each command requests the metadata of the model and version in the first matching route. Commands over TLS do not
    check the listener's certificate. If the listener uses `auth`, the command sends the key or token in the shell
    variable KEY. The list omits listeners that require a client certificate, routes with conditions that commands
    cannot meet, and, because header values can be secret, routes with header conditions."""
    routes = [conditions(route.match) for route in config.routes if not route.passthrough]
    protocols = spoken(config)
    commands = [
        f"  {_for_listener(command, listener)}"
        for listener in config.listeners
        if not _needs_certificate(config, listener)
        for protocol in (protocols[name] for name in listener.protocols)
        for command in _first(_commands(routes, listener, protocol, _client_address(addresses[listener.name])))
    ]
    return ["try:", *commands] if commands else []


def _first(commands: Iterator[str]) -> list[str]:
    command = next(commands, None)
    return [] if command is None else [command]


def _needs_certificate(config: Config, listener: ListenerConfig) -> bool:
    """Return whether clients must present a certificate. The printed commands present none."""
    if listener.tls is not None and listener.tls.client == "required":
        return True
    auth = listener.auth
    if auth is None or auth.anonymous is not None:
        return False
    has_keys = config.auth is not None and (config.auth.keys is not None or bool(config.auth.jwt))
    return not has_keys or auth.accept == ("certificates",)


def _for_listener(command: str, listener: ListenerConfig) -> str:
    if listener.tls is not None:
        command = with_tls(command)
    return command if listener.auth is None or listener.auth.anonymous is not None else with_key(command)


def _client_address(address: str) -> str:
    """Return `address` with a wildcard host replaced by loopback, which clients on this machine can reach."""
    return address.replace("0.0.0.0:", "127.0.0.1:", 1).replace("[::]:", "[::1]:", 1)


def _commands(
    routes: Sequence[Conditions], listener: ListenerConfig, protocol: Protocol, address: str
) -> Iterator[str]:
    """Yield one command for each route that a command can match, in the order of the routes."""
    prefix = listener.prefix.get(protocol.name, "")
    if protocol.example is None or (prefix and protocol.transport != "http"):
        return
    for route in routes:
        if not route.exact:
            continue
        target = _model_and_version(route, protocol)
        if target is None:
            continue
        try:
            command = protocol.example(f"{address}{prefix}", *target)
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
        if _first_match(routes, request, joined=target[0] != route.model) is route:
            yield command


def _model_and_version(route: Conditions, protocol: Protocol) -> tuple[str, str] | None:
    """Return the model and the version in the format of `protocol`, or None if requests in this protocol cannot contain
    the version."""
    if not route.version:
        return route.model, ""
    if protocol.traits.models.joined_versions:
        name = f"{route.model}-{route.version}"
        return (name, "") if split_version(name) == (route.model, route.version) else None
    return (route.model, route.version) if protocol.traits.models.versions is not None else None


def _path(command: str) -> str:
    """Return the path in a command's URL."""
    url = next((word for word in command.split() if "://" in word), "")
    return urlsplit(url.strip("'")).path


def _first_match(routes: Sequence[Conditions], request: Request, *, joined: bool) -> Conditions | None:
    """Return the first route that matches `request`. For a model name `joined` with a version, exact routes take
    precedence."""
    key = RoutingKey(request.listener, request.protocol, request.model, request.version, request.operation)
    ordered = sorted(routes, key=lambda route: not route.exact) if joined else routes
    return next(
        (route for route in ordered if route.names(key, key.model, key.operation) and route.holds(request)), None
    )
