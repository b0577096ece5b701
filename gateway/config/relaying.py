"""Decide on which routes calls are relayed without decoding: if client and backend use the same protocol, and no
processing step needs the content of messages. `gateway.assembly.routers` applies the decision."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import chain

from gateway.bridge.settings import TranslateSettings
from gateway.config.keys import Config
from gateway.config.routes import RouteConfig
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol, Relay, resolve_batch

NEEDS_NO_CONTENT = frozenset({"name", "backend", "split", "sticky", "fallback", "passthrough"})
"""The route keys that do not require decoding messages. For every other key, a function in this module determines when
the key needs the content of messages."""


@frozen
class Relaying:
    """How one route's calls from clients with one protocol are relayed. `relay` forwards them without decoding. If it
    is None, `reads` is the first configuration key that needs the content of messages."""

    relay: Relay | None
    reads: str = ""


def relaying(
    route: RouteConfig,
    client: Protocol,
    config: Config,
    backends: Mapping[str, Protocol],
) -> Relaying:
    """Return how calls on this route are relayed. `backends` maps backend names to their protocols, with their
    settings."""
    found = chain(
        _by_protocols(route, client, config, backends),
        _by_check(route, config),
        _by_names_and_tensors(route),
        _by_policies(route, config),
        _by_payload_log(route, config),
    )
    reads = next(found, "")
    return Relaying(None, reads) if reads else Relaying(client.relay)


def _by_protocols(
    route: RouteConfig, client: Protocol, config: Config, backends: Mapping[str, Protocol]
) -> Iterator[str]:
    if client.relay is None:
        yield f"protocol {client.name}"
    for name in route.backends:
        if backends[name].relay is not client.relay:
            yield f"backends.{name}.protocol"
        default, _ = resolve_batch(backends[name], "")
        if config.backends[name].batch not in ("", default):
            yield f"backends.{name}.batch"


def _by_check(route: RouteConfig, config: Config) -> Iterator[str]:
    if (route.check or config.check) == "full":
        yield "check"


def _by_names_and_tensors(route: RouteConfig) -> Iterator[str]:
    if route.match.input is not None:
        yield "match.input"
    if route.rewrite.model is not None:
        yield "rewrite.model"
    if route.rewrite.version is not None:
        yield "rewrite.version"
    if route.signature is not None:
        yield "signature"
    default = TranslateSettings()
    for each in fields(TranslateSettings):
        if getattr(route.translate, each.name) != getattr(default, each.name):
            yield f"translate.{each.name}"


def _by_policies(route: RouteConfig, config: Config) -> Iterator[str]:
    places = {"policies": route.policies}
    places |= {f"backends.{name}.policies": config.backends[name].policies for name in route.backends}
    for place, policies in places.items():
        for each in policies:
            if not getattr(each.settings, "passes_unread", False):
                yield f"{place}.{each.name}"


def _by_payload_log(route: RouteConfig, config: Config) -> Iterator[str]:
    """Yield the payload log's key for a logged route. All calls on a logged route are decoded: if only the logged calls
    were decoded, malformed calls would fail at random."""
    log = config.log.payloads
    if log is None:
        return
    if log.routes is None or route.name in log.routes:
        yield "log.payloads"
