"""From a Config to the values that answer requests: backends, bridges, routes. Nothing here opens a socket."""

from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from gateway.admin.statistics import Statistics
from gateway.bridge.bridge import Bridge, Upstream
from gateway.bridge.settings import Renames, RouteSettings
from gateway.bridge.signatures import Signatures
from gateway.config.images import ImagesConfig
from gateway.config.models import BackendConfig, Config
from gateway.config.policies import PolicyConfig
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.errors import unsupported
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Limits, Protocol, Target, Traits, by_batch
from gateway.core.transport import Connector, Destination, Handler, StreamHandler
from gateway.core.types import Answer, Request, Response, ServerInfo
from gateway.core.values import replace
from gateway.reference.handler import handler as reference_handler
from gateway.reference.model import Model
from gateway.reference.streams import stream_handler as reference_stream_handler
from gateway.registry import Policy
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Beside, Endpoint
from gateway.routing.listing import BackendModels, Listed, Listing
from gateway.routing.readiness import Readiness
from gateway.routing.router import Conditions, Route, Router

REFERENCE = "reference"
"""What the listener and the backend of a reference server are called."""

ROWS_AT_ONCE = 16
"""Of one batch, towards a backend that says no limit."""

IN_PROCESS = Traits(derivatives=True, streams=True, versions=bool)
"""The reference models: named, typed and batched tensors, and derivatives as operations. They say which versions they
have."""

Locate = Callable[[str, Protocol], Hashable]
"""Where an endpoint's text points: two that are written differently may be one place."""
Connect = Callable[[str, Protocol, Limits], Connector]
Ready = Callable[[], bool]


class Assembly:
    """The gateway of one Config: its backends and its Router."""

    def __init__(
        self,
        config: Config,
        protocols: Mapping[str, Protocol],
        policies: Mapping[str, Policy],
        locate: Locate,
        connect: Connect,
        clock: Callable[[], float],
        info: ServerInfo,
        ready: Ready,
    ) -> None:
        self._protocols = protocols
        self._policies = policies
        self._locate = locate
        self._connect = connect
        self._clock = clock
        self.endpoints: dict[tuple[str, Hashable], Endpoint] = {}
        self.backends = {name: self._backend(name, each) for name, each in config.backends.items()}
        self._upstreams = {name: self._upstream(name, each) for name, each in config.backends.items()}
        self.statistics = {each.name: Statistics(clock) for each in config.listeners if each.metrics_page}
        """Of the listeners that show them."""
        switchable = frozenset(each.name for each in config.listeners if each.allow_offline)
        own = own_answers(info, Readiness(ready, switchable), self.statistics)
        names = {name for listener in config.listeners for name in listener.protocols}
        clients = [protocols[name] for name in sorted(names)]
        self.router = self._router([each for each in config.routes if not each.passthrough], clients, own)
        self.passthrough = Router(
            [self._passthrough(each, config) for each in config.routes if each.passthrough],
            {},
            joined_versions(clients),
        )
        """Of the requests whose messages pass untouched."""

    def _backend(self, name: str, config: BackendConfig) -> Backend:
        protocol = self._protocols[config.protocol]
        endpoints = [self._endpoint(address, protocol, config) for address in config.endpoints]
        limit = protocol.traits.max_in_flight if config.max_in_flight is None else config.max_in_flight
        batch, _ = by_batch(protocol, config.batch)
        target = Target(
            name, flavor=config.flavor, batch=batch, limits=config.limits, forward_headers=config.forward_headers
        )
        return Backend(target, protocol, endpoints, limit)

    def _endpoint(self, address: str, protocol: Protocol, config: BackendConfig) -> Endpoint:
        """One Endpoint for each (protocol, place), shared by the backends that name it."""
        key = protocol.name, self._locate(address, protocol)
        if key not in self.endpoints:
            self.endpoints[key] = Endpoint(address, self._connect(address, protocol, config.limits))
        return self.endpoints[key]

    def _upstream(self, name: str, config: BackendConfig) -> Upstream:
        backend = self.backends[name]
        protocol = backend.protocol
        _, traits = by_batch(protocol, config.batch)
        traits = replace(traits, trusted_metadata=traits.trusted_metadata or config.trust_metadata)
        handler = wrapped(backend, config.policies, self._policies)
        responses = wrapped_stream(backend.stream, config.policies, self._policies) if traits.streams else None
        signatures = Signatures(handler, traits, self._clock)
        backend.on_recovery(signatures.drop_all)
        window = backend.capacity + 1 if backend.capacity else ROWS_AT_ONCE
        return Upstream(name, protocol.name, traits, handler, signatures, window, responses, config.limits)

    def _router(
        self, configs: Sequence[RouteConfig], clients: Sequence[Protocol], own: Mapping[Operation, Destination]
    ) -> Router:
        routes = [self._route(config, clients) for config in configs]
        models = {name: BackendModels(each.handler, self._clock) for name, each in self._upstreams.items()}
        listed = [self._listed(config, clients, models) for config in configs]
        listing = Destination(Listing(listed, one_point(clients)))
        return Router(routes, {**own, Operation.MODELS: listing}, joined_versions(clients))

    def _passthrough(self, config: RouteConfig, whole: Config) -> Route:
        """A Route whose messages pass between both sides of the backend's protocol."""
        backend, policies = self.backends[config.backend], whole.backends[config.backend].policies
        form = backend.protocol.passthrough
        assert form is not None
        for endpoint in backend.endpoints:
            if endpoint.passthrough is None:
                limits = whole.backends[config.backend].limits
                endpoint.passthrough = Beside(endpoint, self._connect(endpoint.address, form, limits))
        stream = wrapped_stream(partial(backend.stream, passthrough=True), policies, self._policies)
        stream = wrapped_stream(stream, config.policies, self._policies)
        joins = backend.protocol.traits.joined_versions
        return Route(
            conditions(config.match), {backend.protocol.name: Destination(stream=stream)}, joins_versions=joins
        )

    def _route(self, config: RouteConfig, clients: Iterable[Protocol]) -> Route:
        upstream, settings = self._upstreams[config.backend], route_settings(config)
        bridges = {client.name: Bridge(settings, client, upstream) for client in _matched(config, clients)}

        def policed(handler: Handler, stream: StreamHandler) -> Destination:
            return Destination(
                wrapped(handler, config.policies, self._policies),
                settings.translate,
                stream=wrapped_stream(stream, config.policies, self._policies),
            )

        return route(conditions(config.match), bridges, policed, joins_versions=upstream.traits.joined_versions)

    def _listed(self, config: RouteConfig, clients: Iterable[Protocol], models: Mapping[str, BackendModels]) -> Listed:
        upstream = self._upstreams[config.backend]

        async def claims(model: str) -> frozenset[Operation]:
            return (await upstream.signatures.get((model, "", ""))).operations

        return Listed(
            conditions(config.match),
            frozenset(client.name for client in _matched(config, clients)),
            models[config.backend],
            config.rewrite.model,
            claims if upstream.traits.derivatives else None,
        )


def reference_router(models: Sequence[Model], client: Protocol, clock: Callable[[], float], info: ServerInfo) -> Router:
    """The Router of a reference server: one route for each model, over one protocol, and one for models that it does
    not have, whose refusal names those that it has."""
    handler = reference_handler(models, points=client.traits.points)
    stream = reference_stream_handler(models, points=client.traits.points)
    signatures = Signatures(handler, IN_PROCESS, clock)
    upstream = Upstream(REFERENCE, "python", IN_PROCESS, handler, signatures, ROWS_AT_ONCE, stream)
    bridge = Bridge(RouteSettings(), client, upstream)
    routes = [route(Conditions(model=model.name), {client.name: bridge}, _unpoliced) for model in models]
    routes.append(any_model(bridge, client))

    async def listed(request: Request) -> Answer:
        return await handler(request)

    # A model server of its own: nobody else could take it offline.
    own = own_answers(info, Readiness(lambda: True, {REFERENCE}), {})
    return Router(routes, {**own, Operation.MODELS: Destination(listed)}, joined_versions([client]))


def any_model(bridge: Bridge, client: Protocol) -> Route:
    """A Route that takes every model's requests, and companions as their operations."""
    return route(Conditions(), {client.name: bridge}, _unpoliced)


def _unpoliced(handler: Handler, stream: StreamHandler) -> Destination:
    return Destination(handler, stream=stream)


def route(
    when: Conditions,
    bridges: Mapping[str, Bridge],
    policed: Callable[[Handler, StreamHandler], Destination],
    *,
    joins_versions: bool = False,
) -> Route:
    """A Route to `bridges`, one for each client protocol, and to the companions of their models."""
    whole = {name: policed(bridge, bridge.stream) for name, bridge in bridges.items()}
    companions = {
        (name, operation): policed(companion, one_response(companion))
        for name, bridge in bridges.items()
        for operation in DERIVATIVES
        for companion in [bridge.companion(operation)]
    }
    return Route(when, whole, companions, joins_versions)


def own_answers(
    info: ServerInfo, readiness: Readiness, statistics: Mapping[str, Statistics]
) -> dict[Operation, Destination]:
    """What is asked of the gateway itself, and answered without waiting. `statistics` are by listener."""

    def told(request: Request) -> Answer:
        if request.listener not in statistics:
            text = f"listener {request.listener!r} keeps no statistics"
            raise unsupported(f"{text}; `metrics_page: true` on the listener would")
        return statistics[request.listener].series()

    answers: dict[Operation, Callable[[Request], Answer]] = {
        Operation.LIVE: lambda request: True,
        Operation.READY: readiness.of,
        Operation.ONLINE: readiness.online,
        Operation.OFFLINE: readiness.offline,
        Operation.SERVER_METADATA: lambda request: info,
        Operation.STATISTICS: told,
    }
    return {operation: Destination(local=answer) for operation, answer in answers.items()}


def joined_versions(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The protocols whose clients write a model and its version as one name."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.joined_versions)


def one_point(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The protocols whose clients know derivatives as operations, and need no companions in a list."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.derivatives)


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
    translate = config.translate
    settings = RouteSettings(
        model=config.rewrite.model,
        version=config.rewrite.version,
        signature=config.signature,
        cast=translate.cast,
        max_rows=translate.max_rows,
        stream=translate.stream,
        carry_config=translate.carry_config,
        operations=translate.companions,
        rename=Renames(
            tuple((pair.client, pair.backend) for pair in translate.rename.inputs),
            tuple((pair.client, pair.backend) for pair in translate.rename.outputs),
        ),
        constants=translate.constants,
        select=translate.select,
        order=translate.order,
        drop=frozenset(translate.drop),
        translate=translate.for_codecs,
    )
    return settings if translate.images is None else _with_images(settings, translate.images)


def _with_images(settings: RouteSettings, images: ImagesConfig) -> RouteSettings:
    from gateway.bridge.images import ImageInput, ImageOutput  # needs Pillow, which other routes do without

    return replace(
        settings,
        image_inputs={
            each.name: ImageInput(each.layout, each.channels, each.resize, each.scale, each.max_pixels)
            for each in images.inputs
        },
        image_outputs={
            each.name: ImageOutput(each.format, each.lossy, each.layout, each.channels) for each in images.outputs
        },
    )


def wrapped(handler: Handler, configs: Sequence[PolicyConfig], policies: Mapping[str, Policy]) -> Handler:
    """`handler` within its policies, the first one outermost."""
    for config in reversed(configs):
        handler = policies[config.name].wrap(handler, config.settings)
    return handler


def wrapped_stream(
    handler: StreamHandler, configs: Sequence[PolicyConfig], policies: Mapping[str, Policy]
) -> StreamHandler:
    """`handler` within its policies, the first one outermost."""
    for config in reversed(configs):
        handler = policies[config.name].wrap_stream(handler, config.settings)
    return handler


def one_response(handler: Handler) -> StreamHandler:
    """A StreamHandler that answers each request with the one response of `handler`."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        answer = await handler(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


def _matched(config: RouteConfig, clients: Iterable[Protocol]) -> list[Protocol]:
    return [client for client in clients if config.match.protocol in (None, client.name)]
