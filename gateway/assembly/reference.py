"""A sample server, which serves Python models over one protocol (`reference`)."""

from collections.abc import Callable, Mapping, Sequence

from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.forms import known
from gateway.assembly.listening import binding, exchanges, listen
from gateway.assembly.routes import any_model, joined_versions, route, without_policies
from gateway.assembly.server_info import INFO
from gateway.assembly.server_operations import server_operations
from gateway.assembly.statistics import ListenerStatistics
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.config.keys import ReferenceConfig
from gateway.core import patterns
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Models, Protocol, Traits, Wire
from gateway.core.requests import Answer, Request
from gateway.core.transport import Destination, Listener
from gateway.reference.handler import check
from gateway.reference.handler import handler as reference_handler
from gateway.reference.handler import stream_handler as reference_stream_handler
from gateway.reference.loading import find
from gateway.reference.model import Model
from gateway.routing.conditions import Conditions
from gateway.routing.readiness import Readiness
from gateway.routing.router import Router

REFERENCE = "reference"
"""The name of a sample server's listener and backend."""

IN_PROCESS = Traits(wire=Wire(derivatives=True, streams=True), models=Models(versions=bool, fixed_sizes=True))
"""The traits of the sample models: named, typed and batched tensors, derivatives as operations, and any version.
"""


async def serve_reference(
    config: ReferenceConfig,
    clock: Callable[[], float],
    certificates: Certificates | None = None,
    protocols: Mapping[str, Protocol] | None = None,
) -> Listener:
    """Start a server of sample models for one protocol.

    `certificates` reloads changed `tls` files; if it is None, changes have no effect. `protocols` defaults to all
    protocols that are available without a configuration.

    Raises:
        BindError: the address cannot be bound.
        CertificateError: a `tls` file is unusable.
        ValueError: a model cannot be loaded, or does not work over this protocol.
    """
    protocol = (protocols or known())[config.protocol]
    models = [find(name) for name in config.models]
    check(models, protocol)
    statistics = ListenerStatistics(clock) if protocol.http.pages else None
    router = reference_router(models, protocol, clock, statistics)
    # A request without a model name goes to the only model, or to the first model if the protocol lets clients omit the
    # name.
    has_default = len(models) == 1 or protocol.traits.models.may_be_named
    tls = None
    if config.tls is not None:
        tls = (certificates or Certificates()).server(config.tls, alpn(protocol), f"reference {config.protocol!r}")
    settings = ListenerSettings(REFERENCE, model=models[0].name if has_default else "", tls=tls)
    # A single model responds at `/`. With several models, the response at `/` lists their paths.
    rows = patterns.rows([(protocol, "")], models[0].name, (), pages=statistics is not None)
    handlers = exchanges(settings, router.select)
    with binding(f"reference {config.protocol!r}", config.bind):
        return await listen(
            settings, rows, statistics.record_exchanges(handlers) if statistics else handlers, config.bind
        )


def reference_router(
    models: Sequence[Model],
    client: Protocol,
    clock: Callable[[], float],
    statistics: ListenerStatistics | None = None,
) -> Router:
    """Return a Router with one route for each model, and one route for unknown models, whose error lists the known
    models. The metrics page, if any, shows `statistics`."""
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

    # Clients can take a sample server offline, like a real server.
    own = server_operations(INFO, Readiness(lambda: True, {REFERENCE}), {REFERENCE: statistics} if statistics else {})
    return Router(routes, {**own, Operation.MODELS: Destination(listed)}, joined_versions([client]))
