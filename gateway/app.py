"""The composition root: makes a running gateway of a Config, binds its sockets, and drains and stops it."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

from gateway import registry
from gateway.admin import register, status
from gateway.admin.access import AccessCheck
from gateway.admin.health import HealthServer
from gateway.admin.metrics import Metrics
from gateway.admin.server import AdminServer
from gateway.admin.statistics import ListenerStatistics
from gateway.assembly.access import AccessLogs
from gateway.assembly.assembly import Assembly, Connect
from gateway.assembly.brief_errors import BriefErrors
from gateway.assembly.certificates import Certificates, alpn, port_alpn
from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.reference import REFERENCE, reference_router
from gateway.assembly.routes import any_model
from gateway.assembly.serving import Serving
from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.config import paths
from gateway.config.changes import applicable, changes, not_applied
from gateway.config.effective import effective
from gateway.config.keys import (
    AdminConfig,
    BackendTlsConfig,
    Config,
    HealthConfig,
    ListenerConfig,
    ListenerTlsConfig,
    ReferenceConfig,
    RequestIdsConfig,
    ShedConfig,
    TracingConfig,
)
from gateway.config.keys import Ready as ReadyRule
from gateway.core import patterns
from gateway.core.address import Address
from gateway.core.certificates import CertificateError
from gateway.core.exchange import answer
from gateway.core.principal import Permission
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
from gateway.core.record import Observer, Telling
from gateway.core.streaming import answer_stream
from gateway.core.tasks import spawn
from gateway.core.transport import Connector, Exchanges, Handler, Listener, Ready, Select
from gateway.core.types import Answer, Request, ServerInfo
from gateway.discovery.register import Registrations
from gateway.explain import explaining
from gateway.observing.counters import Counters
from gateway.observing.recording import OnStart, Recording
from gateway.observing.tracing import Tracing
from gateway.policies.mirror import Mirror
from gateway.reference.handler import check
from gateway.reference.loading import find
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.router import Router
from gateway.transports import listener_connections, memory
from gateway.transports.shedding import Shedding
from gateway.transports.tls import ClientTls

log = logging.getLogger(__name__)

INFO = ServerInfo("inference-gateway", version("inference-gateway"))

PORTS = ("health", "admin")
"""The ports beside the listeners, named as their keys."""

SECONDS_FOR_LAST_SPANS = 5.0
"""How long the collector has for the spans that are left when tracing ends."""

NOT_RUNNING = "the gateway has not started yet, or is stopping"


class BindError(Exception):
    """An address of the configuration cannot be bound."""


class ReloadError(Exception):
    """A configuration that is valid, but that a running gateway cannot change to."""


class Gateway:
    """A running gateway. Call `start`, then `reload` any number of times, then `drain`; a Gateway cannot be started
    again.

    `reload_file` is what `POST /reload` of the status API calls; without it there is no such call.
    """

    def __init__(self, config: Config, reload_file: status.Reload | None = None) -> None:
        self.config = config
        self.ready = False
        self.listeners: dict[str, Listener] = {}
        self.references: list[Listener] = []
        self.ports: dict[str, AdminServer | HealthServer] = {}
        self.loaded_at = datetime.now(UTC)
        self.reloads = 0
        self.last_reload_error: status.LoadError | None = None
        """Why the last attempt to read the configuration again failed; None if it did not."""
        self.observers: list[Observer] = []
        """Those that are told of each request when it has ended. A listener uses those that are here when it starts, or
        is renewed by a reload."""
        self._counters = Counters()
        """What the status API tells of requests."""
        self.tracing: Tracing | None = None
        self._tracing: TracingConfig | None = None
        """The settings of `tracing`."""
        self._access_logs = AccessLogs()
        self._reload_file = reload_file
        self._protocols = registry.protocols()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._endpoints = SharedEndpoints()
        self._certificates = Certificates()
        self._certificates.prepare(config)
        self._port_tls: dict[str, ListenerTlsConfig | None] = {}
        """TLS of the ports beside the listeners, for the connections that they accept next."""
        self._registrations: dict[str, Registrations] = {}
        """Where servers register now, by the name of the backend."""
        self._serving: dict[str, Serving] = {}
        self._assembly = self._assemble(config)
        self._reloading = asyncio.Lock()
        self._leaving: set[Listener] = set()
        """Removed listeners with open connections."""
        self._retirements: set[asyncio.Task[None]] = set()
        self._memory_task: asyncio.Task[None] | None = None
        self._certificates_task: asyncio.Task[None] | None = None
        self._shedding: Shedding | None = None
        self._shed: ShedConfig | None = None
        """The settings of `_shedding`."""
        self._metrics = Metrics(self)

    def _assemble(self, config: Config, previous: Assembly | None = None) -> Assembly:
        return Assembly(
            config, self._protocols, registry.policies(), _parse_address, connect, self._clock, INFO,
            lambda: self.ready, self._endpoints, previous, self._connect_over_tls,
        )  # fmt: skip

    def _connect_over_tls(self, tls: BackendTlsConfig) -> Connect:
        def connect_over_tls(address: str, protocol: Protocol, limits: Limits, ip: str = "") -> Connector:
            return connect(address, protocol, limits, ip, self._certificates.client(tls, alpn(protocol)))

        return connect_over_tls

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
        self._set_process_limits(config)
        self._open_access_log(config, ValueError)
        memory.set_allocator()
        self._trace(config.tracing)
        self._memory_task = spawn(memory.give_back(memory.PROCESS_MEMORY))
        self._metrics.renew(config)
        self._metrics.join(self.observers, config)
        for reference in config.reference:
            listener = await serve_reference(reference, self._clock)
            self.references.append(listener)
            log.info("reference %r serves %s at %s", reference.protocol, ", ".join(reference.models), listener.address)
        self._certificates_task = spawn(self._certificates.watch(lambda: self.config.reload))
        await self._assembly.discovery.start()
        self._take_over(self._assembly)
        self._certificates.take_over(config)
        all_rows = self._rows(config)
        for each in config.listeners:
            self.listeners[each.name], self._serving[each.name] = await self._listen(
                each, all_rows[each.name], self._assembly
            )
        for name in PORTS:
            if getattr(config, name) is not None:
                self.ports[name] = await self._start_port(name, config, self._assembly)

    def _take_over(self, assembly: Assembly) -> None:
        assembly.start()
        self._registrations.clear()
        self._registrations.update(assembly.discovery.registrations)

    def _set_process_limits(self, config: Config) -> None:
        limits, connections = config.limits, listener_connections.PROCESS_CONNECTIONS
        connections.fit(limits.connections)
        connections.clients.limit = limits.connections_per_client
        memory.PROCESS_MEMORY.limit = limits.memory or memory.default_limit()
        memory.PROCESS_MEMORY.per_client = limits.memory_per_client
        if limits.shed != self._shed:  # else it goes on, also while the gateway is overloaded
            self._shed = limits.shed
            if self._shedding is not None:
                self._shedding.stop()
            self._shedding = None if limits.shed is None else Shedding(limits.shed.lag, limits.shed.memory)
            if self._shedding is not None:
                self._shedding.start()
        connections.shedding = self._shedding

    async def _listen(
        self, config: ListenerConfig, rows: Sequence[tuple[Protocol, str]], assembly: Assembly
    ) -> tuple[Listener, Serving]:
        settings = self._settings(config)
        serving = Serving(settings, assembly, explains=config.allow_explain)
        with binding(f"listener {config.name!r}", config.bind):
            listener = await listen(settings, rows, self._exchanges(config, serving, assembly), config.bind)
        log.info("listener %r accepts %s at %s", config.name, ", ".join(config.protocols), listener.address)
        return listener, serving

    def _settings(self, config: ListenerConfig) -> ListenerSettings:
        tls = None
        if config.tls is not None:
            tls = self._certificates.server(config.tls, alpn(self._protocols[config.protocols[0]]))
        return ListenerSettings(config.name, config.limits, config.model, tls)

    def _port_context(self, name: str) -> ssl.SSLContext | None:
        tls = self._port_tls[name]
        return None if tls is None else self._certificates.server(tls, port_alpn())()

    def _rows(self, config: Config) -> dict[str, tuple[tuple[Protocol, str], ...]]:
        """The protocols of each listener, each with its path prefix."""
        found, brief_errors = {}, BriefErrors(config, self._endpoints.addresses)
        for each in config.listeners:
            rows = paths.rows(each, config.routes, config.backends, self._protocols)
            if each.errors.detail == "brief":
                rows = tuple((brief_errors.protocol(protocol, each.name), prefix) for protocol, prefix in rows)
            found[each.name] = rows
        return found

    def _exchanges(self, config: ListenerConfig, serving: Serving, assembly: Assembly) -> Exchanges:
        handlers = serving.exchanges(self._is_ready_for_clients, self._recording(config, assembly.config))
        statistics = assembly.statistics.get(config.name)
        return statistics.record_exchanges(handlers) if statistics else handlers

    def _recording(self, listener: ListenerConfig, config: Config) -> Recording | None:
        """What makes the records of a listener's requests; None if nobody wants them."""
        access = self._access_logs.get(config.log)
        observers = self.observers if access is None else [*self.observers, access.observe]
        if config.admin is not None:
            observers = [*observers, self._counters.observe]
        starts: list[OnStart] = [explaining.on_start(_needed_to_explain(listener))] if listener.allow_explain else []
        if self.tracing is not None:
            starts.append(self.tracing.start_record)
        if not observers and not starts and config.request_ids is None and not listener.reply_headers:
            return None
        ids = config.request_ids or RequestIdsConfig()
        telling = Telling(ids.reply, listener.reply_headers, ids.forward)
        return Recording(listener.name, observers, telling, accepts_ids=ids.accept, starts=starts)

    def _open_access_log(self, config: Config, refused: type[Exception]) -> None:
        """Open the access log before requests need it. Raises `refused` if its file cannot be opened."""
        try:
            self._access_logs.get(config.log)
        except OSError as error:
            raise refused(f"log.access.path {config.log.access.path!r} cannot be opened: {error.strerror}") from None

    def reopen_logs(self) -> None:
        """Open the file of the access log again, which a program that rotates logs may have renamed."""
        self._access_logs.reopen()

    def _trace(self, config: TracingConfig | None) -> Tracing | None:
        """What traces requests with these settings; begun, if they are new. Returns the one before, if it has to
        end."""
        if config == self._tracing:
            return None
        before, self._tracing, self.tracing = self.tracing, config, None
        if config is not None:
            from gateway.observing.otlp import OtlpExporter  # needs the extra `tracing`

            headers = {name: each.get_secret_value() for name, each in config.headers.items()}
            export = OtlpExporter(config.otlp, headers, config.timeout, config.service, INFO.version)
            self.tracing = Tracing(export, config.sample, config.interval)
            self.tracing.start()
        return before

    async def _start_port(self, name: str, config: Config, assembly: Assembly) -> AdminServer | HealthServer:
        server: AdminServer | HealthServer
        self._port_tls[name] = _tls(config, name)
        tls = partial(self._port_context, name)
        if name == "health":
            assert config.health is not None
            ready, page = self._backends_ready(config), self._metrics.page(config)
            bind, server = config.health.bind, HealthServer(lambda: self.ready, ready, metrics=page, tls=tls)
        else:
            assert config.admin is not None
            application = status.application(self.status, self._reload_file, lambda: effective(self.config))
            register.add_routes(application, self._registrations)
            check = AccessCheck(application, assembly.asked_by_admin)
            bind, server = config.admin.bind, AdminServer(check, check, tls)
        with binding(name, bind):
            await server.start(bind)
        log.info("%s answers at %s", name, server.address)
        return server

    def _backends_ready(self, config: Config) -> Ready | None:
        """What `/readyz` asks of the backends; None if it asks nothing."""
        rule = "none" if config.health is None else config.health.ready
        return None if rule == "none" else partial(self._is_ready, rule)

    async def reload(self, config: Config) -> tuple[str, ...]:
        """Change to `config`, which has been checked. New addresses are bound first; then, in one step, every request
        that begins is answered by `config`. Requests in flight end as they began. Listeners and endpoints that stay
        keep their connections; those that go are closed after their last request (listeners within `drain.timeout`).

        Returns what changed, one text for each thing; empty if nothing did.

        Raises:
            BindError: an address cannot be bound. Nothing has changed.
            ReloadError: the change needs a restart, or the gateway is stopping. Nothing has changed.
        """
        async with self._reloading:
            if not self.ready:
                raise ReloadError(NOT_RUNNING)
            await asyncio.to_thread(self._certificates.read_changed)
            new = applicable(self.config, config)
            found = changes(self.config, new)
            if found or new != self.config:
                await self._change_to(new)
                self.reloads += 1
            self.loaded_at = datetime.now(UTC)
            return (*found, *not_applied(self.config, config))

    async def _change_to(self, config: Config) -> None:
        all_rows, staying = self._rows(config), self._staying(config)
        for name, before in staying.items():
            if why := self.listeners[before].why_not_renewed(all_rows[name]):
                raise ReloadError(f"listener {name!r}: {why} at the same address while the gateway runs")
        self._open_access_log(config, ReloadError)
        try:
            self._certificates.prepare(config)
        except CertificateError as error:
            raise ReloadError(f"tls.{error.key}: {error}") from error
        assembly = self._assemble(config, self._assembly)
        self._metrics.join(self.observers, config)
        started: dict[str, tuple[Listener, Serving]] = {}
        ports: dict[str, AdminServer | HealthServer] = {}
        try:
            assembly.discovery.inherit(self._assembly.discovery)
            await assembly.discovery.start()
            for each in config.listeners:
                if each.name not in staying:
                    started[each.name] = await self._listen(each, all_rows[each.name], assembly)
            for name in PORTS:
                if getattr(config, name) is not None and _bind(self.config, name) != _bind(config, name):
                    ports[name] = await self._start_port(name, config, assembly)
            if not self.ready:
                raise ReloadError(NOT_RUNNING)
        except BaseException:
            await asyncio.gather(
                *(listener.drain(0) for listener, _ in started.values()), *(port.stop() for port in ports.values())
            )
            await assembly.close()
            await assembly.close_unused_connectors()
            raise
        # From here to the end of `_switch` nothing waits: no request can begin in between.
        await self._retire(*self._switch(config, assembly, staying, started, ports, all_rows))

    def _switch(
        self,
        config: Config,
        assembly: Assembly,
        staying: Mapping[str, str],
        started: Mapping[str, tuple[Listener, Serving]],
        ports: Mapping[str, AdminServer | HealthServer],
        all_rows: Mapping[str, Sequence[tuple[Protocol, str]]],
    ) -> tuple[Assembly, list[Listener], list[AdminServer | HealthServer], list[asyncio.Task[None]]]:
        """Answer every request that begins from now on by `assembly`. Returns what has to end: the Assembly before,
        listeners and ports that are gone, and the tasks of requests in flight."""
        old, listeners, serving = self._assembly, self.listeners, self._serving
        gone_ports = [port for name, port in self.ports.items() if name in ports or _bind(config, name) is None]
        self.ports = {name: port for name, port in self.ports.items() if port not in gone_ports} | dict(ports)
        self.config, self._assembly = config, assembly
        self._port_tls = {name: _tls(config, name) for name in PORTS}
        self.listeners, self._serving = {}, {}
        self._take_over(assembly)
        self._certificates.take_over(config)
        self._set_process_limits(config)
        self._metrics.renew(config)
        is_traced_anew = config.tracing != self._tracing
        before = self._trace(config.tracing)
        if before is not None:
            spawn(before.stop(SECONDS_FOR_LAST_SPANS))
        running: list[asyncio.Task[None]] = []
        for each in config.listeners:
            if each.name in started:
                self.listeners[each.name], self._serving[each.name] = started[each.name]
                if not is_traced_anew:
                    continue
                listener, serves = started[each.name]
            else:
                listener = self.listeners[each.name] = listeners[staying[each.name]]
                serves = self._serving[each.name] = serving[staying[each.name]]
            settings = self._settings(each)
            serves.renew(settings, assembly, explains=each.allow_explain)
            running += listener.renew(settings, all_rows[each.name], self._exchanges(each, serves, assembly))
        health = self.ports.get("health")
        if isinstance(health, HealthServer):
            health.backends_ready, health.metrics = self._backends_ready(config), self._metrics.page(config)
        admin = self.ports.get("admin")
        if isinstance(admin, AdminServer) and admin.access is not None:
            admin.access.asked = assembly.asked_by_admin
        kept = set(map(id, self.listeners.values()))
        return old, [each for each in listeners.values() if id(each) not in kept], gone_ports, running

    async def _retire(
        self,
        old: Assembly,
        listeners: Sequence[Listener],
        ports: Sequence[AdminServer | HealthServer],
        running: Sequence["asyncio.Task[None]"],
    ) -> None:
        """Free the addresses of what is gone; let the requests in flight end in the background."""
        self._leaving.update(listeners)
        try:
            for listener in listeners:
                await listener.stop_accepting()
        finally:
            ending = self._end(old, self._assembly, listeners, ports, running, tuple(self._retirements))
            task = spawn(ending)
            self._retirements.add(task)
            task.add_done_callback(self._retirements.discard)

    async def _end(
        self,
        old: Assembly,
        new: Assembly,
        listeners: Sequence[Listener],
        ports: Sequence[AdminServer | HealthServer],
        running: Sequence["asyncio.Task[None]"],
        earlier: Sequence["asyncio.Task[None]"],
    ) -> None:
        try:
            for port in ports:
                await port.stop()
            given_up = sum(await asyncio.gather(*(each.drain(self.config.drain.timeout) for each in listeners)))
            self._leaving.difference_update(listeners)
            if given_up:
                log.warning("removed listeners are closed; requests given up: %d", given_up)
            if running:
                await asyncio.wait(running)
            await old.streams.all_ended()
            await old.close()
            await self._access_logs.close(kept=self.config.log)
            if earlier:  # their requests may use the Connectors that this reload replaced
                await asyncio.wait(earlier)
        finally:
            await new.close_unused_connectors()

    def _staying(self, config: Config) -> dict[str, str]:
        """The listeners that keep their sockets: each new name with the name before. A listener at the address of
        another one that is gone is that one with another name.

        Raises:
            ReloadError: one has the address of another transport's listener.
        """
        places = {each.name: _place(each) for each in self.config.listeners}
        staying = {each.name: each.name for each in config.listeners if places.get(each.name) == _place(each)}
        for each in config.listeners:
            if each.name in staying or not (each.bind.port or each.bind.path):
                continue
            taken = staying.values()
            before = next((name for name, at in places.items() if at == _place(each) and name not in taken), None)
            if before is not None:
                staying[each.name] = before
        transports = {each.name: self._protocols[each.protocols[0]].transport for each in self.config.listeners}
        for name, before in staying.items():
            protocol = next(each.protocols[0] for each in config.listeners if each.name == name)
            wanted = self._protocols[protocol].transport
            if wanted != transports[before]:
                text = f"its transport cannot change from {transports[before]} to {wanted}"
                raise ReloadError(f"listener {name!r}: {text} at the same address while the gateway runs")
        return staying

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
        ends_at = self._clock() + seconds
        self._assembly.stop()
        given_up = await asyncio.gather(
            *(listener.drain(seconds) for listener in (*self.listeners.values(), *self._leaving))
        )
        for task in self._retirements:
            task.cancel()
        if self._retirements:
            await asyncio.wait(self._retirements)
        await self._assembly.end(max(0.0, ends_at - self._clock()))
        await self._endpoints.close()
        # The reference servers come last, since requests of the listeners above may have been in flight to them.
        left = max(0.0, ends_at - self._clock())
        given_up += await asyncio.gather(*(reference.drain(left) for reference in self.references))
        for server in self.ports.values():
            await server.stop()
        if self.tracing is not None:
            await self.tracing.stop(min(SECONDS_FOR_LAST_SPANS, max(ends_at - self._clock(), 0.5)))
            self.tracing = None
        for background in (self._memory_task, self._certificates_task):
            if background is not None:
                background.cancel()
        if self._shedding is not None:
            self._shedding.stop()
        self._metrics.stop()
        await self._access_logs.close()
        return sum(given_up)

    async def _is_ready_for_clients(self) -> bool:
        return await self._is_ready(self.config.ready)

    async def _is_ready(self, rule: ReadyRule) -> bool:
        """Whether the gateway is ready by `rule`, the setting `ready` of the health port or of the configuration (which
        gRPC's health service uses)."""
        return self.ready and not await self._assembly.readiness.why_not(rule)

    @property
    def version(self) -> str:
        """The gateway's version."""
        return INFO.version

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends of the configuration in use."""
        return self._assembly.backends

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The policies `mirror` of the configuration in use."""
        return self._assembly.mirrors

    @property
    def shedding(self) -> Shedding | None:
        """What refuses work while the gateway is overloaded, if anything does."""
        return self._shedding

    @property
    def has_reload_failed(self) -> bool:
        """Whether the last attempt to read the configuration again failed."""
        return self.last_reload_error is not None

    def status(self) -> status.GatewayStatus:
        """The current state, for the status API."""
        return status.GatewayStatus(
            version=INFO.version,
            ready=self.ready,
            configuration=status.ConfigurationStatus(
                loaded_at=self.loaded_at, reloads=self.reloads, last_error=self.last_reload_error
            ),
            listeners={
                each.name: status.ListenerStatus(
                    address=listener.address,
                    protocols=list(each.protocols),
                    requests=dict(self._counters.of_listener(each.name)),
                    refused_connections=listener.refused_connections,
                )
                for each in self.config.listeners
                if (listener := self.listeners.get(each.name)) is not None
            },
            shedding=None
            if self._shedding is None
            else status.SheddingStatus(since=self._shedding.since, refused=self._shedding.refused),
            backends={
                name: _backend_status(backend, self._counters.of_backend(name))
                for name, backend in self._assembly.backends.items()
            },
            policies=[
                status.PolicyStatus(place=place, policy=name, state=dict(state.status()))
                for place, name, state in self._assembly.policy_states
            ],
            last_errors=[
                status.RequestErrorStatus(
                    at=each.at,
                    request_id=each.id,
                    listener=each.listener,
                    operation=each.operation,
                    model=each.model,
                    route=each.route,
                    backend=each.backend,
                    endpoint=each.endpoint,
                    status=each.status,
                    reason=each.reason,
                )
                for each in self._counters.last_errors()
            ],
            tracing=None
            if self.tracing is None
            else status.TracingStatus(sent=self.tracing.sent, dropped=self.tracing.dropped),
            certificates=self._certificates.status(),
        )


def _place(config: ListenerConfig) -> tuple[str, int, str]:
    return config.bind.host, config.bind.port, config.bind.path


def _bind(config: Config, port: str) -> Address | None:
    """The address of the health port or the status API; None if it is off."""
    found: HealthConfig | AdminConfig | None = getattr(config, port)
    return None if found is None else found.bind


def _needed_to_explain(listener: ListenerConfig) -> tuple[Permission, ...]:
    """The permissions that clients need to see explanations: on listeners that ask for credentials, and on those whose
    errors do not name backends either."""
    needed: tuple[Permission, ...] = () if listener.auth is None else ("explain",)
    return (*needed, "details") if listener.errors.detail == "brief" else needed


def _tls(config: Config, port: str) -> ListenerTlsConfig | None:
    found: HealthConfig | AdminConfig | None = getattr(config, port)
    return None if found is None else found.tls


def _backend_status(backend: Backend, requests: Mapping[str, int]) -> status.BackendStatus:
    return status.BackendStatus(
        protocol=backend.protocol.name,
        max_in_flight=backend.max_in_flight,
        waiting=len(backend.queue),
        requests=dict(requests),
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
    handlers = exchanges(settings, router.select)
    with binding(f"reference {config.protocol!r}", config.bind):
        return await listen(
            settings, rows, statistics.record_exchanges(handlers) if statistics else handlers, config.bind
        )


def exchanges(settings: ListenerSettings, select: Select) -> Exchanges:
    """The Exchanges of a Listener whose requests always go to the Destinations that `select` finds."""
    return Exchanges(
        lambda message, protocol: answer(message, protocol, settings, select),
        lambda messages, protocol: answer_stream(messages, protocol, settings, select),
        lambda error, protocol, message: protocol.encode_error(error, None, message),
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


def connect(address: str, protocol: Protocol, limits: Limits, ip: str = "", tls: ClientTls | None = None) -> Connector:
    """A Connector to the server at `address`, or if `ip` is not empty at this one of its host's addresses. Raises
    ValueError if `address` is not valid for the protocol's transport."""
    transport = registry.transport(protocol.transport)
    connector: Connector = transport.Connector(
        address,
        connection_per_call=protocol.traits.servers.connection_per_call,
        limits=limits,
        ip=ip,
        tls=tls,
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
