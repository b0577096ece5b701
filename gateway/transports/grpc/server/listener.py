"""The gRPC listener, and its connections with limits. Each connection is an asyncio.BufferedProtocol that uses
`gateway.core.http2`.

Connections with limits have a separate class, so listeners without limits have no additional cost per request.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.http2.connection import DataReceived, Stream
from gateway.core.http2.frames import PREFACE
from gateway.core.http2.server import RequestReceived, RequestStarted
from gateway.core.messages import Message
from gateway.core.protocol import GrpcBinding, ListenerSettings, Protocol
from gateway.core.record import Record
from gateway.core.transport import Exchanges
from gateway.transports.base_listener import BaseListener
from gateway.transports.grpc.address import ALPN
from gateway.transports.grpc.messages import announced_size
from gateway.transports.grpc.server import own_services
from gateway.transports.grpc.server.calls import Method, ServerCall, StartRecord
from gateway.transports.grpc.server.connection import SCRATCH_BYTES, Event, GrpcServerConnection, Site
from gateway.transports.grpc.server.heads import CallHead, request_heads
from gateway.transports.grpc.server.own_services import Descriptors, HealthService, Reflection
from gateway.transports.lifecycle import Lifespan, Phase
from gateway.transports.listener_connections import ListenerConnections
from gateway.transports.shared_listener import Opening
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class BoundedGrpcConnection(GrpcServerConnection):
    """A connection with limits.

    After the last permitted request, or at the maximum age, a GOAWAY asks the client to use another connection. The old
    connection closes after its last call. Calls have `limits.connection_grace` seconds to end. When the gateway sheds
    load, it rejects a call as soon as the size of the message is available. It never rejects calls to gRPC's own
    services."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._lifespan = Lifespan(site.limits, self._loop.time())
        self._shedding = site.connections.shedding

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the accepted connection."""
        super().connection_made(transport)
        self._lifespan.call_at(self._loop, self._lifespan.ends_at, self._end_of_life)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        super().connection_lost(error)
        self._lifespan.stop()

    def begin(self, stream: Stream, head: CallHead) -> None:
        super().begin(stream, head)
        if not self.is_draining and self._lifespan.is_last(self._loop.time()):
            self._end_of_life()

    def _end_of_life(self) -> None:
        grace = self.limits.connection_grace
        when = math.inf if grace is None else self._loop.time() + grace
        self._lifespan.call_at(self._loop, when, self._end_overdue_calls)
        self.retire()

    def _end_overdue_calls(self) -> None:
        if self._phase is not Phase.LINGERING:
            text = "the connection has reached its limits, and the call did not end within limits.connection_grace"
            self.end_calls(refusal(Reason.NOT_READY, f"{text}; begin it again, or raise this limit"))

    def handle(self, event: Event) -> None:
        if self._shedding is None or not self._shedding.level:
            super().handle(event)
        elif type(event) is RequestReceived:
            super().handle(RequestStarted(event.stream, event.head))
            self._on_data(DataReceived(event.stream, event.data, True))
        elif type(event) is DataReceived:
            self._on_data(event)
        else:
            super().handle(event)

    def _on_data(self, event: DataReceived) -> None:
        """Handle data, and reject its call if the gateway sheds load."""
        if self._shedding is not None:
            call: ServerCall | None = event.stream.handler
            if call is not None and call.may_be_shed:
                error = self._shedding.refusal(announced_size(event.data))
                if error is not None:
                    call.fail(error)
                    return
        super().handle(event)


class GrpcListener(BaseListener):
    """Serves `protocols` and the gRPC health and reflection services at one address. The listener rejects a message
    over `limits.message` with RESOURCE_EXHAUSTED as soon as the message's size is available.

    The schemas of gRPC services define the paths, so a protocol's path prefix has no effect. If this listener is a part
    of a SharedListener, it shares the `connections` with the other parts."""

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
        """Report NOT_SERVING in the gRPC health service from now on, including to clients that use Watch."""
        self._connections.ending = True
        self._ending.set()

    async def stop_accepting(self) -> None:
        """See `Listener.stop_accepting`. A GOAWAY asks clients to send no more requests. If `drain` terminates
        requests, they end with UNAVAILABLE."""
        self.announce_end()
        await super().stop_accepting()

    def serve(self) -> GrpcServerConnection:
        """Return the connection object for a new client, after the TLS handshake."""
        return (BoundedGrpcConnection if self._is_bounded else GrpcServerConnection)(self._site)


def _by_name(
    protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges, ending: asyncio.Event
) -> dict[bytes, Method]:
    methods = _methods([protocol for protocol, _ in protocols], exchanges, ending)
    return {method.name.encode(): method for method in methods}


def _methods(protocols: Sequence[Protocol], exchanges: Exchanges, ending: asyncio.Event) -> Iterator[Method]:
    """Yield the methods. If two methods have the same name, the last method is used."""
    own = list(_of_protocols(protocols, exchanges))
    services = sorted({*(_service(method.name) for method in own), own_services.HEALTH, *own_services.REFLECTIONS})
    descriptors = Descriptors(
        [
            own_services.DESCRIPTORS,
            *(each.binding.descriptors for each in protocols if isinstance(each.binding, GrpcBinding)),
        ]
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
    # If two protocols have the same method, the first protocol must serve it. Therefore, the order is reversed, because
    # the last of several methods with the same name is used.
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
    """Return the function that creates the records for requests to one of gRPC's own services; None without
    observers."""
    start = _recorder([(protocols[0], "")], exchanges)
    if start is None:
        return None

    def start_own(message: Message, size: int) -> Record:
        record = start(message, size)
        record.in_protocol, record.operation = "grpc", operation
        return record

    return start_own


def _recorder(protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges) -> StartRecord | None:
    """Return the function that creates the records for requests in the first protocol; None without observers."""
    protocol, start = protocols[0][0], exchanges.record
    return None if start is None else lambda message, size: start(message, protocol, size)


def _spoken(protocols: Sequence[tuple[Protocol, str]]) -> str:
    return ", ".join(dict.fromkeys(protocol.name for protocol, _ in protocols))


def _service(method: str) -> str:
    """Return `package.Service` for `/package.Service/Method`."""
    return method.split("/")[1]
