"""The composition root: makes a running gateway of a Config, binds its sockets, and drains and stops it."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version

from gateway import registry
from gateway.admin import register, status
from gateway.admin.health import HealthServer
from gateway.admin.host_check import HostCheck
from gateway.admin.server import AdminServer
from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.assembly import Assembly
from gateway.assembly.brief_errors import BriefErrors
from gateway.assembly.reference import REFERENCE, reference_router
from gateway.assembly.routes import any_model
from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.config import paths
from gateway.config.keys import Config, Ready, ReferenceConfig
from gateway.core import patterns
from gateway.core.address import Address
from gateway.core.exchange import answer
from gateway.core.protocol import (
    DEFAULT_LIMITS,
    Carrier,
    HttpForm,
    Limits,
    ListenerSettings,
    Protocol,
    StreamForm,
    Target,
    resolve_batch,
    traits_at_endpoints,
)
from gateway.core.streaming import answer_stream
from gateway.core.tasks import spawn
from gateway.core.transport import Connector, Exchanges, Handler, Listener, Select, always_ready
from gateway.core.types import Answer, Request, ServerInfo
from gateway.reference.handler import check
from gateway.reference.loading import find
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.router import Router
from gateway.transports import listener_connections, memory
from gateway.transports.shedding import Shedding

log = logging.getLogger(__name__)

INFO = ServerInfo("inference-gateway", version("inference-gateway"))


class BindError(Exception):
    """An address of the configuration cannot be bound."""


class Gateway:
    """A running gateway with one configuration. Call `start`, then `drain`; a Gateway cannot be started again."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ready = False
        self.listeners: dict[str, Listener] = {}
        self.references: list[Listener] = []
        self.ports: dict[str, AdminServer | HealthServer] = {}
        self._protocols = registry.protocols()
        clock = asyncio.get_running_loop().time
        self._assembly = Assembly(
            config, self._protocols, registry.policies(), _parse_address, connect, clock, INFO, lambda: self.ready
        )
        self._brief_errors = BriefErrors(config, self._assembly.found_addresses)
        self._memory_task: asyncio.Task[None] | None = None
        self._shedding: Shedding | None = None
        self._clock: Callable[[], float] = clock

    async def start(self) -> None:
        """Bind every address and accept connections.

        Raises:
            BindError: an address cannot be bound; the text names it and the reason. Nothing stays bound.
            ValueError: a reference model cannot be served.
        """
        try:
            await self._start()
        except BaseException:
            await self.drain(0)
            raise
        self.ready = True

    async def _start(self) -> None:
        config = self.config
        listener_connections.PROCESS_CONNECTIONS.fit(config.limits.connections)
        listener_connections.PROCESS_CONNECTIONS.clients.limit = config.limits.connections_per_client
        shed = config.limits.shed
        self._shedding = None if shed is None else Shedding(shed.lag, shed.memory)
        listener_connections.PROCESS_CONNECTIONS.shedding = self._shedding
        if self._shedding is not None:
            self._shedding.start()
        memory.PROCESS_MEMORY.limit = config.limits.memory or memory.default_limit()
        memory.PROCESS_MEMORY.per_client = config.limits.memory_per_client
        memory.set_allocator()
        self._memory_task = spawn(memory.give_back(memory.PROCESS_MEMORY))
        for reference in config.reference:
            listener = await serve_reference(reference, self._clock)
            self.references.append(listener)
            log.info("reference %r serves %s at %s", reference.protocol, ", ".join(reference.models), listener.address)
        await self._assembly.discovery.start()
        for prober in self._assembly.probers:
            prober.start()
        for each in config.listeners:
            settings = ListenerSettings(each.name, each.limits, each.model)
            rows = paths.rows(each, config.routes, config.backends, self._protocols)
            if each.errors.detail == "brief":
                rows = tuple((self._brief_errors.protocol(protocol, each.name), prefix) for protocol, prefix in rows)
            select, passthrough = self._assembly.router.select, self._assembly.passthrough.select
            handlers = exchanges(settings, select, passthrough, partial(self._is_ready, config.ready))
            statistics = self._assembly.statistics.get(each.name)
            with binding(f"listener {each.name!r}", each.bind):
                listener = self.listeners[each.name] = await listen(
                    settings, rows, statistics.record_exchanges(handlers) if statistics else handlers, each.bind
                )
            log.info("listener %r accepts %s at %s", each.name, ", ".join(each.protocols), listener.address)
        if config.health:
            ready = None if config.health.ready == "none" else partial(self._is_ready, config.health.ready)
            await self._start_port("health", HealthServer(lambda: self.ready, ready), config.health.bind)
        if config.admin:
            application = status.application(self.status)
            if self._assembly.discovery.registrations:
                register.add_routes(application, self._assembly.discovery.registrations)
            await self._start_port("admin", AdminServer(HostCheck(application)), config.admin.bind)

    async def _start_port(self, name: str, server: AdminServer | HealthServer, address: Address) -> None:
        with binding(name, address):
            await server.start(address)
        self.ports[name] = server
        log.info("%s answers at %s", name, server.address)

    def announce_end(self) -> None:
        """Stop being ready, and announce to clients that their connections will close. Requests are still answered."""
        self.ready = False
        for listener in (*self.listeners.values(), *self.references):
            listener.announce_end()

    async def drain(self, seconds: float) -> int:
        """Stop being ready, accept no more connections, wait at most `seconds` for requests in flight, then close
        everything.

        Returns the number of requests that were cancelled. It may itself be cancelled and called again with less time.
        """
        self.announce_end()
        self._assembly.discovery.stop()
        ends_at = self._clock() + seconds
        given_up = await asyncio.gather(*(listener.drain(seconds) for listener in self.listeners.values()))
        for prober in self._assembly.probers:
            await prober.stop()
        for endpoint in list(self._assembly.endpoints.values()):
            await endpoint.close()
        for _, _, state in self._assembly.policy_states:
            await state.close()
        # The reference servers come last, since requests of the listeners above may have been in flight to them.
        left = max(0.0, ends_at - self._clock())
        given_up += await asyncio.gather(*(reference.drain(left) for reference in self.references))
        for server in self.ports.values():
            await server.stop()
        if self._memory_task is not None:
            self._memory_task.cancel()
        if self._shedding is not None:
            self._shedding.stop()
        return sum(given_up)

    async def _is_ready(self, rule: Ready) -> bool:
        """Whether the gateway is ready by `rule`, the setting `ready` of the health port or of the configuration (which
        gRPC's health service uses)."""
        return self.ready and not await self._assembly.readiness.why_not(rule)

    def status(self) -> status.GatewayStatus:
        """The current state, for the status API."""
        return status.GatewayStatus(
            version=INFO.version,
            ready=self.ready,
            listeners={
                each.name: status.ListenerStatus(
                    address=listener.address,
                    protocols=list(each.protocols),
                    refused_connections=listener.refused_connections,
                )
                for each in self.config.listeners
                if (listener := self.listeners.get(each.name)) is not None
            },
            shedding=None
            if self._shedding is None
            else status.SheddingStatus(since=self._shedding.since, refused=self._shedding.refused),
            backends={name: _backend_status(backend) for name, backend in self._assembly.backends.items()},
            policies=[
                status.PolicyStatus(place=place, policy=name, state=dict(state.status()))
                for place, name, state in self._assembly.policy_states
            ],
        )


def _backend_status(backend: Backend) -> status.BackendStatus:
    return status.BackendStatus(
        protocol=backend.protocol.name,
        max_in_flight=backend.max_in_flight,
        waiting=len(backend.queue),
        queue=_queue_status(backend) if backend.max_in_flight else None,
        endpoints=[
            status.EndpointStatus(
                address=each.address,
                in_flight=each.in_flight,
                state=each.health.state.value,
                last_error=status.LastError(text=last.text, at=last.at) if last else None,
                ejected_until=each.health.ejected_until,
            )
            for each in backend.endpoints
            for last in [each.health.last]
        ],
    )


def _queue_status(backend: Backend) -> status.QueueStatus:
    is_free = any(each.in_flight < backend.max_in_flight for each in backend.endpoints)
    return status.QueueStatus(
        length=backend.queue_settings.length,
        timeout=backend.queue_settings.timeout,
        estimated_wait=0.0 if is_free else backend.seconds_until(len(backend.queue) + 1),
        clients=[
            status.ClientWaiting(client=client, waiting=waiting)
            for client, waiting in backend.queue.longest(status.MOST_CLIENTS)
        ],
    )


async def serve_reference(config: ReferenceConfig, clock: Callable[[], float]) -> Listener:
    """Serve reference models over one protocol.

    Raises:
        BindError: the address cannot be bound.
        ValueError: a model cannot be loaded, or cannot be served over this protocol.
    """
    protocol = registry.protocols()[config.protocol]
    models = [find(name) for name in config.models]
    check(models, protocol)
    statistics = ListenerStatistics(clock) if protocol.http.pages else None
    router = reference_router(models, protocol, clock, INFO, statistics)
    # A request that names no model is for the only model, or for the first one if the protocol lets clients omit the
    # name.
    has_default = len(models) == 1 or protocol.traits.models.may_be_named
    settings = ListenerSettings(REFERENCE, model=models[0].name if has_default else "")
    # At `/` a single model answers; with several, the reply there lists their paths.
    rows = patterns.rows([(protocol, "")], models[0].name, (), pages=statistics is not None)
    handlers = exchanges(settings, router.select, router.select)
    with binding(f"reference {config.protocol!r}", config.bind):
        return await listen(
            settings, rows, statistics.record_exchanges(handlers) if statistics else handlers, config.bind
        )


def exchanges(
    settings: ListenerSettings,
    select: Select,
    passthrough: Select,
    ready: Callable[[], Awaitable[bool]] = always_ready,
) -> Exchanges:
    """The Exchanges of a Listener. `select` finds the Destination of decoded requests, and `passthrough` that of
    messages that are forwarded unchanged."""
    return Exchanges(
        lambda message, protocol: answer(message, protocol, settings, select),
        lambda messages, protocol: answer_stream(
            messages, protocol, settings, passthrough if protocol.http.is_passthrough else select
        ),
        lambda error, protocol, message: protocol.encode_error(error, None, message),
        ready,
    )


async def listen(
    settings: ListenerSettings, rows: Sequence[tuple[Protocol, str]], exchanges: Exchanges, address: Address
) -> Listener:
    """Start a Listener for protocols of one transport. `rows` has each protocol with the path prefix it is served
    below."""
    transport = registry.transport(rows[0][0].transport)
    listener: Listener = transport.Listener(settings, rows, exchanges)
    await listener.start(address)
    return listener


@contextmanager
def binding(what: str, address: Address) -> Iterator[None]:
    """Turn an OSError into a BindError that names `what`, the place in the configuration, and `address`."""
    try:
        yield
    except OSError as error:
        # The event loop's own text repeats the address. Error numbers of getaddrinfo are negative and unknown to
        # strerror.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror
        raise BindError(f"{what}: cannot bind {address}: {reason or error}") from error


def _parse_address(address: str, protocol: Protocol) -> Hashable:
    parsed: Hashable = registry.transport(protocol.transport).parse_address(address)
    return parsed


def connect(address: str, protocol: Protocol, limits: Limits, ip: str = "") -> Connector:
    """A Connector to the server at `address`, or if `ip` is not empty at this one of its host's addresses. Raises
    ValueError if `address` is not valid for the protocol's transport."""
    transport = registry.transport(protocol.transport)
    connector: Connector = transport.Connector(
        address,
        connection_per_call=protocol.traits.servers.connection_per_call,
        limits=limits,
        ip=ip,
        **_framing(protocol.carrier),
    )
    return connector


def _framing(carrier: Carrier) -> dict[str, object]:
    """The Connector's arguments that tell where a message ends. Only byte streams need them."""
    match carrier:
        case StreamForm():
            return {"framing": carrier.framing}
        case HttpForm() if carrier.stream_framing is not None:
            return {"stream_framing": carrier.stream_framing}
    return {}


@asynccontextmanager
async def one_backend(protocol: Protocol, address: str, client: Protocol) -> AsyncIterator[Handler]:
    """A Handler that converts requests of the protocol `client` and sends them to the server at `address`. The
    companion models (`M.gradient`) stand for the derivatives of a server that has them.

    Raises:
        ValueError: `address` is not a valid address for the protocol's transport.
    """
    connector = connect(address, protocol, DEFAULT_LIMITS)
    batch, traits = resolve_batch(protocol, "")
    traits = traits_at_endpoints(traits, [address])
    target = Target("server", batch=batch)
    backend = Backend(target, protocol, [Endpoint(address, connector)], traits.servers.max_in_flight)
    signatures = SignatureCache(backend, traits, asyncio.get_running_loop().time)
    upstream = BackendSide("server", protocol.name, traits, backend, signatures, backend.capacity + 1)
    try:
        router = Router([any_model(Bridge(RouteSettings(), client, upstream), client)], {})

        async def handle(request: Request) -> Answer:
            handler = router.select(request).handler
            assert handler is not None
            return await handler(request)

        yield handle
    finally:
        await connector.close()
