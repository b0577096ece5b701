"""The gRPC listener, on grpc.aio with bytes in and out."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc.aio

from gateway.core.address import Address
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.tasks import spawn
from gateway.core.transport import Exchanges
from gateway.transports.grpc import calls, schema
from gateway.transports.grpc.descriptors import Descriptors
from gateway.transports.grpc.draining import Draining
from gateway.transports.grpc.health import Health
from gateway.transports.grpc.options import listener_options
from gateway.transports.grpc.reflection import Reflection

log = logging.getLogger(__name__)

_BETWEEN_LOOKS = 0.1

_FINISHING = 3600.0
"""How long the calls of a server that broke may go on."""


class GrpcListener:
    """Accepts clients of `protocols` at one address, beside gRPC's health and reflection services. Messages over
    `limits.message` are refused with RESOURCE_EXHAUSTED before they are received; core does that, in words of its own
    that name the limit but cannot name the setting.

    gRPC's paths are fixed by its schemas: a protocol's prefix does not count here.
    """

    address: str
    """`host:port`, once started."""

    def __init__(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> None:
        self._options = listener_options(settings.limits)
        self._draining = Draining()
        self._methods = _Methods([protocol for protocol, _ in protocols], exchanges, self._draining)
        self._servers: list[Any] = []
        self._watching: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> None:
        """Bind, and accept connections.

        Raises:
            OSError: the address is taken, not allowed, or none of this machine.
        """
        bound = replace(address, port=await self._serve(address))
        self.address = str(bound)
        self._watching = spawn(self._keep_serving(bound))

    def announce_end(self) -> None:
        """Those who ask or watch gRPC's health service are told that nothing is served any more."""
        self._draining.announced.set()

    async def drain(self, seconds: float) -> int:
        """Tell those who watch, accept no more, let what is in flight finish for at most `seconds`, then break off.
        Returns the number of calls given up."""
        self._draining.begin()
        if self._watching is not None:
            self._watching.cancel()
        stopping = [spawn(server.stop(_FINISHING)) for server in self._servers]
        if stopping:
            await asyncio.wait(stopping, timeout=seconds)
        given_up = self._draining.calls
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        return given_up

    async def _serve(self, address: Address) -> int:
        """Start a server; the port is the answer."""
        server = grpc.aio.server(handlers=(self._methods,), options=self._options)
        try:
            port: int = server.add_insecure_port(str(replace(address, scheme="")))
        except RuntimeError as error:
            raise _why_not_bound(address) from error
        await server.start()
        self._servers.append(server)
        return port

    async def _keep_serving(self, address: Address) -> None:
        """grpc.aio (1.85) stops accepting for good, and says so to nobody but its log, when a client asks for a path
        that is not UTF-8. What is in flight goes on; another server takes its place."""
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS)
            if not _is_running(self._servers[-1]):
                log.error("the gRPC server at %s broke on a request and is started again", address)
                spawn(self._retire(self._servers[-1]))
                await self._serve_again(address)

    async def _serve_again(self, address: Address) -> None:
        while True:
            try:
                await self._serve(address)
            except OSError as error:
                log.error("cannot bind %s again: %s", address, error.strerror)
                await asyncio.sleep(_BETWEEN_LOOKS)
            else:
                return

    async def _retire(self, server: Any) -> None:
        await server.stop(_FINISHING)
        self._servers.remove(server)


class _Methods:
    """What serves each method, as grpc asks for it."""

    def __init__(self, protocols: Sequence[Protocol], exchanges: Exchanges, draining: Draining) -> None:
        own = dict(_of_protocols(protocols, exchanges, draining))
        services = sorted({*map(_service, own), schema.HEALTH, *schema.REFLECTIONS})
        descriptors = Descriptors([schema.DESCRIPTORS, *(protocol.descriptors for protocol in protocols)])
        reflection = Reflection(services, descriptors, draining)
        self._handlers: Mapping[str, Any] = {
            **Health(services, draining).handlers(),
            **reflection.handlers(),
            **own,
        }

    def service(self, details: Any) -> Any:
        """grpc's word for finding the handler of a method."""
        return self._handlers.get(details.method) or calls.unknown(details.method)


def _of_protocols(protocols: Sequence[Protocol], exchanges: Exchanges, draining: Draining) -> Iterator[tuple[str, Any]]:
    # Of two that claim a method the first has it.
    for protocol in reversed(protocols):
        for method in protocol.patterns:
            if method in protocol.streams:
                yield method, calls.streaming(method, protocol, exchanges, draining)
            else:
                yield method, calls.unary(method, protocol, exchanges, draining)


def _service(method: str) -> str:
    """`package.Service` of `/package.Service/Method`."""
    return method.split("/")[1]


def _is_running(server: Any) -> bool:
    running: bool = server._server.is_running()  # what tells it in public waits until every call has ended
    return running


def _why_not_bound(address: Address) -> OSError:
    """grpc does not tell: the system is asked instead."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return error
    return OSError(errno.EADDRNOTAVAIL, "gRPC does not tell why")
