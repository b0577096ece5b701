"""Assembles a complete gateway that sends no messages to backends: it processes requests up to the bytes for the
backend."""

from collections.abc import AsyncGenerator, Callable, Mapping
from time import monotonic

from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.connecting import parse_address
from gateway.assembly.environment import Connect, Connections, Environment
from gateway.assembly.server_info import INFO
from gateway.config.backends import BackendConfig, EndpointConfig
from gateway.config.keys import Config
from gateway.config.policies import PolicyConfig
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import FixedFields

UNKNOWN_ENDPOINT = "not-yet-discovered:1"
"""The placeholder endpoint for a backend whose endpoints all come from `discovery`."""


@frozen
class Assumption:
    """An assumption about the backend or route named `place`."""

    place: str
    text: str


class NotSent(Exception):  # noqa: N818 - not an error: it ends a call where its message would be sent
    """Raised instead of sending a message to a backend."""


class NoConnector:
    """A Connector that raises NotSent instead of sending a message."""

    async def exchange(self, message: Message) -> Message:
        """Raises NotSent."""
        raise NotSent

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Raises NotSent."""
        nothing: tuple[Message, ...] = ()
        for each in nothing:
            yield each
        raise NotSent

    async def close(self) -> None:
        """Do nothing."""


def not_connected(
    address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
) -> NoConnector:
    """Return a NoConnector. This function has the signature of `connect`."""
    return NoConnector()


def assemble(
    config: Config,
    connect: Connect,
    protocols: Mapping[str, Protocol],
    clock: Callable[[], float] = monotonic,
    *,
    rows_at_once: int | None = None,
) -> Assembly:
    """Return the Assembly of `config`. Its backends use `protocols` over the Connectors that `connect` creates."""
    connections = Connections(parse_address, connect)
    policies = registry.policies()
    return Assembly(
        config,
        Environment(protocols, policies, connections, clock, INFO, lambda: True, rows_at_once=rows_at_once),
    )


def without_network(config: Config, protocols: Mapping[str, Protocol]) -> tuple[Config, tuple[Assumption, ...]]:
    """Return `config` with assumptions instead of data that only the network can supply."""
    notes: list[Assumption] = []
    backends = {name: _assumed(name, each, protocols[each.protocol], notes) for name, each in config.backends.items()}
    routes = tuple(
        each.model_copy(update={"policies": _local(each.policies, each.name, notes)}) for each in config.routes
    )
    # No server responds, so the first step that is sent ends the request. Parallel steps would therefore be missing.
    models = {name: replace(each, steps_at_once=1) for name, each in config.models.items()}
    return config.model_copy(update={"backends": backends, "routes": routes, "models": models}), tuple(notes)


def _assumed(name: str, config: BackendConfig, protocol: Protocol, notes: list[Assumption]) -> BackendConfig:
    update: dict[str, object] = {"policies": _local(config.policies, name, notes)}
    flavors = protocol.traits.servers.flavors
    if flavors is not None and not config.flavor:
        flavor = update["flavor"] = flavors.detect(None)
        text = f"backend {name!r}: assumed server type {flavor!r}; the gateway would query the server"
        notes.append(Assumption(name, text))
    if config.servers is not None:
        update["endpoints"] = (EndpointConfig(address=UNKNOWN_ENDPOINT),)
        notes.append(Assumption(name, f"backend {name!r}: only a running gateway starts its servers"))
    elif not config.endpoints:
        update["endpoints"] = (EndpointConfig(address=UNKNOWN_ENDPOINT),)
        text = f"backend {name!r}: only a running gateway discovers its endpoints"
        notes.append(Assumption(name, text))
    return config.model_copy(update={**update, "discovery": None, "servers": None})


def _local(policies: tuple[PolicyConfig, ...], place: str, notes: list[Assumption]) -> tuple[PolicyConfig, ...]:
    """Return all policies except the ones that store their state on a server."""
    local = tuple(each for each in policies if getattr(each.settings, "redis", None) is None)
    left_out = [each for each in policies if each not in local]
    notes.extend(
        Assumption(place, f"policy {each.name} of {place} needs Redis, so this explanation leaves it out")
        for each in left_out
    )
    return local
