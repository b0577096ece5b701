"""A running gateway: starts with a Config, changes to another Config, drains, and stops. `gateway serve`, workers and
the supervisor run it. ProcessLimits applies the process limits, and `keep_history` records the console's history.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic, time
from typing import TYPE_CHECKING, NoReturn

from gateway.admin import status
from gateway.admin.console.configuration import FindWarnings
from gateway.admin.metrics import Metrics
from gateway.admin.state import GatewayState
from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.connecting import connect, parse_address
from gateway.assembly.endpoints import SharedEndpoints
from gateway.assembly.environment import Connect, Connections, Environment, Host
from gateway.assembly.forms import spoken, with_forms
from gateway.assembly.observing import Observing
from gateway.assembly.part import WHOLE, GatewayPart
from gateway.assembly.reference import serve_reference
from gateway.assembly.server_info import INFO
from gateway.assembly.servers import Fleets
from gateway.config.changes import applicable, changes, not_applied
from gateway.config.keys import Config
from gateway.config.limits import ProcessLimitsConfig, ShedConfig
from gateway.config.listeners import ListenerConfig
from gateway.config.tls import BackendTlsConfig
from gateway.core.certificates import CertificateError
from gateway.core.long_work import between_requests, small_collections
from gateway.core.protocol import Limits, Protocol
from gateway.core.surviving import all_surviving, log_and_continue
from gateway.core.tasks import spawn
from gateway.core.transport import Connector, FixedFields, Listener
from gateway.observing.history import ALL, STEP, Part, PartLoad
from gateway.runtime.app.draining import Draining
from gateway.runtime.app.listeners import Listeners, Row, Tap
from gateway.runtime.app.ports import Ports, binds
from gateway.runtime.app.replacing import OpenedAddresses, ReloadError, Replaced, Replacements, staying
from gateway.servers.discovery.register import Registrations
from gateway.transports import listener_connections, memory
from gateway.transports.shedding import Shedding

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("gateway.app")

NOT_RUNNING = "the gateway has not started yet, or is stopping; try again when it serves"


class Gateway:
    """A running gateway.

    Call `start`, then `reload` any number of times, then `drain`. A stopped Gateway cannot start again.

    - `reload_file`: Handles the status API's `POST /reload`. If None, the API does not have this path.
    - `find_warnings`: Returns the warnings about a configuration, which the console shows.
    - `tap`: Receives the requests and responses on all listeners.
    - `part`: The role of this process in a gateway with several processes.

    `state` describes the current configuration and its parts, for code that reports on them."""

    def __init__(
        self,
        config: Config,
        reload_file: status.Reload | None = None,
        find_warnings: FindWarnings = lambda config: (),
        tap: Tap | None = None,
        part: GatewayPart = WHOLE,
    ) -> None:
        self._part = part
        self._reload_file = reload_file
        self._find_warnings = find_warnings
        self.references: list[Listener] = []
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
        self._environment = Environment(
            protocols, registry.policies(), Connections(parse_address, connect, self._connect_over_tls),
            self._clock, INFO, lambda: self.state.ready, Host(self._endpoints, part, self._fleets, self._own_addresses),
        )  # fmt: skip
        self.state = GatewayState(config, self._assemble(config), self.observing, self._certificates, part.workers)
        self.metrics = Metrics(self.state, part.workers)
        self.draining = Draining(lambda: self.state.assembly.backends, part.workers)
        """Drains endpoints for maintenance."""
        self.ports = Ports(self.state, self.metrics, part, self._certificates, self._application)
        self._reloading = asyncio.Lock()
        self._replacements = Replacements(lambda: self.observing.close_logs(kept=self.state.config.log))
        self._limits = ProcessLimits()
        self._memory_task: asyncio.Task[None] | None = None
        self._certificates_task: asyncio.Task[None] | None = None
        self._history_task: asyncio.Task[NoReturn] | None = None

    def _assemble(self, config: Config, previous: Assembly | None = None) -> Assembly:
        """Return the Assembly for `config`. An Assembly that replaces another one has no routes yet."""
        assembly = Assembly(config, self._environment, previous, in_steps=previous is not None)
        if self._part.prepare is not None:
            self._part.prepare(assembly)
        return assembly

    def _application(self, registrations: Mapping[str, Registrations]) -> "FastAPI":
        """Return the application of the admin port. Only a gateway with this port enabled imports the application's
        module."""
        from gateway.runtime.app.admin import application

        return application(
            self.state, registrations, self.clear_caches, self.draining,
            self._reload_file, self._find_warnings, self._clock,
        )  # fmt: skip

    def _own_addresses(self) -> list[str]:
        """Return the addresses that this process binds, or will bind, for clients and operators, but not the addresses
        of sample servers, because sample servers are model servers."""
        config = self.state.config
        bound = [each.address for each in (*self.state.listeners.values(), *self.ports.all.values())]
        return [*bound, *map(str, (*(one.bind for one in config.listeners), *binds(config).values()))]

    def _connect_over_tls(self, tls: BackendTlsConfig) -> Connect:
        def connect_over_tls(
            address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
        ) -> Connector:
            return connect(
                address, protocol, limits, ip, self._certificates.client(tls, *alpn(protocol)), headers=headers
            )

        return connect_over_tls

    async def start(self) -> None:
        """Bind all addresses and accept connections. If this call is cancelled, call `drain` to stop the parts that
        have started.

        Raises:
            BindError: an address cannot be bound. The message contains the address and the reason. No address stays
            bound.
            ValueError: a sample model cannot be served.
        """
        try:
            await self._start()
        except Exception:
            await self.drain(0)
            raise
        self.state.ready = True

    async def _start(self) -> None:
        config, assembly = self.state.config, self.state.assembly
        self._limit(config)
        self.observing.open_logs(config.log, ValueError)
        memory.set_allocator()
        self.observing.trace(config.tracing)
        self._memory_task = spawn(memory.give_back(memory.PROCESS_MEMORY))
        if self._part.has_ports:
            self._history_task = spawn(keep_history(self.state))
        self.metrics.renew(config)
        self.observing.renew(config, self.metrics.reader(config))
        for reference in config.reference if self._part.has_references else ():
            listener = await serve_reference(reference, self._clock, self._certificates, spoken(config))
            self.references.append(listener)
            log.info("reference %r serves %s at %s", reference.protocol, ", ".join(reference.models), listener.address)
        self._certificates_task = spawn(self._certificates.watch(lambda: self.state.config.reload))
        await assembly.discovery.start()
        await assembly.placed.first_round()
        self._take_over(assembly)
        self._certificates.take_over(config)
        rows = self._listeners.rows(config)
        self.state.listeners = self._listeners.all
        for each in self._served(config):
            self._listeners.add(each.name, await self._listeners.open(each, rows[each.name], assembly))
        for name in self.ports.opening(config):
            self.ports.all[name] = await self.ports.open(name, config, assembly)

    def _served(self, config: Config) -> tuple[ListenerConfig, ...]:
        """Return the listeners that this process binds."""
        return config.listeners if self._part.serves else ()

    def _limit(self, config: Config) -> None:
        self._limits.apply(config.limits)
        self.state.own_shedding = self._limits.shedding

    def _take_over(self, assembly: Assembly) -> None:
        assembly.start()
        self.ports.take_over(assembly)

    def reopen_logs(self) -> None:
        """Reopen the files of the access log and the payload log, because a log-rotation program might have renamed
        them."""
        self.observing.reopen_logs()

    async def reload(self, config: Config) -> tuple[str, ...]:
        """Change to `config`, which is already validated.

        The gateway first binds new addresses. Then, in one step, it applies `config` to all new requests. Requests in
        flight keep their configuration, and remaining listeners and endpoints keep their connections. The gateway
        closes removed listeners and endpoints after their last requests; for listeners, it waits at most
        `drain.timeout`.

        Return a description of each change; empty if nothing changed.

        Raises:
            BindError: an address cannot be bound. In this case, nothing has changed. ReloadError: the change requires a
            restart, or the gateway is stopping. In this case, nothing has changed.
        """
        state = self.state
        async with self._reloading:
            if not state.ready:
                raise ReloadError(NOT_RUNNING)
            await asyncio.to_thread(self._certificates.read_changed)
            new = applicable(state.config, config)
            found = await asyncio.to_thread(changes, state.config, new)
            if found or new != state.config:
                with small_collections():
                    await self._change_to(new)
                state.reloads += 1
                state.loaded_at = datetime.now(UTC)
            return (*found, *not_applied(state.config, config))

    async def _change_to(self, config: Config) -> None:
        rows, before_it = self._listeners.rows(config), self.state.config
        protocols = with_forms(spoken(before_it), config)
        stays = staying(before_it, config, protocols) if self._part.serves else {}
        for name, before in stays.items():
            if why := self._listeners.all[before].why_not_renewed(rows[name]):
                text = f"listener {name!r}: {why} at the same address while the gateway runs"
                raise ReloadError(f"{text}; change `bind` too, or restart the gateway")
        try:
            self._certificates.prepare(config)
        except CertificateError as error:
            raise ReloadError(f"tls.{error.key}: {error}") from error
        self.observing.open_logs(config.log, ReloadError)
        old = self.state.assembly
        assembly = self._assemble(config, old)
        opened = OpenedAddresses()
        try:
            await between_requests(assembly.build_routes())
            self.observing.renew(config, self.metrics.reader(config))
            assembly.discovery.inherit(old.discovery)
            await assembly.discovery.start()
            await assembly.placed.first_round(old.placed)
            for each in self._served(config):
                if each.name not in stays:
                    opened.listeners[each.name] = await self._listeners.open(each, rows[each.name], assembly)
            for name in self.ports.opening(config, before_it):
                opened.ports[name] = await self.ports.open(name, config, assembly)
            if not self.state.ready:
                raise ReloadError(NOT_RUNNING)
        except BaseException:
            await opened.give_up()
            await assembly.close()
            await assembly.close_unused_connectors()
            raise
        # From here to the end of `_switch`, there must be no `await`, so no request can begin in between.
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
        """Use `assembly` for all new requests."""
        state, old = self.state, self.state.assembly
        gone_ports = self.ports.change(config, opened.ports)
        state.config, state.assembly = config, assembly
        gone = self._listeners.change(self._served(config), stays, opened.listeners)
        if self._part.serves:
            state.listeners = self._listeners.all
        self._take_over(assembly)
        self._certificates.take_over(config)
        self._limit(config)
        self.observing.flush()
        self.metrics.renew(config)
        is_traced_anew = self.observing.trace(config.tracing)
        running: list[asyncio.Task[None]] = []
        for each in self._served(config):
            if is_traced_anew or each.name not in opened.listeners:
                running += self._listeners.renew(each, rows[each.name], assembly)
        self.ports.renew(config, assembly)
        return Replaced(old, gone, gone_ports, running)

    def announce_end(self) -> None:
        """Report not ready, and notify clients that their connections will close.

        The gateway still handles requests."""
        self.state.ready = False
        for listener in (*self._listeners.all.values(), *self.references):
            listener.announce_end()

    async def drain(self, seconds: float) -> int:
        """Report not ready, accept no more connections, wait at most `seconds` for requests in flight, and then close
        everything.

        Return the number of cancelled requests. The caller can cancel this call, and repeat it with less time."""
        self.announce_end()
        ends_at, assembly = self._clock() + seconds, self.state.assembly
        assembly.stop()
        self.draining.stop()
        listeners = (*self._listeners.all.values(), *self._replacements.listeners)
        given_up = await all_surviving("draining a listener", (each.drain(seconds) for each in listeners))
        await self._replacements.give_up()
        await assembly.end(max(0.0, ends_at - self._clock()))
        await assembly.placed.close()
        await self._fleets.close()
        await self._endpoints.close()
        # Stop the sample servers last, because requests from the listeners above might still be in flight to them.
        left = max(0.0, ends_at - self._clock())
        given_up += await all_surviving("draining a sample server", (each.drain(left) for each in self.references))
        await self.ports.stop()
        await self.observing.stop(max(ends_at - self._clock(), 0.5))
        for background in (self._memory_task, self._certificates_task, self._history_task):
            if background is not None:
                background.cancel()
        self._limits.stop()
        self.metrics.stop()
        return sum(given_up)

    async def _is_ready_for_clients(self) -> bool:
        return await self.state.is_ready(self.state.config.ready)

    async def clear_caches(self, place: str) -> list[str]:
        """Clear the caches of the `cache` policies at `place` in all processes, or all caches if `place` is empty.

        Return the locations of the cleared caches."""
        found = [(at, each) for at, each in self.state.assembly.policing.caches if place in ("", at)]
        for _, each in found:
            each.clear()
        if found and self._part.workers is not None:
            await self._part.workers.clear_caches(place)
        return list(dict.fromkeys(at for at, _ in found))


HISTORY_INTERVAL = 1.0
"""Seconds between readings of the loads for the console's history."""


async def keep_history(state: GatewayState, interval: float = HISTORY_INTERVAL, step: float = STEP) -> NoReturn:
    """Record the history while the admin port is enabled. Without the port, the gateway does not count requests."""
    began = monotonic()
    while True:
        await asyncio.sleep(interval)
        with log_and_continue("keeping the console's history"):
            if state.config.admin is None:
                began = monotonic()
                continue
            state.observing.history.observe(loads(state))
            if (now := monotonic()) - began >= step:
                state.observing.history.end_step(state.counters.news(), time(), now - began)
                began = now


def loads(state: GatewayState) -> Mapping[Part, PartLoad]:
    """Return the current loads of the entire gateway, its listeners and its backends."""
    found = {("listener", name): PartLoad(each.unanswered_requests, 0) for name, each in state.listeners.items()}
    in_flight = sum(each.in_flight for each in found.values())
    for name, backend in state.assembly.backends.items():
        found["backend", name] = PartLoad(sum(each.in_flight for each in backend.endpoints), len(backend.queue))
    return {ALL: PartLoad(in_flight, sum(each.waiting for each in found.values())), **found}


class ProcessLimits:
    """The limits of the process. This object outlives the gateway's configurations."""

    def __init__(self) -> None:
        self.shedding: Shedding | None = None
        """Rejects requests while the gateway is overloaded; None if load shedding is not configured."""
        self._shed: ShedConfig | None = None
        """The `shedding` settings in use."""

    def apply(self, limits: ProcessLimitsConfig) -> None:
        """Apply these limits to the process from now on."""
        connections = listener_connections.PROCESS_CONNECTIONS
        connections.fit(limits.connections)
        connections.handshakes.limit = limits.handshakes
        connections.clients.limit = limits.connections_per_client
        memory.PROCESS_MEMORY.limit = limits.memory or memory.default_limit()
        memory.PROCESS_MEMORY.per_client = limits.memory_per_client
        if limits.shed != self._shed:  # with unchanged settings, load shedding continues, even during an overload
            self._shed = limits.shed
            self.stop()
            self.shedding = None if limits.shed is None else Shedding(limits.shed.lag, limits.shed.memory)
            if self.shedding is not None:
                self.shedding.start()
        connections.shedding = self.shedding

    def stop(self) -> None:
        """Stop checking for overload."""
        if self.shedding is not None:
            self.shedding.stop()
