"""The gRPC listener. Each connection is an asyncio.BufferedProtocol that uses `gateway.core.http2`."""

import asyncio
from collections.abc import Iterator, Sequence

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.http2.frames import PREFACE
from gateway.core.messages import Message
from gateway.core.protocol import GrpcBinding, ListenerSettings, Protocol
from gateway.core.record import Record
from gateway.core.transport import Exchanges
from gateway.transports.base_listener import BaseListener
from gateway.transports.first_bytes import Opening
from gateway.transports.grpc import schema
from gateway.transports.grpc.address import ALPN
from gateway.transports.grpc.server.bounded_connection import BoundedGrpcConnection
from gateway.transports.grpc.server.calls import Method, StartRecord
from gateway.transports.grpc.server.connection import SCRATCH_BYTES, GrpcServerConnection, Site
from gateway.transports.grpc.server.descriptors import Descriptors
from gateway.transports.grpc.server.heads import request_heads
from gateway.transports.grpc.server.health import HealthService
from gateway.transports.grpc.server.reflection import Reflection
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class GrpcListener(BaseListener):
    """Serves `protocols`, and the gRPC health and reflection services, at one address. It refuses messages over
    `limits.message` with RESOURCE_EXHAUSTED as soon as their size is known.

    The schemas of gRPC services define the paths, so a protocol's path prefix has no effect. As a part of a
    SharedListener, it shares the `connections` with the other parts."""

    opening = Opening(PREFACE, ALPN)

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        connections: ListenerConnections | None = None,
    ) -> None:
        super().__init__(settings, connections, timeouts)
        self._ending = asyncio.Event()
        self._site = Site(
            limits=settings.limits,
            timeouts=timeouts,
            connections=self._connections,
            methods=_by_name(protocols, exchanges, self._ending),
            heads=request_heads(settings.limits.headers),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            record=_recorder(protocols, exchanges),
            admit=exchanges.admit,
            spoken=_spoken(protocols),
            shares_http1=settings.shares_http1,
        )

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Return an empty string, because gRPC protocols can always replace each other."""
        return ""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> list[asyncio.Task[None]]:
        """See `Listener.renew`. A changed `limits.headers` applies only to new connections."""
        self._site = site = replace(
            self._site,
            limits=settings.limits,
            methods=_by_name(protocols, exchanges, self._ending),
            heads=request_heads(settings.limits.headers),
            record=_recorder(protocols, exchanges),
            admit=exchanges.admit,
            spoken=_spoken(protocols),
        )
        self._accept_with(settings)
        connections = self._connections.renew(settings)
        return [task for each in connections if isinstance(each, GrpcServerConnection) for task in each.renew(site)]

    def announce_end(self) -> None:
        """Report NOT_SERVING in the gRPC health service from now on, also to clients that use Watch."""
        self._connections.ending = True
        self._ending.set()

    async def stop_accepting(self) -> None:
        """See `Listener.stop_accepting`. A GOAWAY asks clients to send no more requests. If `drain` terminates
        requests, they end with UNAVAILABLE."""
        self.announce_end()
        await super().stop_accepting()

    def serve(self) -> GrpcServerConnection:
        """Return the connection for a new client, after the TLS handshake."""
        return (BoundedGrpcConnection if self._is_bounded else GrpcServerConnection)(self._site)


def _by_name(
    protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges, ending: asyncio.Event
) -> dict[bytes, Method]:
    methods = _methods([protocol for protocol, _ in protocols], exchanges, ending)
    return {method.name.encode(): method for method in methods}


def _methods(protocols: Sequence[Protocol], exchanges: Exchanges, ending: asyncio.Event) -> Iterator[Method]:
    """Yield the methods. If two methods have the same name, the last one is used."""
    own = list(_of_protocols(protocols, exchanges))
    services = sorted({*(_service(method.name) for method in own), schema.HEALTH, *schema.REFLECTIONS})
    descriptors = Descriptors(
        [schema.DESCRIPTORS, *(each.binding.descriptors for each in protocols if isinstance(each.binding, GrpcBinding))]
    )
    known = frozenset().union(
        *(each.binding.health_names for each in protocols if isinstance(each.binding, GrpcBinding))
    )
    for method in HealthService([*services, *known], exchanges.ready, ending).methods():
        yield replace(method, record=_recorder_of_own("health", protocols, exchanges))
    for method in Reflection(services, descriptors).methods():
        yield replace(method, record=_recorder_of_own("reflection", protocols, exchanges))
    yield from own


def _of_protocols(protocols: Sequence[Protocol], exchanges: Exchanges) -> Iterator[Method]:
    # If two protocols have the same method, the first protocol must serve it. Therefore the order is reversed: of
    # several methods with the same name, the last one is used.
    for protocol in reversed(protocols):
        for name in protocol.patterns:
            yield _of_protocol(name, protocol, exchanges)


def _of_protocol(name: str, protocol: Protocol, exchanges: Exchanges) -> Method:
    exchange, stream, record = exchanges.exchange, exchanges.stream, _recorder([(protocol, "")], exchanges)

    def refuse(error: GatewayError, message: Message) -> Message:
        return exchanges.refuse(error, protocol, message)

    if isinstance(protocol.binding, GrpcBinding) and name in protocol.binding.streams:
        return Method(name, stream=lambda messages: stream(messages, protocol), refuse=refuse, record=record)
    return Method(name, lambda message: exchange(message, protocol), refuse=refuse, record=record)


def _recorder_of_own(operation: str, protocols: Sequence[Protocol], exchanges: Exchanges) -> StartRecord | None:
    """Return the function that starts the records for requests to one of gRPC's own services."""
    start = _recorder([(protocols[0], "")], exchanges)
    if start is None:
        return None

    def start_own(message: Message, size: int) -> Record:
        record = start(message, size)
        record.in_protocol, record.operation = "grpc", operation
        return record

    return start_own


def _recorder(protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges) -> StartRecord | None:
    """Return the function that starts the records for requests in the first protocol; None without observers."""
    protocol, start = protocols[0][0], exchanges.record
    return None if start is None else lambda message, size: start(message, protocol, size)


def _spoken(protocols: Sequence[tuple[Protocol, str]]) -> str:
    return ", ".join(dict.fromkeys(protocol.name for protocol, _ in protocols))


def _service(method: str) -> str:
    """Return `package.Service` for `/package.Service/Method`."""
    return method.split("/")[1]
