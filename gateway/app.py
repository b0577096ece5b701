"""The composition root: a Config becomes a running gateway. It binds the sockets, and starts, drains and stops."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
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
from gateway.core.streaming import answer_stream
from gateway.core.transport import Connector, Exchanges, Handler, Listener, Select
from gateway.core.types import ServerInfo
from gateway.reference.handler import check
from gateway.reference.loading import find
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint

log = logging.getLogger(__name__)

INFO = ServerInfo("inference-gateway", version("inference-gateway"))

DRAIN_SECONDS = 30.0


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
        """Bind every address and accept there.

        Raises:
            BindError: naming what could not be bound, and why; nothing stays bound.
            ValueError: a reference model cannot be served.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop(0)
            raise
        self.ready = True

    async def _start(self) -> None:
        config = self.config
        for reference in config.reference:
            self._references.append(await serve_reference(reference, self._clock))
        for each in config.listeners:
            settings = ListenerSettings(each.name, each.limits, each.model)
            rows = [(self._protocols[name], each.prefix.get(name, "")) for name in each.protocols]
            with binding(f"listener {each.name!r}", each.bind):
                self.listeners[each.name] = await listen(settings, rows, self._assembly.router.select, each.bind)
        if config.health:
            await self._administer("health", health.application(lambda: self.ready), config.health.bind)
        if config.admin:
            await self._administer("admin", status.application(self.status), config.admin.bind)

    async def _administer(self, name: str, application: FastAPI, address: Address) -> None:
        server = AdminServer(application)
        with binding(name, address):
            await server.start(address)
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


async def serve_reference(config: ReferenceConfig, clock: Callable[[], float]) -> Listener:
    """Serve reference models over one protocol.

    Raises:
        BindError: the address.
        ValueError: a model cannot be loaded, or not be served over this protocol.
    """
    protocol = registry.protocols()[config.protocol]
    models = [find(name) for name in config.models]
    check(models, protocol)
    router = reference_router(models, protocol, clock, INFO)
    with binding(f"reference {config.protocol!r}", config.bind):
        return await listen(ListenerSettings("reference"), [(protocol, "")], router.select, config.bind)


async def listen(
    settings: ListenerSettings, rows: Sequence[tuple[Protocol, str]], select: Select, address: Address
) -> Listener:
    """A started Listener for protocols of one transport, each below its prefix."""
    transport = registry.transport(rows[0][0].transport)
    listener: Listener = transport.Listener(
        settings,
        rows,
        Exchanges(
            lambda message, protocol: answer(message, protocol, settings, select),
            lambda messages, protocol: answer_stream(messages, protocol, settings, select),
            lambda error, protocol, message: protocol.encode_error(error, None, message),
        ),
    )
    await listener.start(address)
    return listener


@contextmanager
def binding(what: str, address: Address) -> Iterator[None]:
    """Name the place in the configuration whose address cannot be bound."""
    try:
        yield
    except OSError as error:
        raise BindError(f"{what}: cannot bind {address}: {error.strerror or error}") from error


def _connect(address: str, protocol: Protocol, limits: Limits) -> Connector:
    transport = registry.transport(protocol.transport)
    connector: Connector = transport.Connector(
        address, connection_per_call=protocol.traits.connection_per_call, limits=limits
    )
    return connector


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
