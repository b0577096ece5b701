"""A reference server: the bundled models, or any, in front of clients of one protocol."""

from collections.abc import Callable, Sequence

from gateway.admin.statistics import Statistics
from gateway.assembly.own_answers import own_answers
from gateway.assembly.routes import any_model, joined_versions, route, unpoliced
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
"""What the listener and the backend of a reference server are called."""

IN_PROCESS = Traits(wire=Wire(derivatives=True, streams=True), models=Models(versions=bool))
"""The reference models: named, typed and batched tensors, and derivatives as operations. They say which versions they
have."""


def reference_router(
    models: Sequence[Model],
    client: Protocol,
    clock: Callable[[], float],
    info: ServerInfo,
    statistics: Statistics | None = None,
) -> Router:
    """The Router of a reference server: one route for each model, over one protocol, and one for models that it does
    not have, whose refusal names those that it has. `statistics` are what its page of metrics shows, if it has one."""
    path = next((pattern.partition(" ")[2] for pattern in client.patterns if "{model}" in pattern), "")
    handler = reference_handler(models, points=client.traits.wire.points, path=path)
    stream = reference_stream_handler(models, points=client.traits.wire.points)
    signatures = SignatureCache(handler, IN_PROCESS, clock)
    upstream = BackendSide(REFERENCE, "python", IN_PROCESS, handler, signatures, ROWS_AT_ONCE, stream)
    bridge = Bridge(RouteSettings(), client, upstream)
    routes = [route(Conditions(model=model.name), {client.name: bridge}, unpoliced) for model in models]
    routes.append(any_model(bridge, client))

    async def listed(request: Request) -> Answer:
        return await handler(request)

    # A model server of its own: nobody else could take it offline.
    own = own_answers(info, Readiness(lambda: True, {REFERENCE}), {REFERENCE: statistics} if statistics else {})
    return Router(routes, {**own, Operation.MODELS: Destination(listed)}, joined_versions([client]))
