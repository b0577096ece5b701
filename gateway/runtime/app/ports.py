"""The ports that are not listeners: health, status API and scaler."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from gateway.admin.access import AccessCheck
from gateway.admin.health import HealthServer
from gateway.admin.metrics import Metrics
from gateway.admin.scaler import ScalerServer
from gateway.admin.state import GatewayState
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, port_alpn
from gateway.assembly.listening import binding
from gateway.assembly.part import GatewayPart
from gateway.config.keys import AdminConfig, Config, HealthConfig, ScalerConfig
from gateway.config.tls import ListenerTlsConfig
from gateway.core.address import Address
from gateway.core.transport import Ready
from gateway.runtime.app.replacing import PortServer
from gateway.servers.discovery.register import Registrations

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gateway.admin.server import AdminServer

log = logging.getLogger("gateway.app")

NAMES = ("health", "admin", "scaler")
"""The names of the ports, which are also their configuration keys."""
PortConfig: TypeAlias = HealthConfig | AdminConfig | ScalerConfig | None
MakeApplication: TypeAlias = "Callable[[Mapping[str, Registrations]], FastAPI]"
"""A function that creates the application of the admin port. Its argument maps backend names to Registrations."""


class Ports:
    """The servers of the ports. `all` maps port names to servers, which report on `state`. `application` creates the
    application of the admin port."""

    def __init__(
        self,
        state: GatewayState,
        metrics: Metrics,
        part: GatewayPart,
        certificates: Certificates,
        application: MakeApplication,
    ) -> None:
        self.all: dict[str, PortServer] = {}
        self._state = state
        self._metrics = metrics
        self._part = part
        self._certificates = certificates
        self._application = application
        self._tls: dict[str, ListenerTlsConfig | None] = {}
        """The TLS settings for new connections, by port name."""
        self._registrations: dict[str, Registrations] = {}
        """The current server registrations, by backend name."""

    def opening(self, config: Config, before: Config | None = None) -> list[str]:
        """Return the names of the ports to open: the ports in `config`, except ports that have the same address in the
        configuration `before`."""
        if not self._part.has_ports:
            return []
        bound = {} if before is None else binds(before)
        return [name for name, bind in binds(config).items() if bind != bound.get(name)]

    async def open(self, name: str, config: Config, assembly: Assembly) -> PortServer:
        """Bind a new port, which is not yet in `all`.

        Raises:
            BindError: the port's address cannot be bound.
        """
        self._tls[name] = _tls(config, name)
        if name == "admin":
            await asyncio.to_thread(import_module, "gateway.runtime.app.admin")
        server, bind = self._made(name, config, assembly), binds(config)[name]
        with binding(name, bind):
            await server.start(bind)
        log.info("%s answers at %s", name, server.address)
        return server

    def _made(self, name: str, config: Config, assembly: Assembly) -> PortServer:
        tls = partial(self._context, name)
        if name == "health":
            count, asked = self._state.refresh_counts, assembly.authentication.of_metrics
            ready, page = self._backends_ready(config), self._metrics.page(config)
            return HealthServer(self._is_accepting, ready, metrics=page, count=count, asked=asked, tls=tls)
        if name == "scaler":
            return ScalerServer(assembly.backends, assembly.activities, tls)
        return self._admin(assembly, tls)

    def _admin(self, assembly: Assembly, tls: Callable[[], ssl.SSLContext | None]) -> "AdminServer":
        from gateway.admin.server import AdminServer

        check = AccessCheck(self._application(self._registrations), assembly.authentication.of_admin)
        return AdminServer(check, check, tls)

    def change(self, config: Config, opened: Mapping[str, PortServer]) -> list[PortServer]:
        """Set `all` to the ports that stay and the newly opened ports. Return the removed ports."""
        bound = binds(config)
        gone = [port for name, port in self.all.items() if name in opened or name not in bound]
        self.all = {name: port for name, port in self.all.items() if port not in gone} | dict(opened)
        self._tls = {name: _tls(config, name) for name in NAMES}
        return gone

    def take_over(self, assembly: Assembly) -> None:
        """Accept server registrations for the backends of `assembly`."""
        self._registrations.clear()
        self._registrations.update(assembly.discovery.registrations)

    def renew(self, config: Config, assembly: Assembly) -> None:
        """Start reporting on `config` and `assembly`."""
        health = self.all.get("health")
        if isinstance(health, HealthServer):
            health.backends_ready, health.metrics = self._backends_ready(config), self._metrics.page(config)
            health.asked = assembly.authentication.of_metrics
        admin = self.all.get("admin")
        if admin is not None:
            from gateway.admin.server import AdminServer

            if isinstance(admin, AdminServer) and admin.access is not None:
                admin.access.asked = assembly.authentication.of_admin
        scaler = self.all.get("scaler")
        if isinstance(scaler, ScalerServer):
            scaler.renew(assembly.backends, assembly.activities)

    async def stop(self) -> None:
        """Close all ports."""
        for each in self.all.values():
            await each.stop()

    def _is_accepting(self) -> bool:
        workers = self._part.workers
        return self._state.ready and (workers is None or workers.is_one_ready())

    def _backends_ready(self, config: Config) -> Ready | None:
        """Return the function that checks the backends for `/readyz`, or None if readiness does not depend on them."""
        rule = "none" if config.health is None else config.health.ready
        return None if rule == "none" else partial(self._state.is_ready, rule)

    def _context(self, name: str) -> ssl.SSLContext | None:
        tls = self._tls[name]
        return None if tls is None else self._certificates.server(tls, port_alpn(name))()


def binds(config: Config) -> dict[str, Address]:
    """Return the addresses of the configured ports, by name."""
    found: dict[str, PortConfig] = {name: getattr(config, name) for name in NAMES}
    return {name: each.bind for name, each in found.items() if each is not None}


def _tls(config: Config, name: str) -> ListenerTlsConfig | None:
    port: PortConfig = getattr(config, name)
    return None if port is None else port.tls
