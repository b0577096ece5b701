"""The composition root: a Config becomes a running gateway. It binds the sockets, and starts, drains and stops."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from gateway import registry
from gateway.admin import health, status
from gateway.admin.server import AdminServer
from gateway.assembly import Assembly, reference_router
from gateway.bridge.bridge import Bridge, Upstream
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Signatures
from gateway.config.models import Config, ReferenceConfig
from gateway.core.address import Address
from gateway.core.exchange import answer
from gateway.core.protocol import DEFAULT_LIMITS, Limits, ListenerSettings, Protocol, Target
from gateway.core.transport import Connector, Handler, Listener, Select
from gateway.core.types import ServerInfo
from gateway.reference.handler import check
from gateway.reference.loading import find
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint

log = logging.getLogger(__name__)

INFO = ServerInfo("inference-gateway", version("inference-gateway"))

DRAIN_SECONDS = 30.0
BACKLOG = 1024


class BindError(Exception):
    """An address of the configuration cannot be bound."""


class Gateway:
    """One configuration, served. `start`, then `stop`; a Gateway is not started twice."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ready = False
        self.listeners: dict[str, Listener] = {}
        self._protocols = registry.protocols()
        clock = asyncio.get_running_loop().time
        self._assembly = Assembly(
            config, self._protocols, registry.policies(), _connect, clock, INFO, lambda: self.ready
        )
        self._references: list[Listener] = []
        self._admin: list[AdminServer] = []
        self._clock: Callable[[], float] = clock

    async def start(self) -> None:
        """Bind every address, then accept.

        Raises:
            BindError: naming what could not be bound, and why; nothing stays bound.
        """
        sockets: list[socket.socket] = []
        try:
            await self._start(sockets)
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        self.ready = True

    async def _start(self, sockets: list[socket.socket]) -> None:
        def bound(what: str, address: Address) -> socket.socket:
            sockets.append(bind(what, address))
            return sockets[-1]

        config = self.config
        listening = [bound(f"listener {each.name!r}", each.bind) for each in config.listeners]
        serving = [bound(f"reference {each.protocol!r}", each.bind) for each in config.reference]
        for reference, sock in zip(config.reference, serving, strict=True):
            self._references.append(await serve_reference(reference, sock, self._clock))
        for each, sock in zip(config.listeners, listening, strict=True):
            settings = ListenerSettings(each.name, each.limits, each.model)
            rows = [(self._protocols[name], each.prefix.get(name, "")) for name in each.protocols]
            self.listeners[each.name] = await listen(settings, rows, self._assembly.router.select, sock)
        if config.health:
            await self._administer(health.application(lambda: self.ready), bound("health", config.health.bind))
        if config.admin:
            await self._administer(status.application(self.status), bound("admin", config.admin.bind))

    async def _administer(self, application: FastAPI, sock: socket.socket) -> None:
        server = AdminServer(application)
        await server.start(sock)
        self._admin.append(server)

    async def stop(self, seconds: float = DRAIN_SECONDS) -> None:
        """Stop being ready, let what is in flight finish for at most `seconds`, then close everything."""
        self.ready = False
        await asyncio.gather(*(listener.drain(seconds) for listener in self.listeners.values()))
        for endpoint in self._assembly.endpoints.values():
            await endpoint.connector.close()
        await asyncio.gather(*(reference.drain(0) for reference in self._references))
        for server in self._admin:
            await server.stop()

    def status(self) -> status.Status:
        """What runs now."""
        return status.Status(
            version=INFO.version,
            ready=self.ready,
            listeners={
                each.name: status.ListenerStatus(
                    address=self.listeners[each.name].address, protocols=list(each.protocols)
                )
                for each in self.config.listeners
                if each.name in self.listeners
            },
            backends={name: _backend_status(backend) for name, backend in self._assembly.backends.items()},
        )


def _backend_status(backend: Backend) -> status.BackendStatus:
    return status.BackendStatus(
        protocol=backend.protocol.name,
        max_in_flight=backend.max_in_flight,
        waiting=len(backend.queue),
        endpoints=[
            status.EndpointStatus(address=each.address, in_flight=each.in_flight, reachable=each.reachable)
            for each in backend.endpoints
        ],
    )


async def serve_reference(config: ReferenceConfig, sock: socket.socket, clock: Callable[[], float]) -> Listener:
    """Serve reference models over one protocol on a bound socket.

    Raises:
        ValueError: a model cannot be loaded, or not be served over this protocol.
    """
    protocol = registry.protocols()[config.protocol]
    models = [find(name) for name in config.models]
    check(models, protocol)
    router = reference_router(models, protocol, clock, INFO)
    return await listen(ListenerSettings("reference"), [(protocol, "")], router.select, sock)


async def listen(
    settings: ListenerSettings, rows: Sequence[tuple[Protocol, str]], select: Select, sock: socket.socket
) -> Listener:
    """A started Listener for protocols of one transport, each below its prefix, on a bound socket."""
    transport = registry.transport(rows[0][0].transport)
    listener: Listener = transport.Listener(
        settings,
        rows,
        lambda message, protocol: answer(message, protocol, settings, select),
        lambda error, protocol, message: protocol.encode_error(error, None, message),
    )
    await listener.start(sock)
    return listener


def _connect(address: str, protocol: Protocol, limits: Limits) -> Connector:
    transport = registry.transport(protocol.transport)
    connector: Connector = transport.Connector(
        address, connection_per_call=protocol.traits.connection_per_call, limits=limits
    )
    return connector


def bind(what: str, address: Address) -> socket.socket:
    """A listening TCP socket on `address`; `what` is its place in the configuration.

    Raises:
        BindError: taken, not allowed, or not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    try:
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BindError(f"{what}: cannot bind {address}: {error.strerror or error}") from error
    return sock


@asynccontextmanager
async def one_backend(protocol: Protocol, address: str, client: Protocol) -> AsyncIterator[Handler]:
    """A Handler of `client`'s requests to the one server at `address`, with a Bridge in between.

    Raises:
        ValueError: `address` is none of the protocol's transport.
    """
    connector = _connect(address, protocol, DEFAULT_LIMITS)
    backend = Backend(Target("server"), protocol, [Endpoint(address, connector)], protocol.traits.max_in_flight)
    signatures = Signatures(backend, protocol.traits, asyncio.get_running_loop().time)
    upstream = Upstream("server", protocol.name, protocol.traits, backend, signatures, backend.capacity + 1)
    try:
        yield Bridge(RouteSettings(), client, upstream)
    finally:
        await connector.close()
