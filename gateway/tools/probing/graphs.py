"""The part of `gateway check --live` that checks `models`: whether the tensors of graph steps match the models on the
servers."""

import asyncio
from collections.abc import Mapping
from functools import partial

from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.connecting import connect, parse_address
from gateway.assembly.environment import Connect, Connections, Environment
from gateway.assembly.server_info import INFO
from gateway.bridge.graphs.model import GraphModel
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import UnknownSignatureError
from gateway.client.credentials import AUTHORIZATION
from gateway.config.document import Location
from gateway.config.keys import Config
from gateway.config.tls import BackendTlsConfig
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request
from gateway.tools.probing.asking import ServerAccess


@frozen
class GraphMisfit:
    """Explains why a graph is unusable or, if `is_warning` is set, could not be checked. `location` is the position in
    the file."""

    graph: str
    location: Location
    text: str
    is_warning: bool = False


async def graph_misfits(
    config: Config, protocols: Mapping[str, Protocol], seconds: float, access: ServerAccess
) -> Mapping[str, GraphMisfit | None]:
    """Return the mismatch of each graph by name, or None for a graph without a mismatch. The function requests metadata
    for the models of the graph's steps with a client's `access`, within `seconds` for each graph."""
    assembly = _assembled(config, protocols)
    await assembly.discovery.start()
    assembly.start()
    try:
        return {name: await _misfit(name, model, seconds, access) for name, model in assembly.graphs.models.items()}
    finally:
        await assembly.close()


def _assembled(config: Config, protocols: Mapping[str, Protocol]) -> Assembly:
    certificates = Certificates()
    certificates.prepare(config)

    def over_tls(tls: BackendTlsConfig) -> Connect:
        return lambda address, protocol, limits, ip="", *, headers=(): connect(
            address, protocol, limits, ip, certificates.client(tls, *alpn(protocol)), headers=headers
        )

    connections = Connections(parse_address, connect, over_tls)
    clock = asyncio.get_running_loop().time
    return Assembly(config, Environment(protocols, registry.policies(), connections, clock, INFO, lambda: True))


async def _misfit(name: str, model: GraphModel, seconds: float, access: ServerAccess) -> GraphMisfit | None:
    headers = [(key.lower().encode(), text.encode()) for key, text in access.headers.items()]
    if access.key is not None:
        headers.append((AUTHORIZATION, b"Bearer " + access.key.encode()))
    of_graph = partial(GraphMisfit, name)
    try:
        async with asyncio.timeout(seconds):
            await model(Request(Operation.METADATA, name, headers=Headers(headers)))
    except TimeoutError:
        return of_graph(("models", name), f"no answer about the models of its steps within {seconds:g} s")
    except GatewayError as error:
        cause = error.__cause__
        if isinstance(cause, GraphError):
            return of_graph(("models", name, *cause.place), cause.in_its_step, isinstance(cause, UnknownSignatureError))
        return of_graph(("models", name), error.message)
    return None
