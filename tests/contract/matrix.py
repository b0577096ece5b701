"""All pairs of a client protocol and a server protocol: one gateway with a listener for every protocol, in front of a
model server for every protocol."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from gateway.assembly.connecting import connect
from gateway.cli.options import catalog
from gateway.config import loading
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.models import TensorSpec
from gateway.core.protocol import DEFAULT_LIMITS, Protocol, Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.streaming import ask_stream
from gateway.core.transport import Connector
from gateway.reference.handler import check
from gateway.reference.loading import find
from gateway.reference.model import Model
from gateway.routing.listing import BackendModels, Listing
from gateway.routing.readiness import BackendReadiness
from tests.contract.flavors import DIALECTS, Dialect, names_models
from tests.limits import GENEROUS
from tests.running_gateway import reference, running_gateway

BUNDLED = ("identity", "double", "add_sub", "upper", "classify", "posterior", "count", "fail")
OWN = ("sums", "rows")

ADDRESSES = {**{name: name for name in BUNDLED}, **{name: f"tests.contract.models:{name}" for name in OWN}}
"""The models by name, each with the model specification for the server."""
MODELS = {name: find(address) for name, address in ADDRESSES.items()}
REDUCTIONS = ("last", "collect")
"""Models that exist only in the gateway: `count` with its responses combined into one."""
NOBODY = "nobody"
"""The name of a model that no server has."""
Dialects: TypeAlias = Mapping[str, Dialect]


def serves(protocol: Protocol, model: Model) -> bool:
    """Return whether a server can serve `model` over `protocol`."""
    try:
        check([model], protocol)
    except ValueError:
        return False
    return True


def routed(back: Dialect, model: str) -> str:
    """Return the name in the gateway for a model of a backend."""
    return f"{back.name}-{model}"


class Matrix:
    """A running gateway with a connected client for each protocol."""

    def __init__(self, clients: dict[str, Connector]) -> None:
        self._clients = clients

    async def ask(self, front: Dialect, back: Dialect, request: Request) -> Answer:
        """Return the answer that a `front` client gets from the `back` backend. The request contains the backend's name
        for the model.

        Raises:
            GatewayError: the error that the client gets, as its protocol represents it.
        """
        named, client = self._addressed(front, back, request)
        async with asyncio.timeout(GENEROUS):
            return await ask(named, front.protocol, client, _gateway(front))

    async def stream(self, front: Dialect, back: Dialect, request: Request) -> AsyncIterator[Response]:
        """Yield the answers to a client that accepts any number of them.

        Raises:
            GatewayError: like `ask`, also after some answers.
        """
        named, client = self._addressed(front, back, request)
        async with (
            asyncio.timeout(GENEROUS),
            aclosing(ask_stream(named, front.protocol, client, _gateway(front))) as found,
        ):
            async for each in found:
                yield each

    def _addressed(self, front: Dialect, back: Dialect, request: Request) -> tuple[Request, Connector]:
        named = replace(request, model=routed(back, request.model) if request.model else "")
        return named, self._clients[_listener(front.protocol, back, request.model)]


def _gateway(front: Dialect) -> Target:
    """Return the target with which a client calls the gateway."""
    return Target("gateway", flavor=front.flavor)


@asynccontextmanager
async def running(dialects: Dialects = DIALECTS) -> AsyncIterator[Matrix]:
    """Run every server in `dialects`, the gateway and every client, all on loopback."""
    async with AsyncExitStack() as stack:
        servers = _servers(dialects)
        addresses = {
            name: await stack.enter_async_context(reference(protocol.name, *map(ADDRESSES.__getitem__, models)))
            for name, (protocol, models) in servers.items()
        }
        config = loading.loads(json.dumps(_config(addresses, dialects)), "matrix.yaml", catalog())
        protocols = _protocols(dialects)
        with ExitStack() as patches:
            # On a busy machine, a backend does not always answer within 2 seconds.
            for waiting, defaults in (
                (BackendReadiness, (GENEROUS,)),
                (BackendModels, (GENEROUS, None)),
                (Listing, (GENEROUS, GENEROUS)),
            ):
                patches.enter_context(patch.object(waiting.__init__, "__defaults__", defaults))
            gateway = await stack.enter_async_context(running_gateway(config))
        clients = {}
        for each in config.listeners:
            protocol = protocols[each.protocols[0]]
            address = gateway.state.listeners[each.name].address
            clients[each.name] = await stack.enter_async_context(connected(protocol, address))
        yield Matrix(clients)


@asynccontextmanager
async def connected(protocol: Protocol, address: str) -> AsyncIterator[Connector]:
    """Return the Connector of a client."""
    connector = connect(address, protocol, DEFAULT_LIMITS)
    try:
        yield connector
    finally:
        await connector.close()


# --- The configuration of the gateway ---


def _protocols(dialects: Dialects) -> dict[str, Protocol]:
    return {each.protocol.name: each.protocol for each in dialects.values()}


def _servers(dialects: Dialects) -> dict[str, tuple[Protocol, list[str]]]:
    """Yield a server with all models for each protocol, or one server per model if calls cannot select a model."""
    servers = {}
    for protocol in _protocols(dialects).values():
        models = [name for name, model in MODELS.items() if serves(protocol, model)]
        for each in [models] if names_models(protocol.traits) else [[name] for name in models]:
            servers[_server(protocol, each[0])] = protocol, each
    return servers


def _server(protocol: Protocol, model: str) -> str:
    return protocol.name if names_models(protocol.traits) else f"{protocol.name}-{model}"


def _config(addresses: dict[str, str], dialects: Dialects) -> dict[str, Any]:
    return {
        "listeners": list(_listeners(dialects)),
        "backends": dict(_backends(addresses, dialects)),
        "routes": list(_routes(dialects)),
    }


def _listener(protocol: Protocol, back: Dialect, model: str) -> str:
    """Yield the listeners of a protocol: one for each model if its clients cannot select a model."""
    name = protocol.name.replace(":", "-")
    return name if names_models(protocol.traits) else f"{name}-to-{routed(back, model)}"


def _listeners(dialects: Dialects) -> Iterator[dict[str, Any]]:
    for protocol in _protocols(dialects).values():
        places = {_listener(protocol, back, model): routed(back, model) for back, model in _pairs(dialects)}
        for name, model in places.items():
            listener = {"name": name, "bind": "127.0.0.1:0", "protocols": [protocol.name]}
            yield listener if names_models(protocol.traits) else {**listener, "model": model}


def _backends(addresses: dict[str, str], dialects: Dialects) -> Iterator[tuple[str, dict[str, Any]]]:
    for back, model in _pairs(dialects):
        flavor = {"flavor": back.flavor} if back.flavor else {}
        server = addresses.get(_server(back.protocol, model))
        if server:
            yield _backend(back, model), {"protocol": back.protocol.name, "endpoints": [server], **flavor}


def _backend(back: Dialect, model: str) -> str:
    return back.name if names_models(back.traits) else routed(back, model)


def _routes(dialects: Dialects) -> Iterator[dict[str, Any]]:
    """Yield the routes. A route sets a signature if the server reports none."""
    for back, name in _pairs(dialects):
        own = "count" if name in REDUCTIONS else name
        model = MODELS.get(own)
        match = {"match": {"model": routed(back, name)}, "backend": _backend(back, own), "rewrite": {"model": own}}
        if name in REDUCTIONS:
            match["translate"] = {"stream": name}
        if model is None or not model.signature.inputs or back.traits.models.trusted_metadata:
            yield match
        else:
            signature = {"inputs": model.signature.inputs, "outputs": model.signature.outputs}
            yield {**match, "signature": {side: [*map(_spec, specs)] for side, specs in signature.items()}}


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _pairs(dialects: Dialects) -> Iterator[tuple[Dialect, str]]:
    """Yield each model of each backend, and an unknown model."""
    for back in dialects.values():
        yield from ((back, name) for name, model in MODELS.items() if serves(back.protocol, model))
        if back.traits.wire.streams:
            yield from ((back, name) for name in REDUCTIONS)
        if names_models(back.traits):
            yield back, NOBODY
