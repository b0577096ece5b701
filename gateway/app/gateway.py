"""A running gateway: starts what a Config says, changes to another one while it runs, drains and stops."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from gateway import registry
from gateway.admin import register, status
from gateway.admin.access import AccessCheck
from gateway.admin.caches import add_clearing
from gateway.admin.console.api import FindWarnings, add_api
from gateway.admin.console.page import add_page
from gateway.admin.health import HealthServer
from gateway.admin.metrics import Metrics
from gateway.admin.openapi.admin import describe_errors
from gateway.admin.openapi.api import add_api as add_documents
from gateway.admin.openapi.page import add_page as add_documents_page
from gateway.admin.scaler.server import ScalerServer
from gateway.admin.server import AdminServer, gathering
from gateway.app.observing import Observing
from gateway.app.process_limits import ProcessLimits
from gateway.app.replacing import PortServer, ReloadError, Replaced, Replacements, staying
from gateway.app.serving import Serving, Tap
from gateway.assembly.assembly import Assembly
from gateway.assembly.brief_errors import BriefErrors
from gateway.assembly.certificates import Certificates, alpn, port_alpn
from gateway.assembly.connecting import connect, parse_address
from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.environment import Connect, Connections, Environment, Host
from gateway.assembly.guard import Guard
from gateway.assembly.in_flight import RequestsInFlight
from gateway.assembly.listening import binding, listen
from gateway.assembly.part import WHOLE, GatewayPart
from gateway.assembly.reference import serve_reference
from gateway.assembly.server_info import INFO
from gateway.assembly.servers import Fleets
from gateway.bridge.backend import BackendSide
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
    ScalerConfig,
)
from gateway.config.keys import Ready as ReadyRule
from gateway.config.models_apart import with_models_apart
from gateway.core.address import Address
from gateway.core.certificates import CertificateError
from gateway.core.garbage import small_collections
from gateway.core.protocol import Limits, ListenerSettings, Protocol
from gateway.core.tasks import between_requests, spawn
from gateway.core.transport import Connector, Exchanges, Listener, Ready, Select
from gateway.discovery.register import Registrations
from gateway.observing.counters import Counters
from gateway.observing.tracing import TraceCounts
from gateway.policies.mirror import Mirror
from gateway.routing.backend import Backend
from gateway.transports import memory
from gateway.transports.shedding import Shedding

log = logging.getLogger("gateway.app")

PORTS = ("health", "admin", "scaler")
"""The ports beside the listeners, named as their keys."""
PortConfig: TypeAlias = HealthConfig | AdminConfig | ScalerConfig | None

NOT_RUNNING = "the gateway has not started yet, or is stopping"


class Gateway:
    """A running gateway. Call `start`, then `reload` any number of times, then `drain`; a Gateway cannot be started
    again.

    `reload_file` is what `POST /reload` of the status API calls; without it there is no such call. `find_warnings` has
    the warnings that the console shows about a configuration. `tap` sees the requests and replies of all listeners.
    `part` says what this process does where a gateway has several.
    """

    def __init__(
        self,
        config: Config,
        reload_file: status.Reload | None = None,
        find_warnings: FindWarnings = lambda config: (),
        tap: Tap | None = None,
        part: GatewayPart = WHOLE,
    ) -> None:
        self.config = config = with_models_apart(config)
        self._part = part
        self.ready = False
        self.listeners: dict[str, Listener] = {}
        self.references: list[Listener] = []
        self.ports: dict[str, PortServer] = {}
        self.loaded_at = datetime.now(UTC)
        self.reloads = 0
        self.last_reload_error: status.LoadError | None = None
        """Why the last attempt to read the configuration again failed; None if it did not."""
        self.observing = Observing()
        self._reload_file = reload_file
        self._find_warnings = find_warnings
        self._tap = tap
        self._protocols = registry.protocols()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._endpoints = SharedEndpoints()
        self._fleets = Fleets(self._clock)
        self._certificates = Certificates()
        self._certificates.prepare(config)
        self._port_tls: dict[str, ListenerTlsConfig | None] = {}
        """TLS of the ports beside the listeners, for the connections that they accept next."""
        self._registrations: dict[str, Registrations] = {}
        """Where servers register now, by the name of the backend."""
        self._serving: dict[str, Serving] = {}
        self._environment = Environment(
            self._protocols, registry.policies(), Connections(parse_address, connect, self._connect_over_tls),
            self._clock, INFO, lambda: self.ready, Host(self._endpoints, part, self._fleets, self._own_addresses),
        )  # fmt: skip
        self._assembly = self._assemble(config)
        self._reloading = asyncio.Lock()
        self._replacements = Replacements(lambda: self.observing.close_logs(kept=self.config.log))
        self._limits = ProcessLimits()
        self._memory_task: asyncio.Task[None] | None = None
        self._certificates_task: asyncio.Task[None] | None = None
        self.metrics = Metrics(self, part)

    def _assemble(self, config: Config, previous: Assembly | None = None) -> Assembly:
        """The Assembly of `config`; one that follows another has no routes yet."""
        assembly = Assembly(config, self._environment, previous, in_steps=previous is not None)
        if self._part.prepare is not None:
            self._part.prepare(assembly)
        return assembly

    def _own_addresses(self) -> list[str]:
        """What is bound for clients and operators, or soon will be. The reference servers are model servers like any
        other."""
        bound = [each.address for each in (*self.listeners.values(), *self.ports.values())]
        ports = [port for name in PORTS if (port := _bind(self.config, name)) is not None]
        return [*bound, *(str(each) for each in (*(one.bind for one in self.config.listeners), *ports))]

    def _connect_over_tls(self, tls: BackendTlsConfig) -> Connect:
        def connect_over_tls(address: str, protocol: Protocol, limits: Limits, ip: str = "") -> Connector:
            return connect(address, protocol, limits, ip, self._certificates.client(tls, *alpn(protocol)))

        return connect_over_tls

    async def start(self) -> None:
        """Bind every address and accept connections. What has begun when it is cancelled is for `drain` to end.

        Raises:
            BindError: an address cannot be bound; the text names it and the reason. Nothing stays bound.
            ValueError: a reference model cannot be served.
        """
        try:
            await self._start()
        except Exception:
            await self.drain(0)
            raise
        self.ready = True

    async def _start(self) -> None:
        config = self.config
        self._limits.apply(config.limits)
        self.observing.open_access_log(config.log, ValueError)
        memory.set_allocator()
        self.observing.trace(config.tracing)
        self._memory_task = spawn(memory.give_back(memory.PROCESS_MEMORY))
        self.metrics.renew(config)
        self.observing.renew(config, self.metrics.reader(config))
        for reference in config.reference if self._part.has_references else ():
            listener = await serve_reference(reference, self._clock, self._certificates)
            self.references.append(listener)
            log.info("reference %r serves %s at %s", reference.protocol, ", ".join(reference.models), listener.address)
        self._certificates_task = spawn(self._certificates.watch(lambda: self.config.reload))
        await self._assembly.discovery.start()
        self._take_over(self._assembly)
        self._certificates.take_over(config)
        all_rows = self._rows(config)
        for each in self._served(config):
            self.listeners[each.name], self._serving[each.name] = await self._listen(
                each, all_rows[each.name], self._assembly
            )
        for name in PORTS if self._part.has_ports else ():
            if getattr(config, name) is not None:
                self.ports[name] = await self._start_port(name, config, self._assembly)

    def _served(self, config: Config) -> tuple[ListenerConfig, ...]:
        """The listeners that this process binds."""
        return config.listeners if self._part.serves else ()

    def _take_over(self, assembly: Assembly) -> None:
        assembly.start()
        self._registrations.clear()
        self._registrations.update(assembly.discovery.registrations)

    async def _listen(
        self, config: ListenerConfig, rows: Sequence[tuple[Protocol, str]], assembly: Assembly
    ) -> tuple[Listener, Serving]:
        settings = self._settings(config)
        serving = Serving(settings, assembly, explains=config.allow_explain, tap=self._tap)
        with binding(f"listener {config.name!r}", config.bind):
            listener = await listen(settings, rows, self._exchanges(config, serving, assembly), config.bind)
        log.info("listener %r accepts %s at %s", config.name, ", ".join(config.protocols), listener.address)
        return listener, serving

    def _settings(self, config: ListenerConfig) -> ListenerSettings:
        tls = None
        if config.tls is not None:
            tls = self._certificates.server(config.tls, alpn(*(self._protocols[name] for name in config.protocols)))
        return ListenerSettings(config.name, config.limits, config.model, tls)

    def _port_context(self, name: str) -> ssl.SSLContext | None:
        tls = self._port_tls[name]
        return None if tls is None else self._certificates.server(tls, port_alpn(name))()

    def _rows(self, config: Config) -> dict[str, tuple[tuple[Protocol, str], ...]]:
        """The protocols of each listener, each with its path prefix."""
        found, brief_errors = {}, BriefErrors(config, self._endpoints.addresses)
        for each in config.listeners:
            rows = self._rows_of(each, config)
            if each.errors.detail == "brief":
                rows = tuple((brief_errors.protocol(protocol, each.name), prefix) for protocol, prefix in rows)
            found[each.name] = rows
        return found

    def _rows_of(self, listener: ListenerConfig, config: Config) -> tuple[tuple[Protocol, str], ...]:
        return paths.rows(listener, config.routes, config.backends, self._protocols)

    def _exchanges(self, config: ListenerConfig, serving: Serving, assembly: Assembly) -> Exchanges:
        handlers = serving.exchanges(self._is_ready_for_clients, self.observing.recording(config, assembly.config))
        statistics = assembly.statistics.get(config.name)
        return statistics.record_exchanges(handlers) if statistics else handlers

    def reopen_logs(self) -> None:
        """Open the file of the access log again, which a program that rotates logs may have renamed."""
        self.observing.reopen_logs()

    async def _start_port(self, name: str, config: Config, assembly: Assembly) -> PortServer:
        server: PortServer
        self._port_tls[name] = _tls(config, name)
        tls = partial(self._port_context, name)
        if name == "health":
            assert config.health is not None
            ready, page = self._backends_ready(config), self.metrics.page(config)
            count, asked = self._part.gather or self.observing.flush, assembly.authentication.of_metrics
            bind = config.health.bind
            server = HealthServer(self._is_accepting, ready, metrics=page, count=count, asked=asked, tls=tls)
        elif name == "scaler":
            assert config.scaler is not None
            bind, server = config.scaler.bind, ScalerServer(assembly.backends, assembly.activities, tls)
        else:
            assert config.admin is not None
            application = status.application(self.status, self._reload_file, lambda: effective(self.config))
            register.add_routes(application, self._registrations)
            add_clearing(application, self.clear_caches)
            add_page(application)
            add_api(application, self, self._find_warnings, self._clock)
            add_documents(application, self, self._clock)
            add_documents_page(application)
            describe_errors(application, self)
            gather = self._part.gather
            shown = application if gather is None else gathering(application, gather)
            check = AccessCheck(shown, assembly.authentication.of_admin)
            bind, server = config.admin.bind, AdminServer(check, check, tls)
        with binding(name, bind):
            await server.start(bind)
        log.info("%s answers at %s", name, server.address)
        return server

    def _is_accepting(self) -> bool:
        return self.ready and self._part.is_ready()

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
            config = with_models_apart(config)
            new = applicable(self.config, config)
            found = await asyncio.to_thread(changes, self.config, new)
            if found or new != self.config:
                with small_collections():
                    await self._change_to(new)
                self.reloads += 1
                self.loaded_at = datetime.now(UTC)
            return (*found, *not_applied(self.config, config))

    async def _change_to(self, config: Config) -> None:
        all_rows = self._rows(config)
        stays = staying(self.config, config, self._protocols) if self._part.serves else {}
        for name, before in stays.items():
            if why := self.listeners[before].why_not_renewed(all_rows[name]):
                raise ReloadError(f"listener {name!r}: {why} at the same address while the gateway runs")
        self.observing.open_access_log(config.log, ReloadError)
        try:
            self._certificates.prepare(config)
        except CertificateError as error:
            raise ReloadError(f"tls.{error.key}: {error}") from error
        assembly = self._assemble(config, self._assembly)
        started: dict[str, tuple[Listener, Serving]] = {}
        ports: dict[str, PortServer] = {}
        try:
            await between_requests(assembly.build_routes())
            self.observing.renew(config, self.metrics.reader(config))
            assembly.discovery.inherit(self._assembly.discovery)
            await assembly.discovery.start()
            for each in self._served(config):
                if each.name not in stays:
                    started[each.name] = await self._listen(each, all_rows[each.name], assembly)
            for name in PORTS if self._part.has_ports else ():
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
        replaced = self._switch(config, assembly, stays, started, ports, all_rows)
        await self._replacements.end(replaced, assembly, config.drain.timeout)

    def _switch(
        self,
        config: Config,
        assembly: Assembly,
        stays: Mapping[str, str],
        started: Mapping[str, tuple[Listener, Serving]],
        ports: Mapping[str, PortServer],
        all_rows: Mapping[str, Sequence[tuple[Protocol, str]]],
    ) -> Replaced:
        """Answer every request that begins from now on by `assembly`."""
        old, listeners, serving = self._assembly, self.listeners, self._serving
        gone_ports = [port for name, port in self.ports.items() if name in ports or _bind(config, name) is None]
        self.ports = {name: port for name, port in self.ports.items() if port not in gone_ports} | dict(ports)
        self.config, self._assembly = config, assembly
        self._port_tls = {name: _tls(config, name) for name in PORTS}
        self.listeners, self._serving = {}, {}
        self._take_over(assembly)
        self._certificates.take_over(config)
        self._limits.apply(config.limits)
        self.observing.flush()
        self.metrics.renew(config)
        is_traced_anew = self.observing.trace(config.tracing)
        running: list[asyncio.Task[None]] = []
        for each in self._served(config):
            if each.name in started:
                self.listeners[each.name], self._serving[each.name] = started[each.name]
                if not is_traced_anew:
                    continue
                listener, serves = started[each.name]
            else:
                listener = self.listeners[each.name] = listeners[stays[each.name]]
                serves = self._serving[each.name] = serving[stays[each.name]]
            settings = self._settings(each)
            serves.renew(settings, assembly, explains=each.allow_explain)
            running += listener.renew(settings, all_rows[each.name], self._exchanges(each, serves, assembly))
        health = self.ports.get("health")
        if isinstance(health, HealthServer):
            health.backends_ready, health.metrics = self._backends_ready(config), self.metrics.page(config)
            health.asked = assembly.authentication.of_metrics
        admin = self.ports.get("admin")
        if isinstance(admin, AdminServer) and admin.access is not None:
            admin.access.asked = assembly.authentication.of_admin
        scaler = self.ports.get("scaler")
        if isinstance(scaler, ScalerServer):
            scaler.renew(assembly.backends, assembly.activities)
        kept = set(map(id, self.listeners.values()))
        gone = [each for each in listeners.values() if id(each) not in kept]
        return Replaced(old, gone, gone_ports, running)

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
            *(listener.drain(seconds) for listener in (*self.listeners.values(), *self._replacements.listeners))
        )
        await self._replacements.give_up()
        await self._assembly.end(max(0.0, ends_at - self._clock()))
        await self._fleets.close()
        await self._endpoints.close()
        # The reference servers come last, since requests of the listeners above may have been in flight to them.
        left = max(0.0, ends_at - self._clock())
        given_up += await asyncio.gather(*(reference.drain(left) for reference in self.references))
        for server in self.ports.values():
            await server.stop()
        await self.observing.stop(max(ends_at - self._clock(), 0.5))
        for background in (self._memory_task, self._certificates_task):
            if background is not None:
                background.cancel()
        self._limits.stop()
        self.metrics.stop()
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

    def switch(self, listener: str, *, is_online: bool) -> None:
        """Take a listener online or offline, as another process of this gateway did."""
        self._assembly.listener_readiness.switch(listener, is_online=is_online)

    @property
    def requests_in_flight(self) -> RequestsInFlight:
        """What keeps the configuration in use alive after a reload, until the last of these has ended."""
        return self._assembly.streams

    @property
    def backend_sides(self) -> Mapping[str, BackendSide]:
        """The backends of the configuration in use, as bridges call them."""
        return self._assembly.backend_sides

    @property
    def guards(self) -> Mapping[str, Guard]:
        """What finds out who clients are, of the listeners that ask for it."""
        return self._assembly.authentication.guards

    @property
    def select(self) -> Select:
        """What finds the Destination of a request by the configuration in use."""
        return self._assembly.router.select

    def rows(self, listener: ListenerConfig) -> Sequence[tuple[Protocol, str]]:
        """The protocols of a listener of the configuration in use, each with its path prefix."""
        return self._rows_of(listener, self.config)

    @property
    def counters(self) -> Counters:
        """The counters of requests, with all that have ended."""
        self.observing.flush()
        return self.observing.counters

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The policies `mirror` of the configuration in use."""
        return self._assembly.policing.mirrors

    async def clear_caches(self, place: str) -> list[str]:
        """Let the policies `cache` at this place forget their answers, in all processes; all of them if it is empty.
        Returns the places."""
        found = [(at, each) for at, each in self._assembly.policing.caches if place in ("", at)]
        for _, each in found:
            each.clear()
        if found and self._part.clear_caches is not None:
            await self._part.clear_caches(place)
        return list(dict.fromkeys(at for at, _ in found))

    @property
    def counted_policies(self) -> Sequence[tuple[str, str, Mapping[str, object]]]:
        """Place, name and state of the policies that metrics count by their states, in each process."""
        if self._part.counted_policies is not None:
            return self._part.counted_policies()
        return [(place, name, each.status()) for place, name, each in self._assembly.policing.counted]

    @property
    def shedding(self) -> Shedding | None:
        """What refuses work while the gateway is overloaded, if anything does."""
        return self._limits.shedding if self._part.shedding is None else self._part.shedding()

    @property
    def policy_states(self) -> Sequence[tuple[str, str, Mapping[str, object]]]:
        """Place, name and state of each policy that keeps one."""
        if self._part.policies is not None:
            return self._part.policies()
        return [(place, name, state.status()) for place, name, state in self._assembly.policing.states]

    @property
    def traces(self) -> TraceCounts:
        """What became of sampled requests."""
        return self.observing.traces

    @property
    def has_reload_failed(self) -> bool:
        """Whether the last attempt to read the configuration again failed."""
        return self.last_reload_error is not None

    def status(self) -> status.GatewayStatus:
        """The current state, for the status API."""
        self.observing.flush()
        counters, shedding = self.observing.counters, self.shedding
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
                    requests=dict(counters.of_listener(each.name)),
                    refused_connections=listener.refused_connections,
                )
                for each in self.config.listeners
                if (listener := self.listeners.get(each.name)) is not None
            },
            shedding=None
            if shedding is None
            else status.SheddingStatus(since=shedding.since, refused=shedding.refused),
            backends={
                name: status.backend_status(backend, counters.of_backend(name))
                for name, backend in self._assembly.backends.items()
            },
            policies=[
                status.PolicyStatus(place=place, policy=name, state=dict(state))
                for place, name, state in self.policy_states
            ],
            last_errors=list(counters.last_errors()),
            tracing=None
            if self.observing.tracing is None
            else status.TracingStatus(sent=self.traces.sent, dropped=self.traces.dropped),
            certificates=[
                status.CertificateStatus(
                    used_by=list(each.used_by),
                    certificate=each.files.certificate or None,
                    expires=each.expires,
                    error=each.error,
                )
                for each in self._certificates.materials
            ],
        )


def _bind(config: Config, port: str) -> Address | None:
    """The address of one of PORTS; None if it is off."""
    found: PortConfig = getattr(config, port)
    return None if found is None else found.bind


def _tls(config: Config, port: str) -> ListenerTlsConfig | None:
    found: PortConfig = getattr(config, port)
    return None if found is None else found.tls
