"""The Router of a reference server: Python models served to clients of one protocol."""

from collections.abc import Callable, Sequence

from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.routes import any_model, joined_versions, route, without_policies
from gateway.assembly.server_operations import server_operations
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Protocol, Traits, Wire
from gateway.core.transport import Destination
from gateway.core.types import Answer, Request, ServerInfo
from gateway.reference.handler import handler as reference_handler
from gateway.reference.model import Model
from gateway.reference.streams import stream_handler as reference_stream_handler
from gateway.routing.conditions import Conditions
from gateway.routing.readiness import Readiness
from gateway.routing.router import Router

REFERENCE = "reference"
"""The name of a reference server's listener and backend."""

IN_PROCESS = Traits(wire=Wire(derivatives=True, streams=True), models=Models(versions=bool))
"""The traits of the reference models: named, typed and batched tensors, derivatives as operations, any version."""


def reference_router(
    models: Sequence[Model],
    client: Protocol,
    clock: Callable[[], float],
    info: ServerInfo,
    statistics: ListenerStatistics | None = None,
) -> Router:
    """The Router: one route for each model, and one for unknown models, whose error names the known ones. `statistics`
    are shown on its metrics page, if it has one."""
    path = next((pattern.partition(" ")[2] for pattern in client.patterns if "{model}" in pattern), "")
    handler = reference_handler(models, points=client.traits.wire.points, path=path)
    stream = reference_stream_handler(models, points=client.traits.wire.points)
    signatures = SignatureCache(handler, IN_PROCESS, clock)
    backend = BackendSide(REFERENCE, "python", IN_PROCESS, handler, signatures, ROWS_AT_ONCE, stream)
    bridge = Bridge(RouteSettings(), client, backend)
    routes = [route(Conditions(model=model.name), {client.name: [bridge]}, without_policies) for model in models]
    routes.append(any_model(bridge, client))

    async def listed(request: Request) -> Answer:
        return await handler(request)

    # Clients may take a reference server offline, as they may the real servers.
    own = server_operations(info, Readiness(lambda: True, {REFERENCE}), {REFERENCE: statistics} if statistics else {})
    return Router(routes, {**own, Operation.MODELS: Destination(listed)}, joined_versions([client]))
