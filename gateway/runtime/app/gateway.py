"""A running gateway: starts with a Config, changes to another one while it runs, drains and stops."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from gateway.admin import status
from gateway.admin.console.configuration import FindWarnings
from gateway.admin.metrics import Metrics
from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.connecting import connect, parse_address
from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.environment import Connect, Connections, Environment, Host
from gateway.assembly.forms import spoken, with_forms
from gateway.assembly.in_flight import RequestsInFlight
from gateway.assembly.listener_authentication import Access, ListenerAuthentication
from gateway.assembly.part import WHOLE, GatewayPart
from gateway.assembly.reference import serve_reference
from gateway.assembly.server_info import INFO
from gateway.assembly.servers import Fleets
from gateway.bridge.backend import BackendSide
from gateway.bridge.graphs.model import GraphModel
from gateway.config.changes import applicable, changes, not_applied
from gateway.config.keys import Config, ListenerConfig
from gateway.config.keys import Ready as ReadyRule
from gateway.config.tls import BackendTlsConfig
from gateway.core.certificates import CertificateError
from gateway.core.garbage import small_collections
from gateway.core.protocol import Limits, Protocol
from gateway.core.surviving import all_surviving
from gateway.core.tasks import between_requests, spawn
from gateway.core.transport import Connector, FixedFields, Listener, Select
from gateway.observing.counters import Counters
from gateway.observing.history import History
from gateway.observing.payload_log.queue import PayloadLogCounts
from gateway.observing.recent import RecentRequests
from gateway.observing.tracing import TraceCounts
from gateway.policies.places import Numbers, numbers, states_of_principal
from gateway.routing.backend import Backend
from gateway.runtime.app.draining import Draining
from gateway.runtime.app.history import keep_history
from gateway.runtime.app.listeners import Listeners, Row
from gateway.runtime.app.observing import Observing
from gateway.runtime.app.ports import Ports, binds
from gateway.runtime.app.process_limits import ProcessLimits
from gateway.runtime.app.replacing import OpenedAddresses, PortServer, ReloadError, Replaced, Replacements, staying
from gateway.runtime.app.serving import Tap
from gateway.runtime.app.status_report import status_of
from gateway.transports import memory
from gateway.transports.shedding import Shedding

log = logging.getLogger("gateway.app")

NOT_RUNNING = "the gateway has not started yet, or is stopping"


class Gateway:
    """A running gateway. Call `start`, then `reload` any number of times, then `drain`; a Gateway cannot be started
    again.

    `reload_file` is called by `POST /reload` of the status API; if it is None, the API does not have this path.
    `find_warnings` returns the warnings that the console shows about a configuration. `tap` sees the requests and
    responses of all listeners. `part` is the part of this process in a gateway with several processes.
    """

    def __init__(
        self,
        config: Config,
        reload_file: status.Reload | None = None,
        find_warnings: FindWarnings = lambda config: (),
        tap: Tap | None = None,
        part: GatewayPart = WHOLE,
    ) -> None:
        self.config = config
        self._part = part
        self.ready = False
        self.references: list[Listener] = []
        self.loaded_at = datetime.now(UTC)
        self.reloads = 0
        self.last_reload_error: status.LoadError | None = None
        """The cause of a failure of the last reload; None if it succeeded."""
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._endpoints = SharedEndpoints()
        self._fleets = Fleets(self._clock)
        self._certificates = Certificates()
        self.observing = Observing(self._certificates)
        self._certificates.prepare(config)
        protocols = registry.protocols()
        self._listeners = Listeners(
            protocols, self._certificates, self.observing, self._is_ready_for_clients, self._endpoints.addresses, tap
        )
        self._ports = Ports(self, part, self._certificates, self._clock, reload_file, find_warnings)
        self._environment = Environment(
            protocols, registry.policies(), Connections(parse_address, connect, self._connect_over_tls),
            self._clock, INFO, lambda: self.ready, Host(self._endpoints, part, self._fleets, self._own_addresses),
        )  # fmt: skip
        self._assembly = self._assemble(config)
        self.steps_of_workers: dict[tuple[str, str], Counter[str]] = {}
        """The counts of workers, in the form of `graph_steps`."""
        self._reloading = asyncio.Lock()
        self._replacements = Replacements(lambda: self.observing.close_logs(kept=self.config.log))
        self._limits = ProcessLimits()
        self._memory_task: asyncio.Task[None] | None = None
        self._certificates_task: asyncio.Task[None] | None = None
        self._history_task: asyncio.Task[NoReturn] | None = None
        self.metrics = Metrics(self, part)
        self.draining = Draining(lambda: self.backends, part)
        """Drains endpoints for maintenance."""

    def _assemble(self, config: Config, previous: Assembly | None = None) -> Assembly:
        """Return the Assembly of `config`; if it follows another Assembly, it has no routes yet."""
        assembly = Assembly(config, self._environment, previous, in_steps=previous is not None)
        if self._part.prepare is not None:
            self._part.prepare(assembly)
        return assembly

    def _own_addresses(self) -> list[str]:
        """The addresses that are or will be bound for clients and operators. Sample servers are excluded, because they
        are model servers."""
        bound = [each.address for each in (*self.listeners.values(), *self.ports.values())]
        return [*bound, *map(str, (*(one.bind for one in self.config.listeners), *binds(self.config).values()))]

    def _connect_over_tls(self, tls: BackendTlsConfig) -> Connect:
        def connect_over_tls(
            address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
        ) -> Connector:
            return connect(
                address, protocol, limits, ip, self._certificates.client(tls, *alpn(protocol)), headers=headers
            )

        return connect_over_tls

    async def start(self) -> None:
        """Bind every address and accept connections. If it is cancelled, call `drain` to end the started parts.

        Raises:
            BindError: an address cannot be bound; the text names it and the reason. Nothing stays bound.
            ValueError: a sample model cannot be served.
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
        self.observing.open_logs(config.log, ValueError)
        memory.set_allocator()
        self.observing.trace(config.tracing)
        self._memory_task = spawn(memory.give_back(memory.PROCESS_MEMORY))
        if self._part.has_ports:
            self._history_task = spawn(keep_history(self))
        self.metrics.renew(config)
        self.observing.renew(config, self.metrics.reader(config))
        for reference in config.reference if self._part.has_references else ():
            listener = await serve_reference(reference, self._clock, self._certificates, spoken(config))
            self.references.append(listener)
            log.info("reference %r serves %s at %s", reference.protocol, ", ".join(reference.models), listener.address)
        self._certificates_task = spawn(self._certificates.watch(lambda: self.config.reload))
        await self._assembly.discovery.start()
        await self._assembly.placed.first_round()
        self._take_over(self._assembly)
        self._certificates.take_over(config)
        rows = self._listeners.rows(config)
        for each in self._served(config):
            self._listeners.add(each.name, await self._listeners.open(each, rows[each.name], self._assembly))
        for name in self._ports.opening(config):
            self._ports.all[name] = await self._ports.open(name, config, self._assembly)

    def _served(self, config: Config) -> tuple[ListenerConfig, ...]:
        """Return the listeners that this process binds."""
        return config.listeners if self._part.serves else ()

    def _take_over(self, assembly: Assembly) -> None:
        assembly.start()
        self._ports.take_over(assembly)

    def reopen_logs(self) -> None:
        """Open the files of the access log and the payload log again, because a program that rotates logs might have
        renamed them."""
        self.observing.reopen_logs()

    async def reload(self, config: Config) -> tuple[str, ...]:
        """Change to `config`, which has been checked. New addresses are bound first. Then, in one step, `config`
        applies to every request that begins. Requests in flight keep their configuration. Listeners and endpoints that
        stay keep their connections; removed ones are closed after their last request (listeners within
        `drain.timeout`).

        Return the changes, one text for each; empty if nothing changed.

        Raises:
            BindError: an address cannot be bound. Nothing has changed.
            ReloadError: the change needs a restart, or the gateway is stopping. Nothing has changed.
        """
        async with self._reloading:
            if not self.ready:
                raise ReloadError(NOT_RUNNING)
            await asyncio.to_thread(self._certificates.read_changed)
            new = applicable(self.config, config)
            found = await asyncio.to_thread(changes, self.config, new)
            if found or new != self.config:
                with small_collections():
                    await self._change_to(new)
                self.reloads += 1
                self.loaded_at = datetime.now(UTC)
            return (*found, *not_applied(self.config, config))

    async def _change_to(self, config: Config) -> None:
        rows = self._listeners.rows(config)
        protocols = with_forms(spoken(self.config), config)
        stays = staying(self.config, config, protocols) if self._part.serves else {}
        for name, before in stays.items():
            if why := self.listeners[before].why_not_renewed(rows[name]):
                raise ReloadError(f"listener {name!r}: {why} at the same address while the gateway runs")
        try:
            self._certificates.prepare(config)
        except CertificateError as error:
            raise ReloadError(f"tls.{error.key}: {error}") from error
        self.observing.open_logs(config.log, ReloadError)
        assembly = self._assemble(config, self._assembly)
        opened = OpenedAddresses()
        try:
            await between_requests(assembly.build_routes())
            self.observing.renew(config, self.metrics.reader(config))
            assembly.discovery.inherit(self._assembly.discovery)
            await assembly.discovery.start()
            await assembly.placed.first_round(self._assembly.placed)
            for each in self._served(config):
                if each.name not in stays:
                    opened.listeners[each.name] = await self._listeners.open(each, rows[each.name], assembly)
            for name in self._ports.opening(config, self.config):
                opened.ports[name] = await self._ports.open(name, config, assembly)
            if not self.ready:
                raise ReloadError(NOT_RUNNING)
        except BaseException:
            await opened.give_up()
            await assembly.close()
            await assembly.close_unused_connectors()
            raise
        # From here to the end of `_switch` there is no `await`: no request can begin in between.
        replaced = self._switch(config, assembly, stays, opened, rows)
        await self._replacements.end(replaced, assembly, config.drain.timeout)

    def _switch(
        self,
        config: Config,
        assembly: Assembly,
        stays: Mapping[str, str],
        opened: OpenedAddresses,
        rows: Mapping[str, Sequence[Row]],
    ) -> Replaced:
        """Use `assembly` for every request that begins from now on."""
        old = self._assembly
        gone_ports = self._ports.change(config, opened.ports)
        self.config, self._assembly = config, assembly
        gone = self._listeners.change(self._served(config), stays, opened.listeners)
        self._take_over(assembly)
        self._certificates.take_over(config)
        self._limits.apply(config.limits)
        self.observing.flush()
        self.metrics.renew(config)
        is_traced_anew = self.observing.trace(config.tracing)
        running: list[asyncio.Task[None]] = []
        for each in self._served(config):
            if is_traced_anew or each.name not in opened.listeners:
                running += self._listeners.renew(each, rows[each.name], assembly)
        self._ports.renew(config, assembly)
        return Replaced(old, gone, gone_ports, running)

    def announce_end(self) -> None:
        """Become not ready, and announce to clients that their connections will close. The gateway still handles
        requests."""
        self.ready = False
        for listener in (*self.listeners.values(), *self.references):
            listener.announce_end()

    async def drain(self, seconds: float) -> int:
        """Become not ready, accept no more connections, wait at most `seconds` for requests in flight, then close
        everything.

        Return the number of cancelled requests. This call can itself be cancelled and repeated with less time.
        """
        self.announce_end()
        ends_at = self._clock() + seconds
        self._assembly.stop()
        self.draining.stop()
        listeners = (*self.listeners.values(), *self._replacements.listeners)
        given_up = await all_surviving("draining a listener", (each.drain(seconds) for each in listeners))
        await self._replacements.give_up()
        await self._assembly.end(max(0.0, ends_at - self._clock()))
        await self._assembly.placed.close()
        await self._fleets.close()
        await self._endpoints.close()
        # The sample servers come last, because requests of the listeners above might have been in flight to them.
        left = max(0.0, ends_at - self._clock())
        given_up += await all_surviving("draining a sample server", (each.drain(left) for each in self.references))
        await self._ports.stop()
        await self.observing.stop(max(ends_at - self._clock(), 0.5))
        for background in (self._memory_task, self._certificates_task, self._history_task):
            if background is not None:
                background.cancel()
        self._limits.stop()
        self.metrics.stop()
        return sum(given_up)

    async def _is_ready_for_clients(self) -> bool:
        return await self.is_ready(self.config.ready)

    async def is_ready(self, rule: ReadyRule) -> bool:
        """Return True if the gateway is ready by `rule`, the setting `ready` of the health port or of the configuration
        (which gRPC's health service uses)."""
        return self.ready and not await self._assembly.readiness.why_not(rule)

    @property
    def listeners(self) -> dict[str, Listener]:
        """The listeners by name; if workers serve them, the objects that the supervisor has set."""
        return self._listeners.all

    @listeners.setter
    def listeners(self, listeners: dict[str, Listener]) -> None:
        self._listeners.all = listeners

    @property
    def ports(self) -> Mapping[str, PortServer]:
        """The servers of the ports that are not listeners, by name."""
        return self._ports.all

    @property
    def version(self) -> str:
        """The gateway's version."""
        return INFO.version

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends of the configuration in use."""
        return self._assembly.backends

    def switch(self, listener: str, *, is_online: bool) -> None:
        """Take a listener online or offline, like another process of this gateway did."""
        self._assembly.listener_readiness.switch(listener, is_online=is_online)

    @property
    def requests_in_flight(self) -> RequestsInFlight:
        """The requests that keep the configuration in use alive after a reload, until the last one has ended."""
        return self._assembly.streams

    @property
    def backend_sides(self) -> Mapping[str, BackendSide]:
        """The backends of the configuration in use, from the bridges' side."""
        return self._assembly.backend_sides

    @property
    def guards(self) -> Mapping[str, ListenerAuthentication]:
        """The authentication of the listeners that require credentials, by name."""
        return self._assembly.authentication.guards

    @property
    def access(self) -> Access:
        """The permissions of the configuration in use."""
        return self._assembly.authentication.access

    @property
    def select(self) -> Select:
        """Finds the Destination of a request by the configuration in use."""
        return self._assembly.router.select

    def rows(self, listener: ListenerConfig) -> Sequence[tuple[Protocol, str]]:
        """Return the protocols of a listener of the configuration in use, with their path prefixes."""
        return self._listeners.rows_of(listener, self.config)

    @property
    def counters(self) -> Counters:
        """The counters of requests, including all completed requests."""
        self.observing.flush()
        return self.observing.counters

    @property
    def history(self) -> History:
        """The last hour of the gateway and its parts."""
        return self.observing.history

    @property
    def recent_requests(self) -> RecentRequests:
        """The last requests, including all completed requests."""
        self.observing.flush()
        return self.observing.recent

    async def clear_caches(self, place: str) -> list[str]:
        """Clear the policies `cache` at this place, in all processes; all of them if it is empty. Return the places."""
        found = [(at, each) for at, each in self._assembly.policing.caches if place in ("", at)]
        for _, each in found:
            each.clear()
        if found and self._part.clear_caches is not None:
            await self._part.clear_caches(place)
        return list(dict.fromkeys(at for at, _ in found))

    @property
    def policy_numbers(self) -> Numbers:
        """The numbers of the policies' metrics, of all processes."""
        if self._part.policy_numbers is not None:
            return self._part.policy_numbers()
        metrics, states = registry.policy_metrics(), self._assembly.policing.states
        return numbers(((place, name, each.status()) for place, name, each in states if name in metrics), metrics)

    @property
    def graphs(self) -> Mapping[str, GraphModel]:
        """The model graphs of the configuration in use, by name."""
        return self._assembly.graphs.models

    @property
    def graph_steps(self) -> Mapping[tuple[str, str], Counter[str]]:
        """The counts of each step of a graph, by the names of both, in all processes."""
        found = {key: Counter(counts) for key, counts in list(self.steps_of_workers.items())}
        for graph, model in self._assembly.graphs.models.items():
            for step, counts in list(model.calls.counts.items()):
                found.setdefault((graph, step), Counter()).update(counts)
        return found

    @property
    def shedding(self) -> Shedding | None:
        """Refuses work while the gateway is overloaded; None without load shedding."""
        return self._limits.shedding if self._part.shedding is None else self._part.shedding()

    @property
    def policy_states(self) -> Sequence[tuple[str, str, Mapping[str, object]]]:
        """Place, name and state of each policy with a state."""
        if self._part.policies is not None:
            return self._part.policies()
        return [(place, name, state.status()) for place, name, state in self._assembly.policing.states]

    def principal_states(self, name: str) -> Sequence[tuple[str, str, Mapping[str, object]]]:
        """Return place, policy, and the policy's state of one principal."""
        if self._part.principal_states is not None:
            return self._part.principal_states(name)
        return states_of_principal(self._assembly.policing.states, name)

    @property
    def traces(self) -> TraceCounts:
        """The numbers of sampled requests that were sent to the collector, and dropped."""
        return self.observing.traces

    @property
    def payload_log(self) -> PayloadLogCounts:
        """The numbers of requests and responses that the payload log has sent, and dropped."""
        return self.observing.payload_logs.counts

    @property
    def has_reload_failed(self) -> bool:
        """True if the last reload failed."""
        return self.last_reload_error is not None

    def status(self) -> status.GatewayStatus:
        """Return the current state, for the status API."""
        return status_of(self, self._certificates.materials)
