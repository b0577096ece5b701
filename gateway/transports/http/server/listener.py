"""The HTTP/1.1 listener, which accepts clients at one address, and its connections with limits.

Connections with limits have a separate class, so listeners without limits have no additional cost per request.
"""

import asyncio
from collections.abc import Sequence
from copy import copy

from gateway.core.patterns import PathTable
from gateway.core.protocol import ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.base_listener import BaseListener
from gateway.transports.http.address import ALPN
from gateway.transports.http.server.connection import HttpServerConnection
from gateway.transports.http.server.context import HttpContext
from gateway.transports.http.server.cross_origin import CrossOriginReplies
from gateway.transports.http.server.dispatch import Dispatch
from gateway.transports.http.server.http2_refusal import Http2Refusal
from gateway.transports.http.server.request_head import RequestHead
from gateway.transports.http.server.whole_heads import WholeHeads
from gateway.transports.lifecycle import Lifespan
from gateway.transports.listener_connections import PROCESS_CONNECTIONS, ConnectionLimit, ListenerConnections
from gateway.transports.shared_listener import Opening
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts


class BoundedHttpConnection(HttpServerConnection):
    """A connection with limits. The reply to the last request contains `Connection: close`. When the gateway sheds
    load, it rejects a request after the head has arrived. It still receives a small body, so the connection can stay
    open."""

    def __init__(self, context: HttpContext) -> None:
        super().__init__(context)
        self._lifespan = Lifespan(context.limits, self._loop.time())
        self._shedding = context.connections.shedding

    def receive_whole(self, data: bytes) -> bool:
        """Return False, because `request_begun` must decide for each request whether to shed it."""
        return False

    def request_begun(self, head: RequestHead, dispatch: Dispatch) -> None:
        error = self._shedding.refusal(head.length) if self._shedding is not None else None
        if error is not None:
            self._dispatch = dispatch = copy(dispatch)  # a copy, because the head cache also contains it
            dispatch.refused = error
        super().request_begun(head, dispatch)

    def connection_line(self) -> bytes:
        if self._lifespan.is_last(self._loop.time()):
            self._keep_alive = False
        return super().connection_line()


_SCRATCH_BYTES = 2**18
"""The number of bytes to receive in one step. The rest of a large body has its own buffer."""


class HttpListener(BaseListener):
    """Serves `protocols`, each below its path prefix, at one address. `connection_limit` is the maximum number of
    connected clients, including clients of other listeners with the same limit. If this listener is a part of a
    SharedListener, it shares the `connections` with the other parts."""

    opening = Opening(alpn=ALPN)

    def __init__(
        self,
        settings: ListenerSettings,
        protocols: Sequence[tuple[Protocol, str]],
        exchanges: Exchanges,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        connection_limit: ConnectionLimit = PROCESS_CONNECTIONS,
        connections: ListenerConnections | None = None,
    ) -> None:
        own = ListenerConnections.of(settings, connection_limit) if connections is None else connections
        super().__init__(settings, own, timeouts)
        self._context = _context(settings, protocols, exchanges, timeouts, self._connections)

    def why_not_renewed(self, protocols: Sequence[tuple[Protocol, str]]) -> str:
        """Return an empty string, because HTTP protocols can always replace each other."""
        return ""

    def renew(
        self, settings: ListenerSettings, protocols: Sequence[tuple[Protocol, str]], exchanges: Exchanges
    ) -> list[asyncio.Task[None]]:
        """See `Listener.renew`."""
        self._context = context = _context(settings, protocols, exchanges, self._timeouts, self._connections)
        self._accept_with(settings)
        connections = self._connections.renew(settings)
        for each in connections:
            if isinstance(each, Http2Refusal):
                each.renew(context)
        tasks = (each.renew(context) for each in connections if isinstance(each, HttpServerConnection))
        return [task for task in tasks if task is not None]

    def announce_end(self) -> None:
        """From now on, send `Connection: close` in every reply, and close the connection after the reply."""
        self._connections.ending = True

    def serve(self) -> HttpServerConnection:
        """Return the connection object for a new client, after the TLS handshake."""
        return (BoundedHttpConnection if self._is_bounded else HttpServerConnection)(self._context)


def _context(
    settings: ListenerSettings,
    protocols: Sequence[tuple[Protocol, str]],
    exchanges: Exchanges,
    timeouts: Timeouts,
    connections: ListenerConnections,
) -> HttpContext:
    table = PathTable(protocols)
    cross_origin = None if settings.cross_origin is None else CrossOriginReplies(settings.cross_origin)
    return HttpContext(
        limits=settings.limits,
        timeouts=timeouts,
        connections=connections,
        table=table,
        heads=WholeHeads(table, settings.limits, cross_origin),
        scratch=memoryview(bytearray(_SCRATCH_BYTES)),
        exchange=exchanges.exchange,
        stream=exchanges.stream,
        refuse=exchanges.refuse,
        record=exchanges.record,
        admit=exchanges.admit,
        cross_origin=cross_origin,
    )
